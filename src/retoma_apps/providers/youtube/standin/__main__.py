"""`python -m retoma_apps.providers.youtube.standin`: run the stand-in as a process."""

from __future__ import annotations

from retoma_apps.providers.standin import program, run
from retoma_apps.providers.youtube.standin.server import StandIn


def main() -> None:
    parser = program("youtube", 8905)
    parser.add_argument("--processing", type=float, default=5.0, help="seconds until a video is processed")
    options = parser.parse_args()
    run(StandIn(processing_seconds=options.processing), options.port)


if __name__ == "__main__":
    main()
