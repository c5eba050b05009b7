from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from retoma.states import RunState
from retoma.store.database import Database
from tests.apps.videos.pages.test_reviews import text_of
from tests.apps.videos.pages.video_pages import VideoPages, running_video_pages
from tests.apps.videos.small_services import AnyTopicWriter
from tests.conftest import empty_database

ORDER = {
    "channel-0": "financas",
    "topic-0": "Como investir\r\n\r\nComo poupar ",
    "channel-1": "ciencia",
    "topic-1": "",
    "channel-2": "jogos",
    "topic-2": "Xadrez",
    "language": "",
    "start_at": "",
    "scheduled_for": "",
    "key": "1",
}


@pytest.fixture
async def video_pages(database: Database, tmp_path: Path) -> AsyncIterator[VideoPages]:
    await empty_database(database)
    async with running_video_pages(database, tmp_path, writer=AnyTopicWriter()) as made:
        yield made


async def order(video_pages: VideoPages, changes: dict[str, str] | None = None) -> Any:
    return await video_pages.send("/videos/batches", ORDER | (changes or {}))


async def test_the_form_has_a_row_for_each_channel_and_one_for_a_new_one(video_pages: VideoPages) -> None:
    await video_pages.client.tenants.set_profile("ciencia", {})
    await video_pages.client.tenants.set_profile("jogos", {})
    shown = await video_pages.read("/videos/batches", language="pt")
    for number, name in enumerate(("ciencia", "jogos", "")):
        assert f'value="{name}" maxlength="100" id="f-channel-{number}"' in shown
    assert "Peça o primeiro lote" in shown
    assert "Um tema por linha." in shown


async def test_each_topic_becomes_a_video_however_often_the_form_is_sent(video_pages: VideoPages) -> None:
    first, again = [await order(video_pages) for _ in range(2)]
    assert (first.status_code, again.headers["location"]) == (303, first.headers["location"])
    await video_pages.work()
    videos = await video_pages.client.runs.list(pipeline="longform")
    assert {(video.tenant, video.input["topic"]) for video in videos} == {
        ("financas", "Como investir"),
        ("financas", "Como poupar"),
        ("jogos", "Xadrez"),
    }
    shown = text_of(await video_pages.read(first.headers["location"], language="pt"))
    assert "Vídeos pedidos." in shown
    assert "financas, jogos" in shown
    assert "Vídeos 3" in shown
    assert shown.count("Revisar") >= len(videos)
    name = f"financas, jogos {first.headers['location'].rpartition('/')[2][:13]}"
    assert f"{name} Aguardando revisão 3 0 0" in text_of(await video_pages.read("/videos/batches", language="pt"))


async def test_a_batch_shows_videos_that_have_not_started(video_pages: VideoPages) -> None:
    sent = await order(video_pages, {"start_at": "2031-02-04T12:00"})
    shown = text_of(await video_pages.read(sent.headers["location"]))
    assert "Como poupar financas Pending" in shown
    assert "Start at" in shown


async def test_wrong_rows_of_a_batch_are_marked_and_keep_their_text(video_pages: VideoPages) -> None:
    sent = await order(video_pages, {"topic-1": "ok topic\nno", "channel-2": "a/b", "scheduled_for": "soon"})
    assert sent.status_code == 422
    for name in ("topic-1", "channel-2", "scheduled_for"):
        assert f'id="a-{name}" role="alert"' in sent.text
    assert "ok topic\nno" in sent.text
    for topics, message in (("", "at least 1"), ("Xadrez\nXadrez", "same video")):
        sent = await order(video_pages, {"topic-0": "", "topic-2": topics})
        assert (sent.status_code, message in sent.text) == (422, True)
    late = await order(video_pages, {"scheduled_for": "2020-02-04T12:00"})
    assert (late.status_code, "This time has passed." in late.text) == (422, True)
    assert await video_pages.client.runs.list() == []


async def test_a_batch_is_cancelled_from_its_page_with_its_videos(video_pages: VideoPages) -> None:
    address = (await order(video_pages)).headers["location"].partition("?")[0]
    await video_pages.work()
    assert "Cancelar lote" in await video_pages.read(address, language="pt")
    sent = await video_pages.send(f"{address}/cancel", {})
    assert sent.status_code == 303
    assert "The batch is being cancelled" in await video_pages.read(sent.headers["location"])
    async with video_pages.visitor.api.sandbox.manual_worker() as worker:
        await worker.poll_external_work()  # a worker does so within a second
    await video_pages.work()
    assert {run.state for run in await video_pages.client.runs.list()} == {RunState.CANCELLED}
    assert "Cancelar lote" not in await video_pages.read(address, language="pt")


async def test_a_long_batch_has_pages(video_pages: VideoPages) -> None:
    sent = await order(video_pages, {"topic-0": "\n".join(f"Tema {number}" for number in range(1, 22))})
    address = sent.headers["location"].partition("?")[0]
    first, second = [text_of(await video_pages.read(f"{address}{query}")) for query in ("", "?after=20")]
    assert ("Tema 20" in first, "Tema 21" in first, "More videos" in first) == (True, False, True)
    assert ("Tema 20" in second, "Tema 21" in second, "Xadrez" in second) == (False, True, True)


async def test_a_topic_cannot_put_markup_on_the_page_of_a_batch(video_pages: VideoPages) -> None:
    sent = await order(video_pages, {"topic-0": "<script>alert(1)</script>"})
    assert "<script>alert(1)" not in await video_pages.read(sent.headers["location"])


async def test_a_video_is_no_batch(video_pages: VideoPages) -> None:
    await video_pages.read(f"/videos/batches/{await video_pages.begin()}", status=404)
