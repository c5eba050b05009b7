"""The page of a run that has child runs, and the pages of its children."""

from __future__ import annotations

import re

import pytest

from retoma.server.pages import child_runs
from tests.engine.builders import run_next
from tests.server.pages import families
from tests.server.pages.families import start_family
from tests.server.pages.test_pages import EVERYTHING, Elements
from tests.server.pages.visitor import OpenPages, Visitor, visible_text


async def get_section(visitor: Visitor, address: str) -> str:
    """Return the HTML of the child runs on the page of a run."""
    page = (await visitor.get(address)).text
    found = re.search(
        r'<div data-live id="children">(.*?)</section></div>|<div data-live id="children">(</div>)', page, re.DOTALL
    )
    assert found is not None
    return found[1] or ""


async def test_a_parent_shows_its_children_by_state_and_the_urgent_ones_first(open_pages: OpenPages) -> None:
    async with open_pages(application=families.app) as visitor:
        run = await start_family(visitor.api.sandbox, "tea", "bad milk", "unsure rum", "cocoa")
        section = await get_section(visitor, f"/runs/{run}")
        names = re.findall(r'<bdi class="wrapany">(.*?)</bdi>', section)
        assert names[:2] == ["About bad milk", "About unsure rum"]
        assert sorted(names[2:]) == ["About cocoa", "About tea"]
        counts = re.findall(rf'href="/runs\?parent={run}&amp;state=(\w+)">.*?<b>(\d+)</b>', section, re.DOTALL)
        assert counts == [("failed", "1"), ("needs_review", "1"), ("completed", "2")]
        listed = (await visitor.get(f"/runs?parent={run}&state=completed")).text
        assert sorted(re.findall(r"About (\w+)", listed)) == ["cocoa", "tea"]


async def test_a_run_without_children_shows_nothing_about_them(open_pages: OpenPages) -> None:
    async with open_pages(application=families.app) as visitor:
        run = (await visitor.api.sandbox.run(families.article, {"topic": "tea"})).id
        page = await visitor.get(f"/runs/{run}")
        assert '<div data-live id="children"></div>' in page.text
        assert "child" not in visible_text(page).lower()


async def test_a_child_links_to_its_parent_in_the_visitors_language(open_pages: OpenPages) -> None:
    async with open_pages(application=families.app) as visitor:
        run = await start_family(visitor.api.sandbox, "tea")
        (child,) = await visitor.client.runs.list(parent=run)
        page = await visitor.get(f"/runs/{child.id}", Accept_Language="pt-BR")
        assert re.search(rf'Execução filha de</dt><dd><a class="link" href="/runs/{run}">.*?Spring issue', page.text)
        listed = await visitor.get(f"/runs?parent={run}", Accept_Language="pt-BR")
        assert re.search(r"Execuções\s+/\s+Spring issue.*Execuções filhas", visible_text(listed), re.DOTALL)


async def test_only_the_first_children_are_listed_and_the_rest_counted(
    open_pages: OpenPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_runs, "MAX_CHILDREN", 2)
    async with open_pages(application=families.app) as visitor:
        run = await start_family(visitor.api.sandbox, "tea", "rum", "bad milk")
        section = await get_section(visitor, f"/runs/{run}")
        assert section.count('<td class="lead">') == 2
        assert "About bad milk" in section
        assert f'<a class="link" href="/runs?parent={run}">and 1 more</a>' in section


async def test_the_charges_of_a_run_include_its_children(open_pages: OpenPages) -> None:
    async with open_pages(application=families.app) as visitor:
        run = await start_family(visitor.api.sandbox, "tea", "rum")
        page = visible_text(await visitor.get(f"/runs/{run}"))
        assert "including failed attempts and child runs" in page
        assert re.search(r"US\$ 0\.02", page)


async def test_a_job_that_waits_for_its_child_says_so(open_pages: OpenPages) -> None:
    async with open_pages(application=families.app) as visitor, visitor.api.sandbox.manual_worker() as worker:
        run = (await visitor.client.start(families.batch, {"topics": ["tea"]})).id
        await run_next(worker, "topics")
        await run_next(worker, "written:tea")
        (child,) = await visitor.client.runs.list(parent=run)
        page = await visitor.get(f"/runs/{run}?step=written")
        assert f"written (tea): waiting for its child run {child.id}" in re.sub(r"\s+", " ", visible_text(page))
        assert f'<a class="link" href="/runs/{child.id}"><code>{child.id}</code></a>' in page.text
        assert "External work" not in page.text
        assert page.text.count("Waiting for child run") == 2, "of the job, and of the jobs of its step"


async def test_hostile_titles_of_relatives_are_text(open_pages: OpenPages) -> None:
    async with open_pages(application=families.app) as visitor:
        run = (
            await visitor.api.sandbox.run(families.batch, {"name": EVERYTHING[:100], "topics": [EVERYTHING[:60]]})
        ).id
        (child,) = await visitor.client.runs.list(parent=run)
        for address in (f"/runs/{run}", f"/runs/{child.id}", f"/runs?parent={run}"):
            page = (await visitor.get(address)).text
            elements = Elements()
            elements.feed(page)
            assert "About &lt;script&gt;" in page or "&lt;script&gt;" in page
            assert "img" not in elements.tags
            assert not [name for name, _ in elements.attributes if name.startswith("on")]
