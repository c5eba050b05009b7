"""`python -m retoma_apps.providers.llm.standin`: run the stand-in as a process."""

from __future__ import annotations

import os
from pathlib import Path

from retoma_apps.providers.llm.standin.server import StandIn
from retoma_apps.providers.standin import program, run


def main() -> None:
    parser = program("llm", 8901)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each answer takes")
    parser.add_argument("--ledger", type=Path, help="a file that gets one line per answer")
    options = parser.parse_args()
    standin = StandIn(key=os.environ.get("OPENROUTER_API_KEY"), ledger=options.ledger)
    standin.faults.latency = options.latency
    run(standin, options.port)


if __name__ == "__main__":
    main()
