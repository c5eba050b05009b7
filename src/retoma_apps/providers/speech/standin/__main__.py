"""`python -m retoma_apps.providers.speech.standin --port 8903`: the stand-in as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import os

from retoma_apps.providers.speech.standin.server import StandIn


def main() -> None:
    options = _options()
    standin = StandIn(key=os.environ.get("SPEECH_STANDIN_KEY"))
    standin.faults.latency = options.latency
    asyncio.run(_serve(standin, options.port))


async def _serve(standin: StandIn, port: int) -> None:
    async with standin.serving(port=port) as base_url:
        print(f"AZURE_SPEECH_BASE_URL={base_url}\nELEVENLABS_BASE_URL={base_url}", flush=True)
        await asyncio.Event().wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m retoma_apps.providers.speech.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=8903, help="0 takes any that is free")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each answer takes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
