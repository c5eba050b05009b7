"""The routes that n8n and other callers know."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import ceil
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from retoma import Client, RetomaError
from retoma.errors import Conflict, NotFound
from retoma.outgoing import without_values
from retoma.server import Caller, Problem, caller, documented, idempotency_key, problem_of
from retoma_apps.gpu.jobs import details, summary
from retoma_apps.gpu.models import AddAudioJob, Asked, CaptionJob, Img2VidJob, Submission
from retoma_apps.gpu.outcomes import Run, began, moment
from retoma_apps.gpu.pipelines import GPU
from retoma_apps.gpu.settings import LONGEST_QUEUE, Rules
from retoma_apps.gpu.shapes import JobAccepted, JobCancelled, JobDetails, JobPage
from retoma_apps.gpu.states import Status, job_id, run_id, states_of, status_of

OFFLINE = "X-Retoma-Offline"
OPERATIONS = ("img2vid", "caption", "addaudio")
LOOKED_AT, ROUNDS = 100, 10  # a page looks at so many jobs at a time, and so often
DEFAULT_TENANT = "default"
Reader = Annotated[Caller, caller("runs:read")]
Writer = Annotated[Caller, caller("runs:write")]
JobId = Annotated[str, Path(max_length=100, description="`orc-` and a UUID.")]
IdempotencyKey = Annotated[
    str | None, idempotency_key("The same key and body give the same job, however often they are sent.")
]


class WithError(APIRoute):
    """Errors have `error`, which callers of these routes look for, beside the members that all errors have."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await answer(request)
            except (Problem, RequestValidationError, RetomaError) as error:
                told = problem_of(error)
            told.members.setdefault("error", told.detail)
            raise told

        return answered


router = APIRouter(tags=["gpu"], route_class=WithError, responses=documented(400, 401, 403, 413, 422, 429, 503))
_ACCEPTED: dict[str, Any] = {"status_code": 202, "response_model": JobAccepted}


@router.post("/video/img2vid/async", summary="Turn images into videos", **_ACCEPTED)
async def submit_img2vid(request: Request, given: Img2VidJob, by: Writer, key: IdempotencyKey = None) -> Response:
    return await _submitted("img2vid", given, await request.json(), by, key)


@router.post(
    "/video/caption_style/async",
    summary="The same as /video/caption/async",
    operation_id="submit_caption_style",
    **_ACCEPTED,
)
@router.post("/video/caption/async", summary="Burn subtitles or a text into a video", **_ACCEPTED)
async def submit_caption(request: Request, given: CaptionJob, by: Writer, key: IdempotencyKey = None) -> Response:
    return await _submitted("caption", given, await request.json(), by, key)


@router.post("/video/addaudio/async", summary="Mix audio into a video", **_ACCEPTED)
async def submit_addaudio(request: Request, given: AddAudioJob, by: Writer, key: IdempotencyKey = None) -> Response:
    return await _submitted("addaudio", given, await request.json(), by, key)


@router.get("/jobs", summary="List jobs, newest first", response_model=JobPage)
async def list_jobs(by: Reader, asked: Annotated[Asked, Query()]) -> dict[str, Any]:
    """A page may be short, or empty; there are more as long as `next` is not null."""
    states = None if asked.status is None else states_of(asked.status)
    wanted: list[dict[str, Any]] = []
    before = run_id(asked.before or "")
    for _ in range(ROUNDS):
        seen = await _newest(by, states, before)
        wanted += await _wanted(by, asked, seen)
        if len(wanted) > asked.limit:
            return {"jobs": wanted[: asked.limit], "next": wanted[asked.limit - 1]["jobId"]}
        if len(seen) < LOOKED_AT:
            return {"jobs": wanted, "next": None}
        before = seen[-1].id
        if len(wanted) == asked.limit:
            break
    return {"jobs": wanted, "next": None if before is None else job_id(before)}


@router.get("/jobs/{job}", summary="Show a job", response_model=JobDetails, responses=documented(404))
async def show_job(job: JobId, by: Reader) -> Response:
    return _answered(by.client, await details(by.client, await _own(by, job)))


