"""Every route that an application adds, with every kind of caller: a route that is not listed here fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from retoma import App
from retoma.records import Scope
from retoma.server import auth
from retoma.store.database import Database
from tests.apps.autowriter.samples import HEADER, LINE
from tests.apps.autowriter.writer_app import open_writer_app
from tests.apps.classifier.classifier_app import make_project, running_classifier_app
from tests.apps.gpu.gpu_app import running_gpu_app
from tests.apps.stories.story_app import running_story_app
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.apps.videos.video_app import TOPIC
from tests.conftest import empty_database
from tests.server.access_matrix import Target, check, list_page_targets, make_people
from tests.server.api import Api
from tests.server.test_authorisation import (
    ROUTES,
    Request,
    Route,
    bad_keys,
    check_keys,
    check_need,
    check_scopes,
    keys_by_scope,
    list_all_routes,
)

# Anyone who knows a job's file URLs may download them. A notification of WordPress is signed.
PUBLIC = {"/files/{key}", "/webhooks/wp-job-updated"}
# Takes a file in its body, but stores and starts nothing.
READS = {"POST /autowriter/imports/preview"}
BODIES: dict[str, Any] = {
    "/projetos/{projeto}": make_project(),
    "/execucoes/{execucao}/correcoes": {"codigo": "a.txt", "rotulo": "ofício"},
    "/execucoes/{execucao}/pular": {"codigos": ["a.txt"]},
    "/api/v1/channels/{channel}": {},
    "/api/v1/checkpoints/{checkpoint}/decision": {"action": "approved"},
    "/autowriter/blogs/{blog_id}": {"name": "Saúde"},
    "/autowriter/jobs/{job}/decision": {"action": "accept"},
    "/autowriter/jobs/{job}/rerun": {"group": "seo"},
}
QUERIES = {"/execucoes/{execucao}/arquivo": "?codigo=a.txt"}
LISTS = {
    "/jobs": "jobs",
    "/projetos": "projetos",
    "/execucoes": "execucoes",
    "/api/v1/videos": "videos",
    "/api/v1/videos/batches": "batches",
    "/api/v1/checkpoints/batch": "batch",
    "/autowriter/jobs": "jobs",
    "/autowriter/blogs": "blogs",
    "/stories": "stories",
    "/stories/jobs": "jobs",
}
# What comes with Retoma.
SAME_FOR_ALL = {"/api/v1/topics", "/stories/topics"}
# Concern all tenants, so a key for one is refused.
OF_ALL_TENANTS = {"/autowriter/blogs/{blog_id}", "/autowriter/metrics"}
# Takes seconds to create; its own tests cover it.
OF_LATER = {"/projetos/{projeto}/precisao"}
# A key creates objects in its own tenant; their own tests use another tenant.
STARTS = {
    "/video/img2vid/async",
    "/video/caption/async",
    "/video/caption_style/async",
    "/video/addaudio/async",
    "/projetos",
    "/arquivos",
    "/execucoes",
    "/api/v1/videos",
    "/api/v1/videos/batches",
    "/api/v1/checkpoints/batch/approve",
    "/autowriter/jobs",
    "/autowriter/imports",
    "/autowriter/imports/preview",
    "/stories",
}


# What the parameters of pages name, by the names of the routes' parameters.
PAGE_NAMES = [
    *((name, name) for name in ("video", "batch", "projeto", "execucao")),
    *(("name", "channel"), ("story", "story_id"), ("article", "job"), ("import", "import_id"), ("blog", "blog_id")),
]


@dataclass(frozen=True)
class Subject:
    """A running application with one object of each kind that its routes name, all of one tenant."""

    api: Api
    tenant: str
    things: dict[str, str]

    @property
    def routes(self) -> list[Route]:
        """Return its own routes, those that delete last."""
        known = {str(route) for route in ROUTES}
        found = [route for route in list_all_routes(self.api.server) if str(route) not in known]
        return sorted(found, key=lambda route: ["GET", "POST", "PUT", "DELETE"].index(route.method))

    def fill(self, path: str) -> str:
        path += QUERIES.get(path, "")
        for name, thing in self.things.items():
            path = path.replace(f"{{{name}}}", thing)
        assert "{" not in path, "say here what this route names"
        return path

    def asks(self, route: Route) -> Request:
        path = self.fill(route.path)
        body = BODIES.get(route.path) if route.method in ("POST", "PUT") else None
        return lambda key: self.api.call(route.method, path, key=key, json=body)


@asynccontextmanager
async def gpu(database: Database, folder: Path) -> AsyncIterator[Subject]:
    async with running_gpu_app(database, folder) as services:
        key = await services.api.make_key("runs:write", tenant="blog")
        yield Subject(services.api, "blog", {"job": await services.submit(key=key)})


@asynccontextmanager
async def classifier(database: Database, folder: Path) -> AsyncIterator[Subject]:
    async with running_classifier_app(database, folder) as classifier_app:
        project = await classifier_app.project()
        yield Subject(
            classifier_app.api, project, {"projeto": project, "execucao": await classifier_app.begin(project)}
        )


@asynccontextmanager
async def videos(database: Database, folder: Path) -> AsyncIterator[Subject]:
    with pytest.MonkeyPatch.context() as patched:
        async with running_fast_video_app(database, folder, patched) as video_app:
            waiting = await video_app.order_until("audio_review")
            yield await describe_video(video_app, waiting)


async def describe_video(video_app: FastVideoApp, waiting: dict[str, Any]) -> Subject:
    order = {"videos": [{"channel": "financas", "topic": TOPIC}]}
    key = await video_app.api.make_key("runs:write", tenant="financas")
    batch = (await video_app.api.post("/api/v1/videos/batches", json=order, key=key)).json()["id"]
    kind, _, digest, name = urlsplit(waiting["data"]["audio_url"]).path.split("/")[-4:]
    things = {
        "video": waiting["video_id"],
        "checkpoint": waiting["checkpoint_id"],
        "channel": "financas",
        "batch": batch,
        "kind": kind,
        "digest": digest,
        "name": name,
    }
    return Subject(video_app.api, "financas", things)


@asynccontextmanager
async def autowriter(database: Database, folder: Path) -> AsyncIterator[Subject]:
    async with open_writer_app(database, folder) as writer_app:
        key = await writer_app.api.make_key("runs:write", tenant="saude")
        file = f"{HEADER}\n{LINE}\n".encode()
        imported = (await writer_app.api.post("/autowriter/imports", content=file, key=key)).json()["import_id"]
        job = str(await writer_app.start())
        yield Subject(writer_app.api, "saude", {"job": job, "import_id": imported, "blog_id": "saude"})


@asynccontextmanager
async def stories(database: Database, folder: Path) -> AsyncIterator[Subject]:
    async with running_story_app(database, folder) as story_app:
        story = await story_app.order(channel="financas", scenes=3)
        await story_app.write_scripts()
        yield Subject(story_app.api, "financas", {"story_id": story, "scene_id": "1"})


Application = Callable[[Database, Path], AbstractAsyncContextManager[Subject]]


@pytest.fixture(params=[gpu, classifier, videos, autowriter, stories], ids=lambda application: application.__name__)
async def subject(
    request: pytest.FixtureRequest, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Subject]:
    monkeypatch.setattr(auth, "FAILURES_PER_MINUTE", 1_000)
    await empty_database(database)
    application: Application = request.param
    async with application(database, tmp_path) as made:
        yield made


async def test_every_route_allows_exactly_the_listed_callers(subject: Subject) -> None:
    bad, keys = await bad_keys(subject.api), await keys_by_scope(subject.api)
    nowhere = replace(subject, things=dict.fromkeys(subject.things, str(UUID(int=7))))
    for route in subject.routes:
        if str(route) not in READS:
            check_need(route, PUBLIC)
        if route.path not in PUBLIC:
            await check_keys(nowhere.asks(route), bad)
            await check_scopes(route, nowhere.asks(route), keys)


async def test_resources_of_another_tenant_are_not_found(subject: Subject) -> None:
    scopes = ("runs:read", "runs:write", "reviews:write")
    own, other = [await subject.api.make_key(*scopes, tenant=tenant) for tenant in (subject.tenant, "stranger")]
    routes = [route for route in subject.routes if route.path not in PUBLIC]
    before = await list_states(subject)
    for route in routes:
        if route.path in OF_ALL_TENANTS:
            answer = await subject.asks(route)(own)
            assert (answer.status_code, answer.json()["code"]) == (403, "OTHER_TENANT"), route
        elif "{" in route.path:
            answer = await subject.asks(route)(other)
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND"), route
        elif route.path in SAME_FOR_ALL:
            assert (await subject.asks(route)(other)).json() == (await subject.asks(route)(own)).json(), route
        elif route.method == "GET":
            assert (await subject.asks(route)(other)).json()[LISTS[route.path]] == [], route
            assert (await subject.asks(route)(own)).json()[LISTS[route.path]] != [], route
        else:
            assert route.path in STARTS, "say here what another tenant's key gets of this route"
    assert await list_states(subject) == before, "a stranger has changed a run"
    for route in routes:
        if "{" in route.path and route.path not in OF_LATER:
            assert (await subject.asks(route)(own)).status_code not in (404, 422), route


async def test_every_person_may_do_exactly_what_the_role_says(subject: Subject) -> None:
    callers = await make_people(subject.api, subject.tenant)
    routes = [
        Target(
            route.method,
            route.path,
            subject.fill(route.path),
            None if route.need is None else route.need.scope,
            names_object="{" in route.path,
            body=BODIES.get(route.path),
            only_all=route.path in OF_ALL_TENANTS,
        )
        for route in subject.routes
        if route.path not in PUBLIC
    ]
    application: App = subject.api.server.state.app
    things = defaultdict(
        lambda: str(UUID(int=7)), {new: subject.things[old] for new, old in PAGE_NAMES if old in subject.things}
    )
    pages = list_page_targets(application.pages, things, {})
    targets = [replace(each, tenant=subject.tenant) for each in (*routes, *pages)]
    before = await list_states(subject)
    strangers = [each for each in callers if not each.may(Scope.RUNS_READ, subject.tenant)]
    await check(subject.api, strangers, targets, "no text is in all applications")
    assert await list_states(subject) == before, "a stranger has changed a run"
    await check(subject.api, [each for each in callers if each not in strangers], targets, "no text")


async def list_states(subject: Subject) -> dict[UUID, tuple[str, int]]:
    return {run.id: (run.state, run.revision) for run in await subject.api.sandbox.client.runs.list()}
