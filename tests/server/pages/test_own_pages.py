from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from retoma import App
from retoma.server import Page, PageContext
from tests.server.api import film
from tests.server.pages.catalogues import write_catalogue
from tests.server.pages.visitor import HASH, OpenPages, token_of

TEMPLATE = """{% extends "base.html" %}{% block title %}x{% endblock %}{% block main %}
<form method="post"><input type="hidden" name="csrf" value="{{ context.csrf_token }}"></form>
<p>{{ given }}</p>{% endblock %}"""


async def show(visit: PageContext) -> Response:
    return visit.render("shelf.html", given=visit.query.get("given", ""))


async def submit(visit: PageContext) -> Response:
    await visit.client.start("film", {"topic": visit.fields["topic"]})
    return visit.redirect("/shelf")


def make_app(folder: Path) -> App:
    (folder / "shelf.html").write_text(TEMPLATE)
    pages = [Page("/shelf", show, submit, nav="Shelf")]
    locale = write_catalogue(folder / "locale", {"Shelf": "Estante"})
    return App("films", pipelines=[film], pages=pages, templates=folder, locale=locale)


async def test_an_application_brings_its_own_pages(open_pages: OpenPages, tmp_path: Path) -> None:
    async with open_pages(application=make_app(tmp_path)) as visitor:
        assert '<a href="/shelf">Estante</a>' in (await visitor.get("/", Accept_Language="pt")).text
        shown = await visitor.get("/shelf?given=<b>")
        assert "<p>&lt;b&gt;</p>" in shown.text
        assert (await visitor.post("/shelf", {"topic": "tea"})).status_code == 403
        assert (await visitor.post("/shelf", {"topic": "tea", "csrf": token_of(shown)})).status_code == 303
        assert len(await visitor.client.runs.list()) == 1


async def test_application_pages_need_the_login_too(open_pages: OpenPages, tmp_path: Path) -> None:
    async with open_pages(application=make_app(tmp_path), development=False, admin_password_hash=HASH) as visitor:
        assert (await visitor.get("/shelf")).status_code == 303
        await visitor.log_in()
        assert (await visitor.get("/shelf")).status_code == 200


async def test_an_application_brings_its_own_scripts_and_nothing_else(open_pages: OpenPages, tmp_path: Path) -> None:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "shelf.js").write_text("export const shelf = 1;")
    (folder / "secret.toml").write_text("key = 1")
    application = App("films", pipelines=[film], static=folder)
    async with open_pages(application=application, development=False, admin_password_hash=HASH) as visitor:
        found = await visitor.get("/static/apps/films/shelf.js")
        assert found.text == "export const shelf = 1;"
        assert found.headers["content-type"] == "text/javascript; charset=utf-8"
        assert "default-src 'none'" in found.headers["content-security-policy"]
        same = await visitor.get("/static/apps/films/shelf.js", If_None_Match=found.headers["etag"])
        assert same.status_code == 304
        for name in ("secret.toml", "retoma.css", "..%2Fsecret.toml", "nothing.js"):
            assert (await visitor.get(f"/static/apps/films/{name}")).status_code == 404, name
