"""Calls that may still be going on at a provider, as the page of their run shows them."""

from __future__ import annotations

from typing import Any

from retoma import App, Context, Pipeline, Retry
from tests.server.pages.visitor import OpenPages, token_of, visible_text


def cancel_order(order: str) -> None: ...


def losing() -> App:
    pipeline = Pipeline("film", retry=Retry(0))

    def lose_answer() -> None:
        raise ConnectionError("the answer was lost")

    @pipeline.step
    async def order(*, ctx: Context) -> Any:
        await ctx.once("a book", lose_answer, cancel=cancel_order)

    return App("shop", pipelines=[pipeline])


async def test_an_orphan_is_shown_and_resolved_with_one_click(open_pages: OpenPages) -> None:
    async with open_pages(application=losing()) as visitor:
        run = (await visitor.client.start("film")).id
        await visitor.api.sandbox.work()
        page = await visitor.get(f"/runs/{run}")
        assert "May still be going on at a provider" in visible_text(page)
        assert "the job's call a book" in visible_text(page)
        fields = {"step": "order", "item": "", "revision": "1", "effect": "a book", "csrf": token_of(page)}
        answer = await visitor.post(f"/runs/{run}/resolve-orphan", fields | {"resolution": "cancelled_by_hand"})
        assert answer.status_code == 303
        (orphan,) = await visitor.client.runs.list_orphans(run)
        assert orphan.resolution == "cancelled_by_hand"
        page = await visitor.get(f"/runs/{run}")
        assert "Cancelled by hand" in visible_text(page)
        assert "resolve-orphan" not in page.text


async def test_runs_with_orphans_are_found_on_the_home_page_and_beside_stuck_runs(open_pages: OpenPages) -> None:
    async with open_pages(application=losing()) as visitor:
        assert "at a provider" not in visible_text(await visitor.get("/stuck"))
        run = (await visitor.client.start("film", tenant="cinema")).id
        await visitor.api.sandbox.work()
        for path in ("/", "/stuck"):
            page = await visitor.get(path)
            assert "may still be going on at a provider" in visible_text(page).lower()
            assert f'href="/runs/{run}"' in page.text
        assert "order · a book" in visible_text(page)
        await visitor.client.runs.resolve_orphan(run, "order", "a book", "nothing_found")
        for path in ("/", "/stuck"):
            assert "at a provider" not in visible_text(await visitor.get(path))
