from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.server import streams
from retoma.server.routes import live as live_routes
from retoma.server.streams import Streams
from retoma.settings import Settings
from tests.server.conftest import OpenApi
from tests.server.own_network import OwnNetwork, open_own_network
from tests.server.test_live import connect
from tests.wait_timeout import WAIT_TIMEOUT


async def test_a_disconnected_stream_frees_its_slot(open_api: OpenApi) -> None:
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


@pytest.fixture
def network() -> Iterator[OwnNetwork]:
    try:
        opened = open_own_network()
    except OSError as error:
        pytest.skip(f"needs the right to open a network of its own, which only root has: {error}")
    with opened.server, opened.client:
        yield opened


async def test_a_client_that_vanished_without_a_close_frees_its_slot(
    open_api: OpenApi, network: OwnNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_routes, "ACKNOWLEDGE_SECONDS", 0.5)
    async with open_api() as api:
        live: Streams = api.server.state.live
        async with run_server(api.server, network.server, Settings()):
            await request_stream(network, api.key or "")
            assert live.count == 1
            network.switch_off()
            async with asyncio.timeout(30):
                while live.count:
                    await live.send_pings(live.list_streams())
                    await asyncio.sleep(1)


async def request_stream(network: OwnNetwork, key: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(network.client, network.server.getsockname())
    await loop.sock_sendall(
        network.client, f"GET /api/v1/live HTTP/1.1\r\nHost: h\r\nX-API-Key: {key}\r\n\r\n".encode()
    )
    assert (await loop.sock_recv(network.client, 4096)).startswith(b"HTTP/1.1 200")


def test_a_vanished_client_is_noticed_within_one_keep_alive_period() -> None:
    """A ping, the time to acknowledge it, and the next ping, which finds the connection closed."""
    assert live_routes.ACKNOWLEDGE_SECONDS < streams.SECONDS_BETWEEN_PINGS
    assert 2 * streams.SECONDS_BETWEEN_PINGS <= 30
