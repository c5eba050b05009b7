"""`python -m standins.keywords`: run the stand-in as a process."""

from __future__ import annotations

import os

from standins.keywords.server import StandIn
from standins.server import program, run


def main() -> None:
    options = program("keywords", 8906).parse_args()
    standin = StandIn(login=os.environ.get("DATAFORSEO_LOGIN", ""), password=os.environ.get("DATAFORSEO_PASSWORD", ""))
    run(standin, options.port, options.latency)


if __name__ == "__main__":
    main()