@router.post("/jobs/{job}/cancel", summary="Cancel a job", response_model=JobCancelled, responses=documented(404))
async def cancel_job(job: JobId, by: Writer) -> dict[str, Any]:
    run = await _own(by, job)
    state = await by.client.cancel(run.id, tenant=by.tenant, by=f"key {by.name}")
    if status_of(state, begun=True) in ("COMPLETED", "FAILED"):
        raise Problem(400, "ALREADY_FINISHED", "Job already finished")
    return {"message": "Job cancelled", "jobId": job}


async def _submitted(
    operation: str, given: Submission, received: dict[str, Any], by: Caller, key: str | None
) -> Response:
    rules = _rules(by.client)
    _check_urls(given, by.client)
    webhook = None if given.webhook_url is None else rules.webhook(given.webhook_url)
    try:
        started = await by.client.start(
            operation,
            _kept(given, received),
            asked=given,
            key=key,
            webhook=webhook,
            tenant=by.tenant or DEFAULT_TENANT,
            deadline=LONGEST_QUEUE + rules.whole_limit(operation),
        )
    except Conflict as error:
        said = f"the Idempotency-Key {key!r} belongs to a job with another body: send that body, or another key"
        raise Problem(422, "IDEMPOTENCY_KEY_REUSED", said) from error
    run: Run = await by.client.show(started.id)
    begun = not started.created and await began(by.client, run) is not None
    status = status_of(run.state, begun=begun)
    return _answered(by.client, _accepted(run, given, status, offline=rules.offline), 202)


def _check_urls(given: Submission, client: Client) -> None:
    """Refuse the first that must not be called, and say where it stands."""
    webhook = {} if given.webhook_url is None else {"webhook_url": given.webhook_url}
    for field, url in (given.media | webhook).items():
        client.guard.check(url, field)


def _kept(given: Submission, received: dict[str, Any]) -> dict[str, Any]:
    """The input of the run. Only the webhook itself knows a token that its URL may hold."""
    url = given.webhook_url
    masked = {} if url is None else {"webhook_url": without_values(url)}
    return given.model_dump() | masked | {"received": received | masked}


def _accepted(run: Run, given: Submission, status: Status, *, offline: bool) -> dict[str, Any]:
    return {
        "jobId": job_id(run.id),
        "status": status,
        "id_roteiro": given.id_roteiro,
        "message": "Job enfileirado com sucesso",
        "estimatedTime": span(given.video_seconds, offline=offline),
        "statusUrl": f"/jobs/{job_id(run.id)}",
        "createdAt": moment(run.created_at),
    }


def span(seconds: float, *, offline: bool) -> str:
    """A rough one: a second of video is about a second of work, shared by all GPUs, which take a while to wake up and
    may be busy. This machine is awake."""
    work = max(1, ceil(seconds / 60 / GPU.capacity))
    return f"{work}-{2 * work} minutos" if offline else f"{1 + work}-{5 * (1 + work)} minutos"


async def _newest(by: Caller, states: list[str] | None, before: UUID | None) -> list[Run]:
    found: list[Run] = []
    for operation in OPERATIONS:
        found += await by.client.runs(
            tenant=by.tenant,
            pipeline=operation,
            states=states,  # type: ignore[arg-type]
            before=before,
            limit=LOOKED_AT,
        )
    return sorted(found, key=lambda run: run.id, reverse=True)[:LOOKED_AT]


async def _wanted(by: Caller, asked: Asked, seen: list[Run]) -> list[dict[str, Any]]:
    found = [run for run in seen if asked.id_roteiro in (None, run.input.get("id_roteiro"))]
    first = await by.client.began(run.id for run in found)
    shown = [summary(run, first.get(run.id) if run.revision == 1 else await began(by.client, run)) for run in found]
    return [job for job in shown if asked.status in (None, job["status"])]


async def _own(by: Caller, job: str) -> Run:
    """The run, if it is a job of the caller's; another tenant's is not there at all."""
    found = run_id(job)
    try:
        run = None if found is None else await by.client.show(found, tenant=by.tenant)
    except NotFound:
        run = None
    if run is None or run.pipeline not in OPERATIONS:
        raise Problem(404, "NOT_FOUND", "Job not found")
    return run


def _rules(client: Client) -> Rules:
    assert client.app is not None
    rules: Rules = client.app.resources["rules"]
    return rules


def _answered(client: Client, body: dict[str, Any], status: int = 200) -> Response:
    headers = {OFFLINE: "ffmpeg on this machine does the work"} if _rules(client).offline else None
    return JSONResponse(body, status, headers)
