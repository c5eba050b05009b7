"""Whatever a server answers as HTML has a content security policy."""

from __future__ import annotations

import re
from uuid import UUID

from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from starlette.responses import HTMLResponse, Response

from retoma import App
from retoma.server import Page, PageContext, public
from retoma.server.pages.registry import PAGES
from retoma.server.request_limits import PAGE_HEADERS
from tests.server.api import film
from tests.server.pages.visitor import OpenPages, token_of

NOTHING = str(UUID(int=7))


async def make_fragment(visit: PageContext) -> Response:
    return HTMLResponse("<p>as an application may answer</p>")


def make_application() -> App:
    """An application whose route and page return their own HTML."""
    router = APIRouter(dependencies=[public])

    @router.get("/raw/{name}")
    async def raw(name: str) -> Response:
        kinds = {"html": "text/html", "xhtml": "application/xhtml+xml", "svg": "image/svg+xml"}
        return Response(b"<p>as it is</p>", media_type=kinds[name])

    @router.get("/own/policy")
    async def own() -> Response:
        return HTMLResponse("<p>own</p>", headers={"content-security-policy": "default-src 'none'"})

    return App("films", pipelines=[film], routes=[router], pages=(Page("/fragment", make_fragment),))


def addresses(app: App, *routers: object) -> list[str]:
    """One address of every page and every route, with names that lead nowhere."""
    routes = [route.path or "" for router in routers for route in iter_route_contexts(router.routes)]  # type: ignore[attr-defined]
    paths = {page.path for page in (*PAGES, *app.pages)} | set(routes)
    return sorted(re.sub(r"\{[^}]*\}", NOTHING, path) for path in paths)


async def test_every_html_page_has_a_content_security_policy(open_pages: OpenPages) -> None:
    app = make_application()
    async with open_pages(application=app) as visitor:
        requested = [
            *sorted(set(addresses(app, visitor.api.server)) - {"/own/policy"}),
            "/raw/html",
            "/raw/xhtml",
            "/raw/svg",
            "/nowhere",
        ]
        shown = 0
        for path in requested:
            for accept in ("text/html", "application/json"):
                if path.endswith("/live"):
                    continue
                answer = await visitor.get(path, Accept=accept)
                media_type = answer.headers.get("content-type", "")
                if "html" in media_type or "svg" in media_type:
                    shown += 1
                    assert {name: answer.headers.get(name) for name in PAGE_HEADERS} == PAGE_HEADERS, path
        assert shown > len(PAGES)


async def test_a_policy_set_by_the_application_is_kept(open_pages: OpenPages) -> None:
    async with open_pages(application=make_application()) as visitor:
        answer = await visitor.get("/own/policy")
        assert answer.headers.get_list("content-security-policy") == ["default-src 'none'"]


async def test_pages_are_compressed_and_tokens_masked_anew(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {})
        plain = await visitor.get("/reviews", Accept_Encoding="identity")
        packed = await visitor.get("/reviews", Accept_Encoding="gzip")
        assert ("content-encoding" in plain.headers, packed.headers["content-encoding"]) == (False, "gzip")
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
        tokens = [token_of(plain), token_of(packed)]
        assert tokens[0] != tokens[1]
        for token in tokens:
            assert (await visitor.post("/reviews", {"csrf": token})).status_code == 303
        assert (await visitor.post("/reviews", {"csrf": tokens[0][:-2] + "zz"})).status_code == 403
        stylesheet = await visitor.get("/static/retoma.css", Accept_Encoding="gzip")
        again = await visitor.get(
            "/static/retoma.css", Accept_Encoding="gzip", If_None_Match=stylesheet.headers["etag"]
        )
        assert again.status_code == 304
