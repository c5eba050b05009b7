from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import Response

from retoma import App
from retoma.server import Page, PageContext, Problem
from retoma.server.pages.multipart import parse_multipart
from tests.server.api import film
from tests.server.pages.catalogues import write_catalogue
from tests.server.pages.visitor import OpenPages, token_of

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
    pages = [Page("/shelf", show, submit, nav="Shelf", submit_scope="runs:write")]
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
    async with open_pages(application=make_app(tmp_path), development=False) as visitor:
        assert (await visitor.get("/shelf")).status_code == 303
        await visitor.log_in()
        assert (await visitor.get("/shelf")).status_code == 200


async def test_an_application_brings_its_own_scripts_and_nothing_else(open_pages: OpenPages, tmp_path: Path) -> None:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "shelf.js").write_text("export const shelf = 1;")
    (folder / "secret.toml").write_text("key = 1")
    application = App("films", pipelines=[film], static=folder)
    async with open_pages(application=application, development=False) as visitor:
        found = await visitor.get("/static/apps/films/shelf.js")
        assert found.text == "export const shelf = 1;"
        assert found.headers["content-type"] == "text/javascript; charset=utf-8"
        assert "default-src 'none'" in found.headers["content-security-policy"]
        same = await visitor.get("/static/apps/films/shelf.js", If_None_Match=found.headers["etag"])
        assert same.status_code == 304
        for name in ("secret.toml", "retoma.css", "..%2Fsecret.toml", "nothing.js"):
            assert (await visitor.get(f"/static/apps/films/{name}")).status_code == 404, name


MAX_UPLOAD = 3 * 1024 * 1024


async def receive(context: PageContext) -> Response:
    poster = context.files.get("poster")
    shown = "no file" if poster is None else f"{poster.name}: {len(poster.content)}, {context.fields['title']}"
    return context.render("shelf.html", given=shown)


def make_upload_app(folder: Path) -> App:
    (folder / "shelf.html").write_text(TEMPLATE)
    pages = [Page("/posters", receive, receive, max_upload=MAX_UPLOAD, submit_scope="runs:write")]
    return App("films", pipelines=[film], pages=pages, templates=folder)


async def test_a_form_of_an_application_can_have_files(open_pages: OpenPages, tmp_path: Path) -> None:
    async with open_pages(application=make_upload_app(tmp_path)) as visitor:
        fields = {"csrf": token_of(await visitor.get("/posters")), "title": "Chá\r\n--x"}
        content = bytes(range(256)) * 9_000 + b"\r\n--\r\n"  # more than a form without files may have
        shown = await visitor.upload("/posters", fields, {"poster": ('<b> "chá".png', content)})
        assert f"<p>&lt;b&gt; &#34;chá&#34;.png: {len(content)}, Chá\r\n--x</p>" in shown.text
        assert "no file" in (await visitor.upload("/posters", fields, {"poster": ("", b"")})).text
        assert "no file" in (await visitor.post("/posters", fields)).text


async def test_a_file_needs_the_token_and_has_a_size_limit(open_pages: OpenPages, tmp_path: Path) -> None:
    async with open_pages(application=make_upload_app(tmp_path)) as visitor:
        fields = {"csrf": token_of(await visitor.get("/posters")), "title": "x"}
        poster = {"poster": ("a.png", b"x")}
        assert (await visitor.upload("/posters", {"title": "x"}, poster)).status_code == 403
        large = {"poster": ("a.png", b"x" * 2 * MAX_UPLOAD)}
        assert (await visitor.upload("/posters", fields, large)).status_code == 413


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("multipart/form-data", b"--x--", 400),
        ("multipart/form-data; boundary=x", b"", 400),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1', 400),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n\r\n" * 10_002 + b"--x--", 413),
    ],
)
def test_a_form_that_is_no_form_is_refused(content_type: str, body: bytes, status: int) -> None:
    with pytest.raises(Problem) as caught:
        parse_multipart(content_type, body, 10_000)
    assert caught.value.status_code == status
