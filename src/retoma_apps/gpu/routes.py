"""The HTTP routes for n8n and other callers."""

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
from retoma.outgoing import mask_query_values
from retoma.server import Principal, Problem, document_problems, idempotency_key_header, require_scope, to_problem
from retoma_apps.gpu.jobs import get_job_details, job_summary
from retoma_apps.gpu.models import AddAudioJob, CaptionJob, Img2VidJob, JobFilter, Submission
from retoma_apps.gpu.pipeline import GPU
from retoma_apps.gpu.results import Run, format_time, get_started_at
from retoma_apps.gpu.schemas import JobAccepted, JobCancelled, JobDetails, JobPage
from retoma_apps.gpu.settings import MAX_QUEUE_TIME, Rules
from retoma_apps.gpu.states import Status, job_id, run_id, states_of, status_of

OFFLINE = "X-Retoma-Offline"
OPERATIONS = ("img2vid", "caption", "addaudio")
PAGE_SIZE, MAX_PAGES = 100, 10  # jobs read at a time, and at most so often per page
DEFAULT_TENANT = "default"
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
JobId = Annotated[str, Path(max_length=100, description="`orc-` and a UUID.")]
IdempotencyKey = Annotated[str | None, idempotency_key_header("The same key and body always return the same job.")]


class ErrorFieldRoute(APIRoute):
    """Adds `error`, which callers of these routes expect, to the members of all errors."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (Problem, RequestValidationError, RetomaError) as error:
                problem = to_problem(error)
            problem.members.setdefault("error", problem.detail)
            raise problem

        return handle


router = APIRouter(
    tags=["gpu"], route_class=ErrorFieldRoute, responses=document_problems(400, 401, 403, 413, 422, 429, 503)
)
_ACCEPTED: dict[str, Any] = {"status_code": 202, "response_model": JobAccepted}


@router.post("/video/img2vid/async", summary="Turn images into videos", **_ACCEPTED)
async def submit_img2vid(request: Request, body: Img2VidJob, by: Writer, key: IdempotencyKey = None) -> Response:
    return await _submit("img2vid", body, await request.json(), by, key)


@router.post(
    "/video/caption_style/async",
    summary="Alias of /video/caption/async",
    operation_id="submit_caption_style",
    **_ACCEPTED,
)
@router.post("/video/caption/async", summary="Burn subtitles or a text into a video", **_ACCEPTED)
async def submit_caption(request: Request, body: CaptionJob, by: Writer, key: IdempotencyKey = None) -> Response:
    return await _submit("caption", body, await request.json(), by, key)


@router.post("/video/addaudio/async", summary="Mix audio into a video", **_ACCEPTED)
async def submit_addaudio(request: Request, body: AddAudioJob, by: Writer, key: IdempotencyKey = None) -> Response:
    return await _submit("addaudio", body, await request.json(), by, key)


@router.get("/jobs", summary="List jobs, newest first", response_model=JobPage)
async def list_jobs(by: Reader, job_filter: Annotated[JobFilter, Query()]) -> dict[str, Any]:
    """Return a page of jobs. It may be short or empty; there are more as long as `next` is not null."""
    states = None if job_filter.status is None else states_of(job_filter.status)
    wanted: list[dict[str, Any]] = []
    before = run_id(job_filter.before or "")
    for _ in range(MAX_PAGES):
        seen = await _list_newest_runs(by, states, before)
        wanted += await _select_jobs(by, job_filter, seen)
        if len(wanted) > job_filter.limit:
            return {"jobs": wanted[: job_filter.limit], "next": wanted[job_filter.limit - 1]["jobId"]}
        if len(seen) < PAGE_SIZE:
            return {"jobs": wanted, "next": None}
        before = seen[-1].id
        if len(wanted) == job_filter.limit:
            break
    return {"jobs": wanted, "next": None if before is None else job_id(before)}


@router.get("/jobs/{job}", summary="Show a job", response_model=JobDetails, responses=document_problems(404))
async def show_job(job: JobId, by: Reader) -> Response:
    return _json_response(by.client, await get_job_details(by.client, await _get_own_run(by, job)))


@router.post(
    "/jobs/{job}/cancel", summary="Cancel a job", response_model=JobCancelled, responses=document_problems(404)
)
async def cancel_job(job: JobId, by: Writer) -> dict[str, Any]:
    run = await _get_own_run(by, job)
    state = await by.client.runs.cancel(run.id, tenant=by.tenant, by=f"key {by.name}")
    if status_of(state, started=True) in ("COMPLETED", "FAILED"):
        raise Problem(400, "ALREADY_FINISHED", "Job already finished")
    return {"message": "Job cancelled", "jobId": job}


async def _submit(
    operation: str, submission: Submission, received: dict[str, Any], by: Principal, key: str | None
) -> Response:
    rules = _rules(by.client)
    _check_urls(submission, by.client)
    webhook = None if submission.webhook_url is None else rules.webhook(submission.webhook_url)
    try:
        started = await by.client.start(
            operation,
            _run_input(submission, received),
            request=submission,
            key=key,
            webhook=webhook,
            tenant=by.tenant or DEFAULT_TENANT,
            deadline=MAX_QUEUE_TIME + rules.total_limit(operation),
        )
    except Conflict as error:
        detail = f"the Idempotency-Key {key!r} belongs to a job with another body: send that body, or another key"
        raise Problem(422, "IDEMPOTENCY_KEY_REUSED", detail) from error
    run: Run = await by.client.runs.get(started.id)
    has_started = not started.created and await get_started_at(by.client, run) is not None
    status = status_of(run.state, started=has_started)
    return _json_response(by.client, _format_accepted(run, submission, status, offline=rules.offline), 202)


def _check_urls(submission: Submission, client: Client) -> None:
    """Reject the first URL that must not be called; the error names its field."""
    webhook = {} if submission.webhook_url is None else {"webhook_url": submission.webhook_url}
    for field, url in (submission.media | webhook).items():
        client.guard.check(url, field)


def _run_input(submission: Submission, received: dict[str, Any]) -> dict[str, Any]:
    """Return the run's input. Only the webhook itself keeps a token in its URL."""
    url = submission.webhook_url
    masked = {} if url is None else {"webhook_url": mask_query_values(url)}
    return submission.model_dump() | masked | {"received": received | masked}


