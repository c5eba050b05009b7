"""`python -m retoma_apps.providers.youtube.standin --port 8903`: the stand-in as a process of its own."""

from __future__ import annotations

import argparse
import asyncio

from retoma_apps.providers.youtube.standin.server import StandIn


def main() -> None:
    options = _options()
    asyncio.run(_serve(StandIn(processing_seconds=options.processing), options.port))


async def _serve(standin: StandIn, port: int) -> None:
    async with standin.serving(port=port) as origin:
        for name, url in standin.addresses(origin).items():
            print(f"YOUTUBE_{name.upper()}={url}", flush=True)
        await asyncio.Event().wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m retoma_apps.providers.youtube.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=8903, help="0 takes any that is free")
    parser.add_argument("--processing", type=float, default=5.0, help="seconds until a video is processed")
    return parser.parse_args()


if __name__ == "__main__":
    main()
