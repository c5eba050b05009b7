"""Serve the stand-in for OpenAI-compatible pictures on this machine. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import asyncio
import os

from retoma_apps.providers.images.standin.server import StandIn


def main() -> None:
    asyncio.run(_serve(StandIn(key=os.environ.get("IMAGES_API_KEY")), _options().port))


async def _serve(standin: StandIn, port: int) -> None:
    async with standin.serving(port=port) as base_url:
        print(f"IMAGES_BASE_URL={base_url}", flush=True)
        await asyncio.Event().wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m retoma_apps.providers.images.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=8904, help="0 takes any that is free")
    return parser.parse_args()


if __name__ == "__main__":
    main()
