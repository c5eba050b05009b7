"""The stand-in itself: its checks, counts and faults."""

from __future__ import annotations

from typing import Any

from retoma.outgoing import LOOPBACK, Guard, HttpClient, Response
from standins.images import StandIn
from tests.apps.providers.images.conftest import KEY

ORDER = {"model": "m", "prompt": "mar", "size": "60x60"}


async def call(url: str, method: str, path: str, body: Any = None, key: str = KEY) -> Response:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        return await outgoing.request(method, f"{url}/{path}", json=body, headers={"authorization": f"Bearer {key}"})


async def test_requests_without_the_key_or_with_an_invalid_body_are_refused(base_url: str) -> None:
    assert (await call(base_url, "POST", "images/generations", ORDER, key="x")).status == 401
    assert (await call(base_url, "POST", "images/generations", {"prompt": "x", "odd": 1})).status == 400
    assert (await call(base_url, "POST", "images/generations", {})).status == 400
    assert (await call(base_url, "POST", "images/generations", ORDER)).status == 200


async def test_faults_can_be_configured_over_http(standin: StandIn, base_url: str) -> None:
    control = base_url.removesuffix("/v1") + "/standin"
    assert (await call(control, "PUT", "faults", {"broken": 1})).json()["broken"] == 1
    assert (await call(control, "PUT", "faults", {"no_such": 1})).status == 400
    assert (await call(base_url, "POST", "images/generations", ORDER)).status == 500
    assert (await call(control, "GET", "tally")).json() == {"requests": 0, "struck": {"broken": 1}}
    assert standin.faults.broken == 0
