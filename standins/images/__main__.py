"""`python -m standins.images`: run the stand-in as a process."""

from __future__ import annotations

import os

from standins.images.server import StandIn
from standins.server import program, run


def main() -> None:
    options = program("images", 8904).parse_args()
    run(StandIn(key=os.environ.get("IMAGES_API_KEY")), options.port, options.latency)


if __name__ == "__main__":
    main()
