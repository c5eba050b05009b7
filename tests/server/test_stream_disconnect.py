from __future__ import annotations

import asyncio

from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server.streams import Streams
from retoma.settings import Settings
from tests.server.conftest import OpenApi
from tests.server.test_live import connect
from tests.wait_timeout import WAIT_TIMEOUT


async def test_who_leaves_a_stream_takes_no_place_any_more(open_api: OpenApi) -> None:
    async with open_api() as api:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        place = get_address(listening).removeprefix("http://").rsplit(":", 1)
        live: Streams = api.server.state.live
        async with run_server(api.server, listening, settings):
            stays = await connect(place, api.key or "", buffer=2**16)
            leaves = await connect(place, api.key or "", buffer=2**16)
            assert live.count == 2
            leaves.close()
            async with asyncio.timeout(WAIT_TIMEOUT):
                while live.count == 2:  # noqa: ASYNC110  (the server's own loop notices it)
                    await asyncio.sleep(0.01)
            assert live.count == 1
            stays.close()
