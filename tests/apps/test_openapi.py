"""The OpenAPI documents of the applications, as client generators read them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from retoma.define.webhook import ENDED, EVENTS
from retoma.server.server import list_routes
from retoma.store.database import Database
from tests.apps.autowriter.writer_app import open_writer_app
from tests.apps.classifier.classifier_app import running_classifier_app
from tests.apps.gpu.gpu_app import running_gpu_app
from tests.apps.stories.story_app import running_story_app
from tests.apps.videos.video_app import running_video_app
from tests.conftest import empty_database
from tests.server.api import Api

METHODS = ("get", "put", "post", "delete", "head")
PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
FILES = {
    ("gpu", "download_output"),
    ("gpu", "download_run_file"),
    ("classificador", "download_document"),
    ("classificador", "download_run_file"),
    ("videos", "download_video_file"),
    ("videos", "download_run_file"),
}
UPLOADS = {"upload_document", "start_import", "preview_import"}
OpenApp = Callable[[Database, Path], AbstractAsyncContextManager[Any]]
APPLICATIONS: dict[str, OpenApp] = {
    "gpu": running_gpu_app,
    "classifier": running_classifier_app,
    "videos": running_video_app,
    "autowriter": open_writer_app,
    "stories": running_story_app,
}


@pytest.fixture(params=APPLICATIONS)
async def api(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> AsyncIterator[Api]:
    await empty_database(database)
    async with APPLICATIONS[request.param](database, tmp_path) as made:
        yield made.api


@pytest.fixture
async def document(api: Api) -> dict[str, Any]:
    answer = await api.get("/api/v1/openapi.json")
    read: dict[str, Any] = answer.json()
    return read


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method]


def answers(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, operation in operations(document):
        for status, answer in operation["responses"].items():
            yield f"{name} {status}", answer


async def test_every_error_has_the_same_problem_schema(document: dict[str, Any]) -> None:
    errors = {name: answer for name, answer in answers(document) if name[-3] in "45" and not name.endswith("416")}
    assert len(errors) > 100
    assert {name for name, answer in errors.items() if answer["content"] != PROBLEM} == set()
    problem = document["components"]["schemas"]["Problem"]
    assert set(problem["required"]) == {"type", "title", "status", "detail", "code"}
    assert problem["properties"]["errors"]["items"] == {"$ref": "#/components/schemas/FieldError"}


async def test_an_operation_is_named_after_its_function(api: Api, document: dict[str, Any]) -> None:
    functions = {route.name for route in list_routes(api.server)} | {"get_execution", "submit_caption_style"}
    ids = [operation["operationId"] for _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    assert set(ids) <= functions
    assert {"list_runs", "get_run", "cancel_run", "start_run", "get_review"} <= set(ids)
    assert [name for name in ids if not re.fullmatch("[a-z]+(_[a-z0-9]+)*", name) or name.startswith("show_")] == []


async def test_every_response_has_a_type(document: dict[str, Any]) -> None:
    untyped = [
        name
        for name, answer in answers(document)
        if name[-3] == "2" and name[-3:] != "204" and not name.startswith("HEAD") and not _is_typed(answer)
    ]
    # Results have the type of the steps; the answer to a callback has no body.
    assert untyped == ["GET /api/v1/runs/{run}/results 200", "POST /api/v1/callbacks/{token} 200"]


def _is_typed(answer: dict[str, Any]) -> bool:
    kinds = answer.get("content", {})
    return bool(kinds) and all(
        {"$ref", "anyOf", "items", "format"} & kind["schema"].keys() or name.startswith("text/")
        for name, kind in kinds.items()
    )


async def test_files_are_bytes_in_requests_and_responses(document: dict[str, Any]) -> None:
    binary = {"type": "string", "format": "binary"}
    found = {operation["operationId"]: operation for _, operation in operations(document)}
    for application, name in FILES:
        if application == document["info"]["title"]:
            content = found[name]["responses"]["200"]["content"]
            assert content == {"application/octet-stream": {"schema": binary}}, name
    for name in UPLOADS & found.keys():  # generators skip a route with a body of a type that they do not know
        assert found[name]["requestBody"]["content"] == {"application/octet-stream": {"schema": binary}}, name


async def test_schemas_have_names_that_generators_accept(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [name for name in schemas if not re.fullmatch("[A-Z][A-Za-z0-9]+(-Input|-Output)?", name)] == []
    same = [name for name, schema in schemas.items() if name.lower() in map(str.lower, schema.get("properties", ()))]
    assert same in ([], ["File"])  # every result names its files with `file`


async def test_a_field_with_a_default_is_optional(document: dict[str, Any]) -> None:
    # openapi-typescript treats a field with a `default` as required.
    values = document["components"]["schemas"]["StartRequest"]
    assert values["required"] == ["pipeline"]
    assert "Default: 0." in values["properties"]["priority"]["description"]
    schemas = document["components"]["schemas"]
    fields = {
        f"{name}.{field}": body for name in schemas for field, body in schemas[name].get("properties", {}).items()
    }
    assert [name for name, body in fields.items() if "default" in body] == []


async def test_the_bodies_of_webhooks_are_described(document: dict[str, Any]) -> None:
    assert set(document["webhooks"]) == set(EVENTS) - {ENDED}
    body = document["webhooks"]["run.completed"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    own = {"gpu": {"jobId", "status", "execution"}, "classificador": {"id", "evento", "travamento"}}.get(
        document["info"]["title"], {"type", "timestamp", "data"}
    )
    assert own <= schema["properties"].keys()
    headers = {one["name"] for one in document["webhooks"]["run.completed"]["post"]["parameters"]}
    assert headers == {"webhook-id", "webhook-timestamp", "webhook-signature"}
