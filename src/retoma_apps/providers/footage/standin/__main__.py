"""`python -m retoma_apps.providers.footage.standin`: run the stand-in as a process."""

from __future__ import annotations

import os

from retoma_apps.providers.footage.standin.server import StandIn
from retoma_apps.providers.standin import program, run


def main() -> None:
    options = program("footage", 8902).parse_args()
    run(StandIn(key=os.environ.get("PEXELS_API_KEY")), options.port)


if __name__ == "__main__":
    main()