def _format_accepted(run: Run, submission: Submission, status: Status, *, offline: bool) -> dict[str, Any]:
    return {
        "jobId": job_id(run.id),
        "status": status,
        "id_roteiro": submission.id_roteiro,
        "message": "Job enfileirado com sucesso",
        "estimatedTime": format_estimated_time(submission.video_seconds, offline=offline),
        "statusUrl": f"/jobs/{job_id(run.id)}",
        "createdAt": format_time(run.created_at),
    }


def format_estimated_time(seconds: float, *, offline: bool) -> str:
    """Return a rough estimate: a second of video takes about a second of work, shared by all GPUs. GPUs have a cold
    start and may be busy; this machine has no cold start."""
    work = max(1, ceil(seconds / 60 / GPU.capacity))
    return f"{work}-{2 * work} minutos" if offline else f"{1 + work}-{5 * (1 + work)} minutos"


async def _list_newest_runs(by: Principal, states: list[str] | None, before: UUID | None) -> list[Run]:
    found: list[Run] = []
    for operation in OPERATIONS:
        found += await by.client.runs.list(
            tenant=by.tenant,
            pipeline=operation,
            states=states,  # type: ignore[arg-type]
            before=before,
            limit=PAGE_SIZE,
        )
    return sorted(found, key=lambda run: run.id, reverse=True)[:PAGE_SIZE]


async def _select_jobs(by: Principal, job_filter: JobFilter, runs: list[Run]) -> list[dict[str, Any]]:
    found = [run for run in runs if job_filter.id_roteiro in (None, run.input.get("id_roteiro"))]
    first = await by.client.runs.get_start_times(run.id for run in found)
    shown = [
        job_summary(run, first.get(run.id) if run.revision == 1 else await get_started_at(by.client, run))
        for run in found
    ]
    return [job for job in shown if job_filter.status in (None, job["status"])]


async def _get_own_run(by: Principal, job: str) -> Run:
    """Return the run if it is a job of the caller's tenant. Raise a 404 for any other."""
    found = run_id(job)
    try:
        run = None if found is None else await by.client.runs.get(found, tenant=by.tenant)
    except NotFound:
        run = None
    if run is None or run.pipeline not in OPERATIONS:
        raise Problem(404, "NOT_FOUND", "Job not found")
    return run


def _rules(client: Client) -> Rules:
    assert client.app is not None
    rules: Rules = client.app.resources["rules"]
    return rules


def _json_response(client: Client, body: dict[str, Any], status: int = 200) -> Response:
    headers = {OFFLINE: "rendered with ffmpeg on this machine"} if _rules(client).offline else None
    return JSONResponse(body, status, headers)
