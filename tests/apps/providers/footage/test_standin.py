"""The stand-in itself: its checks, counts and faults."""

from __future__ import annotations

from typing import Any

from retoma.outgoing import LOOPBACK, Guard, HttpClient, Response
from standins.footage import StandIn
from tests.apps.providers.footage.conftest import KEY


async def call(url: str, method: str, path: str, body: Any = None, key: str = KEY) -> Response:
    async with HttpClient(Guard.from_hosts(LOOPBACK)) as outgoing:
        return await outgoing.request(method, f"{url}/{path}", json=body, headers={"authorization": key})


async def test_requests_without_the_bare_key_are_refused(base_url: str) -> None:
    assert (await call(base_url, "GET", "v1/videos/search?query=mar", key=f"Bearer {KEY}")).status == 401
    assert (await call(base_url, "GET", "v1/videos/search?query=mar")).status == 200


async def test_the_quota_is_reported_on_good_answers_and_not_on_429(standin: StandIn, base_url: str) -> None:
    good = await call(base_url, "GET", "v1/videos/search?query=mar")
    assert good.headers["x-ratelimit-remaining"] == "19999"
    standin.faults.rate_limited = 1
    bad = await call(base_url, "GET", "v1/videos/search?query=mar")
    assert (bad.status, "x-ratelimit-remaining" in bad.headers) == (429, False)


async def test_faults_can_be_configured_over_http(standin: StandIn, base_url: str) -> None:
    assert (await call(base_url, "PUT", "standin/faults", {"broken": 1})).json()["broken"] == 1
    assert (await call(base_url, "PUT", "standin/faults", {"no_such": 1})).status == 400
    assert (await call(base_url, "GET", "v1/videos/search?query=mar")).status == 500
    body = (await call(base_url, "GET", "standin/tally")).json()
    assert body == {"requests": 0, "files": 0, "struck": {"broken": 1}}
    assert standin.faults.broken == 0
