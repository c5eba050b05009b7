from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from retoma.outgoing import Guard, HttpClient
from retoma_apps.providers.youtube.youtube import YouTube
from standins.youtube import StandIn
from tests.apps.providers.youtube.conftest import CONTENT, SIZE, Switch, make_video


async def test_the_stand_in_shows_what_it_received(
    standin: StandIn, switch: Switch, youtube: YouTube, film: Path
) -> None:
    await youtube.send(await youtube.begin(make_video(), SIZE), film)
    async with HttpClient(Guard().with_origin_of(switch.origin)) as outgoing:
        answer = await outgoing.request("GET", f"{switch.origin}/standin/videos")
    [shown] = answer.json()["videos"]
    assert (shown["size"], shown["sha256"]) == (SIZE, sha256(CONTENT).hexdigest())
    assert shown["snippet"]["title"] == "Renda fixa em 2026"


async def test_faults_are_configured_by_name(standin: StandIn, switch: Switch) -> None:
    async with HttpClient(Guard().with_origin_of(switch.origin)) as outgoing:
        faults = f"{switch.origin}/standin/faults"
        assert (await outgoing.request("PUT", faults, json={"partial": 2})).status == 200
        refused = await outgoing.request("PUT", faults, json={"partly": 2})
    assert standin.faults.partial == 2
    assert (refused.status, "'partly'" in refused.json()["error"]) == (400, True)


async def test_the_stand_in_rejects_what_youtube_rejects(standin: StandIn, switch: Switch, youtube: YouTube) -> None:
    session = await youtube.begin(make_video(), SIZE)
    headers = {"Authorization": f"Bearer {standin.tokens[-1]}"}
    spans = {"bytes 0-999/1311720": 1000, "bytes 262144-524287/1311720": 262_144, "bytes 0-262143/7": 262_144}
    async with HttpClient(Guard().with_origin_of(switch.origin)) as outgoing:
        for span, size in spans.items():
            answer = await outgoing.request(
                "PUT", session, headers={**headers, "Content-Range": span}, content=bytes(size)
            )
            assert answer.status == 400, span
    assert standin.misplaced == len(spans)
