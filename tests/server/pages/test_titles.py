"""Titles of runs on the pages, next to their ids."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from tests.server import titled
from tests.server.pages.visitor import OpenPages, Visitor, visible_text


@pytest.fixture
async def visitor(open_pages: OpenPages) -> AsyncIterator[Visitor]:
    async with open_pages(application=titled.app) as made:
        yield made


async def test_the_list_of_runs_shows_titles_beside_ids(visitor: Visitor) -> None:
    run = (await visitor.client.start("news", {"topic": "tea"})).id
    assert names_run(await show(visitor, "/runs"), run, "News: tea")


async def test_a_run_is_headed_by_its_title(visitor: Visitor) -> None:
    run = (await visitor.client.start("news", {"topic": "tea"})).id
    page = await show(visitor, f"/runs/{run}")
    assert '<h1 class="wrapany"><bdi>News: tea</bdi></h1>' in page
    assert f">{run}</code>" in page
    assert f"<title>News: tea {str(run)[:8]}" in page


async def test_a_run_without_a_title_is_headed_by_its_input_or_its_pipeline(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = (await visitor.client.start("film", {"topic": "coffee"})).id
        assert '<h1 class="wrapany"><bdi>coffee</bdi></h1>' in await show(visitor, f"/runs/{run}")
        run = (await visitor.client.start("film", {"topic": " "})).id
        assert '<h1 class="wrapany"><bdi>film</bdi></h1>' in await show(visitor, f"/runs/{run}")
        assert names_run(await show(visitor, "/runs"), run, "film")


async def test_reviews_are_headed_by_the_title_of_their_run(visitor: Visitor) -> None:
    run = await titled.start_until_review(visitor.api.sandbox)
    (review,) = await visitor.client.reviews.list()
    assert '<span class="t wrapany"><bdi>News: tea</bdi></span>' in await show(visitor, "/reviews")
    page = await show(visitor, f"/reviews/{review.id}")
    assert '<h2 class="title wrapany" id="review-title"><bdi>News: tea</bdi></h2>' in page
    assert names_run(page, run, "News: tea")


async def test_stuck_runs_are_shown_with_their_titles(visitor: Visitor) -> None:
    run = await titled.start_until_stuck(visitor.api.sandbox)
    assert names_run(await show(visitor, "/stuck"), run, "News: tea")
    assert f"News: tea · {str(run)[:13]} of default" in visible_text(await visitor.get("/"))


async def test_the_overview_names_failed_runs_by_their_titles(visitor: Visitor) -> None:
    await visitor.api.sandbox.clock.set(datetime.now(UTC))
    run = await titled.start_until_review(visitor.api.sandbox, "bad")
    assert f"News: bad · {str(run)[:13]} of default" in visible_text(await visitor.get("/"))


async def test_deliveries_name_their_runs_by_title(visitor: Visitor) -> None:
    run = await titled.start_with_dead_delivery(visitor.api.sandbox)
    (delivery,) = await visitor.client.webhooks.list_deliveries()
    for path in ("/deliveries", f"/deliveries/{delivery.id}"):
        page = await show(visitor, path)
        assert names_run(page, run, "News: tea")
        assert f'href="/runs/{run}"' in page


async def test_runs_are_found_by_id_and_by_a_part_of_their_title(visitor: Visitor) -> None:
    green, black = [(await visitor.client.start("news", {"topic": topic})).id for topic in ("Green tea", "Black tea")]
    assert await find(visitor, "TEA") == [black, green]
    assert await find(visitor, "green") == [green]
    assert await find(visitor, str(black)) == [black]
    assert await find(visitor, "%") == []


async def test_a_hostile_title_is_text_on_every_page(visitor: Visitor) -> None:
    sandbox = visitor.api.sandbox
    await sandbox.clock.set(datetime.now(UTC))
    run = await titled.start_until_review(sandbox, titled.HOSTILE)
    await titled.start_with_dead_delivery(sandbox, titled.HOSTILE)
    await titled.start_until_stuck(sandbox, titled.HOSTILE)
    (review, *_) = await visitor.client.reviews.list()
    (delivery, *_) = await visitor.client.webhooks.list_deliveries()
    title = (await visitor.client.runs.get(run)).title
    assert title is not None
    paths = ("/", "/runs", f"/runs/{run}", "/reviews", f"/reviews/{review.id}", "/stuck", "/deliveries")
    for path in (*paths, f"/deliveries/{delivery.id}"):
        page = await show(visitor, path)
        assert html.escape(title).replace("&quot;", "&#34;") in page, path
        assert "<b>Bold" not in page, path


async def show(visitor: Visitor, path: str) -> str:
    answer = await visitor.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


async def find(visitor: Visitor, text: str) -> list[UUID]:
    answer = await visitor.api._http.get("/runs", params={"q": text}, headers=visitor._headers({}))
    return [UUID(run) for run in re.findall(r'<td class="lead"><a class="link" href="/runs/([0-9a-f-]+)"', answer.text)]


def names_run(page: str, run: UUID, title: str) -> bool:
    return f'<bdi class="wrapany">{title}</bdi> <code class="xs faint">{str(run)[:13]}</code>' in page
