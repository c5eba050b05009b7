"""A process that sends, for the tests that kill one: `python -P sender.py CHANNEL SESSION FILE`.

CHANNEL is `youtube`, set by the environment, or a folder. With DIE_AT set it kills itself once so much was taken.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from retoma_apps.providers.youtube import Channel, LocalChannel, YouTube


def die_at(done: int, _: int) -> None:
    if done >= int(os.environ.get("DIE_AT", "1000000000")):
        os.kill(os.getpid(), signal.SIGKILL)


async def main(where: str, session: str, path: str) -> None:
    channel: Channel = YouTube() if where == "youtube" else LocalChannel(Path(where), part_bytes=500_000)
    print((await channel.send(session, Path(path), die_at)).video_id)
    await channel.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
