"""`python -m retoma_apps.providers.speech.standin`: run the stand-in as a process."""

from __future__ import annotations

import os

from retoma_apps.providers.speech.standin.server import StandIn
from retoma_apps.providers.standin import program, run


def main() -> None:
    parser = program("speech", 8903)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each answer takes")
    options = parser.parse_args()
    standin = StandIn(key=os.environ.get("SPEECH_STANDIN_KEY"))
    standin.faults.latency = options.latency
    run(standin, options.port)


if __name__ == "__main__":
    main()
