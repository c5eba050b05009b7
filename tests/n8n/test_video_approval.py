"""`video-approval.json` in a real n8n: a person orders a video and decides its checkpoints in forms of n8n."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from retoma import Settings
from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.store.database import Database
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.conftest import empty_database
from tests.n8n.instance import SECONDS, N8n, run_n8n

ORDER = {"topic": "Como investir em renda fixa <b>hoje</b>", "channel": "financas"}
FIELDS = ("Decisão", "Observações", "Capa", "Revisor")


@pytest.fixture(scope="module")
def n8n(tmp_path_factory: pytest.TempPathFactory) -> Iterator[N8n]:
    with run_n8n(tmp_path_factory.mktemp("n8n")) as made:
        yield made


@dataclass(frozen=True)
class Approval:
    """The workflow, published in n8n and subscribed to the reviews of a server."""

    video_app: FastVideoApp
    n8n: N8n
    workflow: str

    async def order(self) -> str:
        """Order a video by n8n, and return its id."""
        answer = await asyncio.to_thread(lambda: self.n8n.trigger("/webhook/video", json=ORDER))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def open_form(self) -> str:
        """Do all available work, let Retoma notify n8n of the review, and return the URL of the form."""
        await self.video_app.work()
        await self.video_app.api.sandbox.send_webhooks()
        execution = await self.wait_for(self.find_waiting)
        return f"{self.n8n.address}/form-waiting/{execution}"

    async def find_waiting(self) -> str | None:
        found = await asyncio.to_thread(self.n8n.executions, self.workflow)
        return next((str(one["id"]) for one in found if one["status"] == "waiting"), None)

    async def show_form(self, form: str) -> str:
        """Return the page of a form, once n8n has it."""

        async def shown() -> str | None:
            answer = await asyncio.to_thread(lambda: httpx2.get(form, timeout=60))
            return answer.text if answer.status_code == 200 and "<form" in answer.text else None

        return str(await self.wait_for(shown))

    async def send(self, form: str, **values: str) -> str:
        """Fill in a form and return the text that the person sees."""
        sent = {f"field-{place}": (None, values.get(name, "")) for place, name in enumerate(FIELDS)}
        answer = await asyncio.to_thread(lambda: httpx2.post(form, files=sent, timeout=60))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["formSubmittedText"])

    async def wait_for(self, condition: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(SECONDS):
            while not (found := await condition()):  # noqa: ASYNC110  (it happens in n8n)
                await asyncio.sleep(0.2)
        return found

    async def wait_for_end(self) -> None:
        """Wait until no form is open."""

        async def ended() -> bool:
            found = await asyncio.to_thread(self.n8n.executions, self.workflow)
            assert not [one for one in found if one["status"] in ("error", "crashed")]
            return all(one["status"] == "success" for one in found)

        await self.wait_for(ended)


@pytest.fixture
async def approval(
    database: Database, tmp_path: Path, n8n: N8n, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Approval]:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch) as house:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        async with run_server(house.api.server, listening, settings):
            key = await house.api.make_key("runs:read", "runs:write", "reviews:write")
            credential = await asyncio.to_thread(n8n.save_key, key)
            workflow = await asyncio.to_thread(n8n.publish, "video-approval", get_address(listening), credential)
            subscriber = await house.api.make_key("runs:read", "deliveries:write")
            subscription = {"url": f"{n8n.address}/webhook/revisao", "events": ["review.opened"]}
            made = await house.api.post("/api/v1/webhooks", json=subscription, key=subscriber)
            assert made.status_code == 201, made.text
            yield Approval(house, n8n, workflow)
            await asyncio.to_thread(n8n.call, "POST", f"/rest/workflows/{workflow}/deactivate", json={})


async def test_a_person_orders_and_decides_every_checkpoint_in_forms(approval: Approval) -> None:
    video = await approval.order()
    decisions = [
        ("script_review", {"Decisão": "Devolver", "Observações": "mais curto", "Revisor": "Ana"}),
        ("script_review", {"Decisão": "Aprovar"}),
        ("audio_review", {"Decisão": "Aprovar"}),
        ("broll_review", {"Decisão": "Aprovar"}),
        ("final_review", {"Decisão": "Aprovar", "Capa": "2"}),
    ]
    for checkpoint, value in decisions:
        form = await approval.open_form()
        waiting = (await approval.video_app.show(video))["checkpoint"]
        page = await approval.show_form(form)
        assert waiting["type"] == checkpoint
        assert checkpoint in page
        assert f"/reviews/{waiting['id']}" in page
        assert "<b>hoje" not in page
        for link in media_links(page):
            assert (await asyncio.to_thread(httpx2.get, link)).status_code == 200
        assert bool(media_links(page)) == (checkpoint != "script_review")
        assert await approval.send(form, **value) == "A decisão foi registrada."
        await approval.wait_for_end()
    await approval.video_app.work()
    shown = await approval.video_app.show(video)
    assert (shown["status"], shown["revision"]) == ("completed", 2)
    (delivery, *_) = await approval.video_app.client.webhooks.list_deliveries(limit=10)
    assert (str(delivery.state), delivery.status) == ("delivered", 200)


def media_links(page: str) -> list[str]:
    """Return the addresses of sounds, films and pictures that a form shows."""
    return [unescape(found) for found in re.findall(r'<(?:source|img) src="([^"]*signature=[^"]*)"', page)]


async def test_a_refused_decision_is_shown_and_can_be_made_again(approval: Approval) -> None:
    video = await approval.order()
    form = await approval.open_form()
    message = await approval.send(form, Decisão="Devolver", Observações="ponha um gato")
    assert message.startswith("O Retoma recusou a decisão: ")
    assert "is not supported" in message
    assert await approval.open_form() == form
    assert "is not supported" in await approval.show_form(form)
    assert (await approval.video_app.show(video))["revision"] == 1
    assert await approval.send(form, Decisão="Aprovar") == "A decisão foi registrada."
    await approval.wait_for_end()


async def test_the_second_reviewer_sees_that_it_was_decided(approval: Approval) -> None:
    video = await approval.order()
    form = await approval.open_form()
    checkpoint = await approval.video_app.checkpoint((await approval.video_app.show(video))["checkpoint"]["id"])
    await approval.video_app.approve(checkpoint)
    message = await approval.send(form, Decisão="Rejeitar", Observações="não")
    assert message.startswith("Nada foi registrado: ")
    await approval.wait_for_end()


async def test_an_event_that_names_no_open_checkpoint_opens_no_form(approval: Approval) -> None:
    forged = {"type": "review.opened", "data": {"review": {"id": "0199d5bf-11be-75bd-a0ef-d9c6878b405b"}}}
    answer = await asyncio.to_thread(lambda: approval.n8n.trigger("/webhook/revisao", json=forged))
    assert (answer.status_code, answer.json()) == (200, {"received": True})
    await approval.wait_for_end()


async def test_an_order_that_retoma_refuses_is_answered_with_its_reason(approval: Approval) -> None:
    answer = await asyncio.to_thread(lambda: approval.n8n.trigger("/webhook/video", json={"channel": "financas"}))
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")


async def test_an_order_that_is_sent_twice_with_a_key_creates_one_video(approval: Approval) -> None:
    sent = {"json": ORDER, "headers": {"Idempotency-Key": "order-1"}}
    answers = [await asyncio.to_thread(lambda: approval.n8n.trigger("/webhook/video", **sent)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert len(await approval.video_app.client.runs.list(limit=5)) == 1
