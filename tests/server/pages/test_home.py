"""The home page and the shared lists of a server with several applications."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.responses import Response

from retoma import App, GiveUp, Pipeline, Settings
from retoma.errors import DefinitionError
from retoma.server import Page, PageContext, make_server
from retoma.server.pages import overview
from tests.server.pages.catalogues import write_catalogue
from tests.server.pages.visitor import OpenPages, Visitor, visible_text

TEMPLATE = """{% extends "base.html" %}{% block title %}x{% endblock %}{% block head %}
<link rel="stylesheet" href="{{ static_url("own.css") }}">{% endblock %}{% block main %}
<p>{{ _("Shelf") }} of {{ context.client.app.name }}, {{ context.get_step_label("draft") }}</p>{% endblock %}"""


async def show(context: PageContext) -> Response:
    return context.render("own.html")


def a_pipeline(name: str) -> Pipeline:
    pipeline = Pipeline(name)

    @pipeline.step
    def draft() -> str:
        if name == "bad":
            raise GiveUp("no")
        return name

    if name != "bad":
        pipeline.review("approved", of=draft)
    return pipeline


def an_app(folder: Path, name: str, shelf: str, *pipelines: str) -> App:
    own = folder / name
    own.mkdir()
    (own / "own.html").write_text(TEMPLATE)
    (own / "own.css").write_text(f"/* {name} */")
    (own / "own_review.html").write_text('{{ _("Shelf") }} under review')
    translations = {"Shelf": shelf, name.title(): f"{shelf}s", "All of them.": f"Todos em {shelf}.", "Approval": shelf}
    return App(
        name,
        title=name.title(),
        description="All of them.",
        pipelines=[a_pipeline(each) for each in pipelines],
        pages=[Page(f"/{name}", show, nav="Shelf")],
        templates=own,
        static=own,
        review_templates={"approved": "own_review.html"},
        labels={"approved": "Approval", "draft": "Shelf"},
        locale=write_catalogue(own / "locale", translations),
    )


@pytest.fixture
def both(tmp_path: Path) -> App:
    films, books = an_app(tmp_path, "films", "Rolo", "film", "bad"), an_app(tmp_path, "books", "Estante", "book")
    return App("both", title="The two", includes=[films, books])


async def test_each_application_has_a_card_with_links_to_what_it_counts(open_pages: OpenPages, both: App) -> None:
    async with open_pages(application=both) as visitor:
        await visitor.api.sandbox.clock.set(datetime.now(UTC))  # the ids of runs hold the time of this machine
        for pipeline in ("film", "book", "book", "bad"):
            await visitor.client.start(pipeline)
        await visitor.api.sandbox.work()
        await visitor.client.start("book")
        page = await visitor.get("/", Accept_Language="pt")
        cards = re.findall(r'<article class="panel app">.*?</article>', page.text, re.DOTALL)
        read = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", card)).strip() for card in cards]
        assert read == [
            "Rolos Abrir Todos em Rolo. 1 Aguardando pessoas 0 Em execução 1 Falhas em 24 h",
            "Estantes Abrir Todos em Estante. 2 Aguardando pessoas 1 Em execução 0 Falhas em 24 h",
        ]
        assert [re.findall(r'href="([^"]+)"', card)[0] for card in cards] == ["/films", "/books"]
        links = re.findall(r'href="([^"#]+)"', cards[0])[2:]
        assert [link.replace("&amp;", "&") for link in links] == [
            "/reviews?application=films",
            "/runs?application=films&state=running",
            f"/runs?application=films&state=failed&since={await yesterday(visitor)}",
        ]
        assert "<title>Início · The two</title>" in page.text


async def test_counts_of_failed_runs_are_marked_if_there_are_more(
    open_pages: OpenPages, both: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MAX_FAILED_RUNS", 2)
    async with open_pages(application=both) as visitor:
        await visitor.api.sandbox.clock.set(datetime.now(UTC))  # the ids of runs hold the time of this machine
        for shown in ("1", "2+"):
            await visitor.client.start("bad")
            await visitor.api.sandbox.work()
            page = (await visitor.get("/")).text.replace("&amp;", "&")
            for query in ("application=films&", ""):
                link = re.escape(f"/runs?{query}state=failed&since={await yesterday(visitor)}")
                (count,) = re.findall(rf'<a[^>]* href="{link}">.*?>([\d+]+)<', page)
                assert count == shown


async def yesterday(visitor: Visitor) -> str:
    return f"{await visitor.client.now() - timedelta(days=1):%Y-%m-%d}"


async def test_lists_show_one_application_or_all(open_pages: OpenPages, both: App) -> None:
    async with open_pages(application=both) as visitor:
        for pipeline in ("film", "book", "bad"):
            await visitor.client.start(pipeline)
        await visitor.api.sandbox.work()

        async def list_found(path: str) -> list[str]:
            rows = re.findall(r'data-l="Pipeline">(\w+)<', (await visitor.get(path)).text)
            return sorted(rows)

        assert await list_found("/runs") == ["bad", "book", "film"]
        assert await list_found("/runs?application=films") == ["bad", "film"]
        assert await list_found("/runs?application=films&state=failed") == ["bad"]
        assert await list_found("/runs?application=films&pipeline=book") == ["book"]
        inbox = visible_text(await visitor.get("/reviews?application=books"))
        assert "Books · book" in inbox
        assert "Films · film" not in inbox


async def test_labels_and_pages_are_in_the_words_of_their_own_application(open_pages: OpenPages, both: App) -> None:
    async with open_pages(application=both) as visitor:
        for pipeline in ("film", "book"):
            await visitor.client.start(pipeline)
        await visitor.api.sandbox.work()
        inbox = await visitor.get("/reviews", Accept_Language="pt")
        assert re.findall(r'<h2 id="kind-\d+"><a [^>]*>(\w+)</a>', inbox.text) == [
            "Rolo",
            "Estante",
        ]  # order of the work
        for name, word in (("films", "Rolo"), ("books", "Estante")):
            own = await visitor.get(f"/{name}", Accept_Language="pt")
            assert f"<p>{word} of {name}, {word}</p>" in own.text
            assert f'href="/static/apps/{name}/own.css"' in own.text
            assert (await visitor.get(f"/static/apps/{name}/own.css")).text == f"/* {name} */"
            assert re.findall(r'<a href="/(?:films|books)"[^>]*>(\w+)</a>', own.text) == ["Rolo", "Estante"]
            (review,) = await visitor.client.reviews.list(pipeline=name.rstrip("s"))
            page = await visitor.get(f"/reviews/{review.id}", Accept_Language="pt")
            assert f"{word} under review" in page.text
            run = await visitor.get(f"/runs/{review.run}", Accept_Language="pt")
            assert f">{word}</text>" in run.text
        assert (await visitor.get("/static/apps/plays/own.css")).status_code == 404


async def test_an_application_alone_has_its_card_and_no_filter(open_pages: OpenPages, tmp_path: Path) -> None:
    async with open_pages(application=an_app(tmp_path, "films", "Rolo", "film")) as visitor:
        assert (await visitor.get("/")).text.count('<article class="panel app">') == 1
        assert 'name="application"' not in (await visitor.get("/runs")).text


async def test_the_same_page_twice_names_both_applications(open_pages: OpenPages, both: App) -> None:
    again = App("again", pipelines=[a_pipeline("again")], pages=[Page("/films", show)])
    async with open_pages() as visitor:
        with pytest.raises(DefinitionError, match="'films' and 'again' both have a page /films; change one"):
            make_server(App("all", includes=[both, again]), visitor.client, Settings())
