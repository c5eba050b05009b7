"""A process that uploads, for the tests that kill one: `python -P sender.py CHANNEL SESSION FILE`.

CHANNEL is `youtube`, set by the environment, or a folder: there it kills itself after DIE_AT bytes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import BinaryIO

from retoma_apps.providers.youtube import Channel, LocalChannel
from retoma_apps.providers.youtube.youtube import YouTube


class KilledCopy(LocalChannel):
    def _add(self, part: bytes, copied: BinaryIO) -> None:
        super()._add(part, copied)
        if copied.tell() >= int(os.environ["DIE_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)


async def main(where: str, session: str, path: str) -> None:
    channel: Channel = YouTube() if where == "youtube" else KilledCopy(Path(where), chunk_bytes=500_000)
    print((await channel.send(session, Path(path))).video_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
