"""`python -m standins.speech`: run the stand-in as a process."""

from __future__ import annotations

import os

from standins.server import program, run
from standins.speech.server import StandIn


def main() -> None:
    options = program("speech", 8903).parse_args()
    run(StandIn(key=os.environ.get("SPEECH_STANDIN_KEY")), options.port, options.latency)


if __name__ == "__main__":
    main()
