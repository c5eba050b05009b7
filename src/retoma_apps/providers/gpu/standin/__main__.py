"""`python -m retoma_apps.providers.gpu.standin --port 8900`: the stand-in as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from retoma_apps.providers.gpu.local import LocalHost
from retoma_apps.providers.gpu.standin.server import StandIn


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
    asyncio.run(_serve(standin, options.port))


async def _serve(standin: StandIn, port: int) -> None:
    async with standin.serving(port=port) as base_url:
        print(f"RUNPOD_BASE_URL={base_url}", flush=True)
        await asyncio.Event().wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m retoma_apps.providers.gpu.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=8900, help="0 takes any that is free")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seconds-per-image", type=float, default=1.0)
    parser.add_argument("--queue-seconds", type=float, default=0.0)
    parser.add_argument("--retention", type=float, default=1800.0, help="seconds after which an ended job is a 404")
    parser.add_argument("--ledger", type=Path, help="a file that gets one line per submission and end")
    parser.add_argument("--work", action="store_true", help="really render, with ffmpeg on this machine")
    return parser.parse_args()


if __name__ == "__main__":
    main()
