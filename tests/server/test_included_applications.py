"""One server for several applications: all routes and metrics, each with the client of its own application."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import APIRouter
from prometheus_client.core import GaugeMetricFamily, Metric
from pydantic import BaseModel, create_model

from retoma import App, Context, File, Pipeline, Settings
from retoma.client import Client
from retoma.errors import DefinitionError
from retoma.files import FileSettings, create_file_store
from retoma.server import Principal, make_server, require_scope
from tests.server.conftest import OpenApi


class Reel(BaseModel):
    name: str


class Shelf(BaseModel):
    width: int


class FilmEvent(BaseModel):
    place: Reel


class BookEvent(BaseModel):
    place: Shelf


def a_router(path: str) -> APIRouter:
    router = APIRouter()

    @router.get(path)
    async def describe(by: Annotated[Principal, require_scope("runs:read")]) -> dict[str, Any]:
        app = by.client.app
        assert app is not None
        return {"name": app.name, "pipelines": list(app.pipelines), "host": app.resources["host"]}

    return router


def an_app(name: str, path: str | None = None, **options: Any) -> App:
    pipeline = Pipeline(name)

    @pipeline.step
    async def page(*, ctx: Context) -> File | None:
        return await ctx.save_file(name.encode(), name="page.txt") if "files" in options else None

    return App(
        name,
        pipelines=[pipeline],
        resources={"host": f"host of {name}"},
        routes=[a_router(path or f"/{name}")],
        **options,
    )


async def collect(client: Client) -> Iterable[Metric]:
    assert client.app is not None
    return [GaugeMetricFamily(f"{client.app.name}_pipelines", "Its own.", len(client.app.pipelines))]


async def fail(client: Client) -> Iterable[Metric]:
    raise RuntimeError("no")


async def test_a_route_gets_the_client_of_its_application(open_api: OpenApi) -> None:
    async with open_api(application=App("both", includes=[an_app("films"), an_app("books")])) as api:
        for name in ("films", "books"):
            answer = await api.get(f"/{name}")
            assert answer.json() == {"name": name, "pipelines": [name], "host": f"host of {name}"}
        listed = (await api.get("/api/v1/pipelines")).json()["pipelines"]
        assert [each["name"] for each in listed] == ["films", "books"]


async def test_the_same_route_twice_names_both_applications(open_api: OpenApi) -> None:
    both = App("both", includes=[an_app("films", "/about"), an_app("books", "/about")])
    async with open_api() as api:
        with pytest.raises(DefinitionError, match="'films' and 'books' both have a route GET /about; change one"):
            make_server(both, api.client, Settings())


async def test_the_limits_of_large_bodies_are_those_of_all(open_api: OpenApi) -> None:
    both = App(
        "both",
        includes=[an_app("films", large_bodies={"/films": 5_000_000}), an_app("books", large_bodies={"/books": 10})],
    )
    async with open_api(application=both) as api:
        sent = [await api.call("POST", path, content=b"x" * 3_000_000) for path in ("/films", "/books")]
    assert [answer.status_code for answer in sent] == [405, 413]


async def test_metrics_are_those_of_all_and_one_that_fails_hides_no_other(open_api: OpenApi) -> None:
    both = App("both", includes=[an_app("films", metrics=collect), an_app("books", metrics=fail)])
    async with open_api(application=both) as api:
        found = (await api.get("/metrics")).text
    assert "films_pipelines 1.0" in found
    assert "retoma_application_metrics_up 0.0" in found


async def test_a_file_comes_from_the_store_of_its_application(open_api: OpenApi, tmp_path: Path) -> None:
    stores = {name: create_file_store(FileSettings(home=tmp_path / name)) for name in ("films", "books")}
    both = App("both", includes=[an_app(name, files=store) for name, store in stores.items()])
    async with open_api(application=both) as api:
        for name in stores:
            run = await api.sandbox.run(name)
            answer = await api.get(f"/api/v1/runs/{run.id}/files/{run.results['page']['file']}")
            assert answer.content == name.encode()


async def test_the_document_describes_the_webhooks_of_all(open_api: OpenApi) -> None:
    both = App(
        "both",
        includes=[
            an_app("films", webhook_body=lambda *_: None, webhook_schema=FilmEvent),
            an_app("books", webhook_body=lambda *_: None, webhook_schema=BookEvent),
            an_app("plays"),
        ],
    )
    async with open_api(application=both) as api:
        document = (await api.get("/api/v1/openapi.json")).json()
    body = document["webhooks"]["run.completed"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    names = ["FilmEvent", "BookEvent", "RunEvent"]
    assert body == {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}
    assert set(document["components"]["schemas"]) > {*names, "Reel", "Shelf"}
    assert {"/films", "/books", "/plays"} < set(document["paths"])


async def test_two_schemas_of_one_name_are_told_apart(open_api: OpenApi) -> None:
    def create_event(model: str, **fields: Any) -> type[BaseModel]:
        place = create_model("Place", **fields)
        return create_model(model, place=(place, ...))

    first, second = create_event("FirstEvent", name=(str, ...)), create_event("OtherEvent", width=(int, ...))
    both = App("both", includes=[an_app("films", webhook_schema=first), an_app("books", webhook_schema=second)])
    async with open_api(application=both) as api:
        schemas = (await api.get("/api/v1/openapi.json")).json()["components"]["schemas"]
    assert schemas["FirstEvent"]["properties"]["place"] == {"$ref": "#/components/schemas/Place"}
    assert schemas["OtherEvent"]["properties"]["place"] == {"$ref": "#/components/schemas/books_Place"}
    assert (set(schemas["Place"]["properties"]), set(schemas["books_Place"]["properties"])) == ({"name"}, {"width"})
