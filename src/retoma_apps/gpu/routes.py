"""The HTTP routes for n8n and other callers."""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from retoma import Client
from retoma.errors import Conflict, NotFound
from retoma.files import FileSettings, FileStore, create_file_store
from retoma.outgoing import mask_query_values
from retoma.records import Run
from retoma.server import (
    Principal,
    Problem,
    ProblemRoute,
    document_binary,
    document_problems,
    idempotency_key_header,
    parse_range,
    public,
    require_scope,
)
from retoma_apps.gpu.models import AddAudioJob, CaptionJob, Img2VidJob, JobFilter, Submission
from retoma_apps.gpu.operations.jobs import get_job_details, job_summary
from retoma_apps.gpu.operations.results import format_time, get_started_at
from retoma_apps.gpu.pipeline import GPU
from retoma_apps.gpu.schemas import JobAccepted, JobCancelled, JobDetails, JobPage
from retoma_apps.gpu.settings import MAX_QUEUE_TIME, Rules
from retoma_apps.gpu.states import Status, job_id, run_id, states_of, status_of
from retoma_apps.providers.gpu import OPERATIONS

OFFLINE = "X-Retoma-Offline"
PAGE_SIZE, MAX_PAGES = 100, 10  # jobs read at a time, and at most so often per page
DEFAULT_TENANT = "default"
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
JobId = Annotated[str, Path(max_length=100, description="`orc-` and a UUID.")]
IdempotencyKey = Annotated[str | None, idempotency_key_header("The same key and body always return the same job.")]


class ErrorFieldRoute(ProblemRoute):
    """Adds `error`, which callers of these routes expect, to the members of all errors."""

    def change_problem(self, problem: Problem, error: Exception, request: Request) -> None:
        problem.members.setdefault("error", problem.detail)


router = APIRouter(
    tags=["gpu"], route_class=ErrorFieldRoute, responses=document_problems(400, 401, 403, 413, 422, 429, 503)
)
_ACCEPTED: dict[str, Any] = {"status_code": 202, "response_model": JobAccepted}
_FILE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: document_binary("The whole file."),
    206: document_binary("The part of the file that `Range` requests."),
    416: {"description": "The range is outside the file."},
    **document_problems(404, 422),
}
OUTPUT_PREFIX = "gpu/"  # other files in the same store are not public


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
        seen = await by.client.runs.list(pipeline=OPERATIONS, states=states, before=before, limit=PAGE_SIZE)
        wanted += await _select_jobs(by, job_filter, seen)
        if len(wanted) > job_filter.limit:
            return {"jobs": wanted[: job_filter.limit], "next": wanted[job_filter.limit - 1]["jobId"]}
        if len(seen) < PAGE_SIZE:
            return {"jobs": wanted, "next": None}
        before = seen[-1].id
        if len(wanted) == job_filter.limit:
            break
    return {"jobs": wanted, "next": None if before is None else job_id(before)}


@router.get("/jobs/{job}", summary="Get a job", response_model=JobDetails, responses=document_problems(404))
async def get_job(job: JobId, by: Reader) -> Response:
    return _json_response(by, await get_job_details(by.client, await _get_own_run(by, job)))


@router.post(
    "/jobs/{job}/cancel", summary="Cancel a job", response_model=JobCancelled, responses=document_problems(404)
)
async def cancel_job(job: JobId, by: Writer) -> dict[str, Any]:
    run = await _get_own_run(by, job)
    state = await by.client.runs.cancel(run.id, by=by.author)
    if status_of(state, started=True) in ("COMPLETED", "FAILED"):
        raise Problem(400, "ALREADY_FINISHED", "Job already finished")
    return {"message": "Job cancelled", "jobId": job}


async def _submit(
    operation: str, submission: Submission, received: dict[str, Any], by: Principal, key: str | None
) -> Response:
    rules: Rules = by.application.resources["rules"]
    _check_urls(submission, by.client)
    webhook = None if submission.webhook_url is None else rules.webhook(submission.webhook_url)
    try:
        started = await by.client.start(
            operation,
            _run_input(submission, received),
            request=submission,
            key=key,
            webhook=webhook,
            tenant=by.choose_tenant(None, DEFAULT_TENANT),
            deadline=MAX_QUEUE_TIME + rules.total_limit(operation),
        )
    except Conflict as error:
        detail = f"the Idempotency-Key {key!r} belongs to a job with another body: send that body, or another key"
        raise Problem(422, "IDEMPOTENCY_KEY_REUSED", detail) from error
    run: Run = await by.client.runs.get(started.id)
    has_started = not started.created and await get_started_at(by.client, run) is not None
    status = status_of(run.state, started=has_started)
    return _json_response(by, _format_accepted(run, submission, status, offline=rules.offline), 202)


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
        run = None if found is None else await by.client.runs.get(found)
    except NotFound:
        run = None
    if run is None or run.pipeline not in OPERATIONS:
        raise Problem(404, "NOT_FOUND", "Job not found")
    return run


def _json_response(by: Principal, body: dict[str, Any], status: int = 200) -> Response:
    rules: Rules = by.application.resources["rules"]
    headers = {OFFLINE: "rendered with ffmpeg on this machine"} if rules.offline else None
    return JSONResponse(body, status, headers)


def create_download_router(settings: FileSettings) -> APIRouter:
    """Serve `/files/...`: outputs in a local folder, for anyone who knows the address of one."""
    router = APIRouter(tags=["gpu"], dependencies=[public])
    open_store = cache(lambda: create_file_store(settings))

    @router.get("/files/{key:path}", summary="Download an output", response_class=Response, responses=_FILE_RESPONSES)
    async def download_output(key: str, request: Request) -> Response:
        return await send(key, request.headers.get("range"))

    @router.head(
        "/files/{key:path}", summary="Inspect an output", response_class=Response, responses=document_problems(404, 422)
    )
    async def inspect_output(key: str) -> Response:
        whole = await send(key, None)
        return Response(headers=dict(whole.headers))

    async def send(key: str, range_header: str | None) -> Response:
        if not key.startswith(OUTPUT_PREFIX):
            raise _file_not_found()
        return await _send_file(open_store(), key, range_header)

    return router


async def _send_file(files: FileStore, key: str, range_header: str | None) -> Response:
    size = await files.get_size(key)
    part = None if size is None else parse_range(range_header, size)
    opened = await files.open_key(key, part)
    if opened is None:
        raise _file_not_found()
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=3600",
        "Content-Disposition": f'attachment; filename="{key.rpartition("/")[2]}"',
        "Content-Length": str(opened.size),
        "X-Content-Type-Options": "nosniff",
    }
    if part is not None:
        headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{size}"
    return StreamingResponse(opened.chunks, 200 if part is None else 206, headers, opened.media_type)


def _file_not_found() -> Problem:
    return Problem(404, "NOT_FOUND", "there is no such file", error="File not found")
