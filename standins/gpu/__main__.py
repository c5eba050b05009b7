"""`python -m standins.gpu`: run the stand-in as a process."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from retoma_apps.providers.gpu.local import LocalHost
from standins.gpu.server import StandIn
from standins.server import program, run


def main() -> None:
    options = _options()
    standin = StandIn(
        workers=options.workers,
        key=os.environ.get("RUNPOD_API_KEY"),
        seconds_per_image=options.seconds_per_image,
        queue_seconds=options.queue_seconds,
        retention=options.retention,
        ledger=options.ledger,
        twin=LocalHost() if options.work else None,
    )
    run(standin, options.port, options.latency)


def _options() -> Namespace:
    parser = program("gpu", 8900)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seconds-per-image", type=float, default=1.0)
    parser.add_argument("--queue-seconds", type=float, default=0.0)
    parser.add_argument("--retention", type=float, default=1800.0, help="seconds after which an ended job is a 404")
    parser.add_argument("--ledger", type=Path, help="a file that gets one line per submission and end")
    parser.add_argument("--work", action="store_true", help="really render, with ffmpeg on this machine")
    return parser.parse_args()


if __name__ == "__main__":
    main()
