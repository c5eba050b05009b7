"""`python -m standins.youtube`: run the stand-in as a process."""

from __future__ import annotations

from standins.server import program, run
from standins.youtube.server import StandIn


def main() -> None:
    parser = program("youtube", 8905)
    parser.add_argument("--processing", type=float, default=5.0, help="seconds until a video is processed")
    options = parser.parse_args()
    run(StandIn(processing_seconds=options.processing), options.port, options.latency)


if __name__ == "__main__":
    main()
