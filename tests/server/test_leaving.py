from __future__ import annotations

import asyncio

from retoma.cli.listening import address, bound, serving
from retoma.server.streams import Streams
from retoma.settings import Settings
from tests.patience import PATIENCE
from tests.server.conftest import OpenApi
from tests.server.test_live import connected


async def test_who_leaves_a_stream_takes_no_place_any_more(open_api: OpenApi) -> None:
    async with open_api() as api:
        settings = Settings(port=0)
        listening = bound(settings, "127.0.0.1")
        place = address(listening).removeprefix("http://").rsplit(":", 1)
        live: Streams = api.server.state.live
        async with serving(api.server, listening, settings):
            stays = await connected(place, api.key or "", buffer=2**16)
            leaves = await connected(place, api.key or "", buffer=2**16)
            assert live.count == 2
            leaves.close()
            async with asyncio.timeout(PATIENCE):
                while live.count == 2:  # noqa: ASYNC110  (the server's own loop notices it)
                    await asyncio.sleep(0.01)
            assert live.count == 1
            stays.close()
