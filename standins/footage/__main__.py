"""`python -m standins.footage`: run the stand-in as a process."""

from __future__ import annotations

import os

from standins.footage.server import StandIn
from standins.server import program, run


def main() -> None:
    options = program("footage", 8902).parse_args()
    run(StandIn(key=os.environ.get("PEXELS_API_KEY")), options.port, options.latency)


if __name__ == "__main__":
    main()
