"""`python -m standins.llm`: run the stand-in as a process."""

from __future__ import annotations

import os
from pathlib import Path

from standins.llm.server import StandIn
from standins.server import program, run


def main() -> None:
    parser = program("llm", 8901)
    parser.add_argument("--ledger", type=Path, help="a file that gets one line per answer")
    options = parser.parse_args()
    standin = StandIn(key=os.environ.get("OPENROUTER_API_KEY"), ledger=options.ledger)
    run(standin, options.port, options.latency)


if __name__ == "__main__":
    main()
