"""The HTTP routes of articles, imports and blogs.

They are under `/autowriter`, because the GPU application has jobs too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Body, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from retoma import Client, GiveUp, RetryLater
from retoma.errors import BadSignature, Conflict
from retoma.records import Event, Run, StepProgress
from retoma.server import (
    Principal,
    Problem,
    ProblemRoute,
    document_binary,
    document_problems,
    idempotency_key_header,
    public,
    require_scope,
)
from retoma_apps.autowriter.metrics import PERIODS, measure_articles
from retoma_apps.autowriter.models import Blog, BlogId
from retoma_apps.autowriter.operations import articles, blogs, imports
from retoma_apps.autowriter.operations.decisions import decide_article, get_open_review
from retoma_apps.autowriter.operations.details import (
    ArticleDetails,
    ArticleError,
    ArticleSummary,
    get_details,
    get_summary,
)
from retoma_apps.autowriter.operations.notifications import receive_notification, refresh_events
from retoma_apps.autowriter.operations.overview import find_article_runs
from retoma_apps.autowriter.pipeline import article
from retoma_apps.autowriter.schemas import (
    BlogDetails,
    BlogList,
    ImportDetails,
    ImportPreview,
    JobDecisionRequest,
    JobDetails,
    JobPage,
    JobRequest,
    JobRerunRequest,
    MetricsList,
    RerunStarted,
)
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.autowriter.steps.csv_file import MAX_BYTES, LineError
from retoma_apps.autowriter.steps.error_codes import standard_code
from retoma_apps.providers.chains import get_first_provider
from retoma_apps.providers.llm import LanguageModel
from retoma_apps.providers.wordpress.notifications import MAX_BYTES as MAX_NOTIFICATION_BYTES
from retoma_apps.providers.wordpress.notifications import ROUTE

PREFIX = "/autowriter"
IMPORTS = f"{PREFIX}/imports"
LARGE_BODIES = {IMPORTS: MAX_BYTES, f"{IMPORTS}/preview": MAX_BYTES, ROUTE: MAX_NOTIFICATION_BYTES}
Reader = Annotated[Principal, require_scope("runs:read")]
Writer = Annotated[Principal, require_scope("runs:write")]
Reviewer = Annotated[Principal, require_scope("reviews:write")]
Limit = Annotated[int, Query(ge=1, le=100)]
ActionKey = Annotated[
    str | None, idempotency_key_header("The same action with the same key happens once; repeats get the first answer.")
]
_JSON_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
_CSV_BODY = {"requestBody": {"required": True, "description": "A CSV file.", "content": document_binary("")["content"]}}
_RESPONSES = document_problems(400, 401, 403, 404, 409, 413, 422, 429, 503)


class CodeRoute(ProblemRoute):
    """Answers an error of this application with the code that it names."""

    def change_problem(self, problem: Problem, error: Exception, request: Request) -> None:
        if not isinstance(error, Problem) and isinstance(code := getattr(error, "code", None), str):
            problem.code = code
        if isinstance(error, imports.InvalidFile):
            problem.members = {"lines": [_format_line_error(each) for each in error.preview.errors]}


job_router = APIRouter(tags=["autowriter"], route_class=CodeRoute, responses=_RESPONSES)
webhook_router = APIRouter(
    tags=["autowriter"],
    route_class=CodeRoute,
    dependencies=[public],
    responses=document_problems(401, 404, 409, 413, 422),
)
router = APIRouter(prefix=PREFIX, tags=["autowriter"], route_class=CodeRoute, responses=_RESPONSES)


@job_router.post(
    "/jobs",
    status_code=202,
    summary="Request an article",
    response_model=JobDetails,
    responses={200: {"model": JobDetails, "description": "The article is finished."}},
)
async def request_job(body: JobRequest, by: Writer, key: ActionKey = None) -> Response:
    """Answer 202 if the article is new or in progress, and 200 if it is finished.

    Answer 422 if the same article was requested with other optional fields, and 422 with the code `NO_MODEL` if no
    language model is configured for its theme. The key, if any, belongs to `regenerate`: it happens once per key."""
    _check_own_blog(by, body.blog_id)
    model = await _get_model(by, body.blog_id)
    requested = await articles.request_article(
        by.client, model, body.article, regenerate=body.regenerate, by=by.author, key=key
    )
    shown = _format_details(await get_details(by.client, requested.run))
    return JSONResponse(shown, 200 if requested.run.is_over else 202, {"Location": f"{PREFIX}/jobs/{requested.run.id}"})


@job_router.get("/jobs", summary="List articles, newest first", response_model=JobPage)
async def list_jobs(
    by: Reader,
    blog_id: Annotated[str | None, Query(max_length=100)] = None,
    state: ArticleState | None = None,
    before: UUID | None = None,
    limit: Limit = 20,
) -> dict[str, Any]:
    """With `state`, a page may have fewer articles than `limit` although `next` leads to more."""
    runs, before = await find_article_runs(by.client, blog_id=blog_id, state=state, before=before, limit=limit)
    found = [await get_summary(by.client, run) for run in runs]
    return {"jobs": [_format_summary(each) for each in found], "next": None if before is None else str(before)}


@job_router.get("/jobs/{job:uuid}", summary="Show an article with its results so far", response_model=JobDetails)
async def get_job(job: UUID, by: Reader) -> dict[str, Any]:
    return _format_details(await get_details(by.client, await _get_run(by, job)))


@job_router.post("/jobs/{job:uuid}/cancel", summary="Cancel an article", response_model=JobDetails)
async def cancel_job(job: UUID, by: Writer, key: ActionKey = None) -> dict[str, Any]:
    run = await _get_run(by, job)
    await articles.cancel_article(by.client, run, by=by.author, key=key)
    return _format_details(await get_details(by.client, await _get_run(by, job)))


@job_router.post(
    "/jobs/{job:uuid}/rerun", status_code=202, summary="Rerun a part of an article", response_model=RerunStarted
)
async def rerun_job(job: UUID, body: JobRerunRequest, by: Writer, key: ActionKey = None) -> dict[str, Any]:
    if sum(each is not None for each in (body.group, body.step, body.from_step)) != 1:
        raise Problem(422, "INVALID_REQUEST", "pass exactly one of `group`, `step` and `from_step`")
    run = await _get_run(by, job)
    started = await articles.rerun_part(
        by.client,
        run,
        group=body.group,
        step=body.step,
        from_step=body.from_step,
        downstream=body.downstream,
        by=by.author,
        key=key,
    )
    return {"job_id": str(run.id), "revision": started.number, "jobs": started.jobs}


@job_router.post(
    "/jobs/{job:uuid}/regenerate", status_code=202, summary="Write an article again", response_model=RerunStarted
)
async def regenerate_job(job: UUID, by: Writer, key: ActionKey = None) -> dict[str, Any]:
    run = await _get_run(by, job)
    started = await articles.regenerate_article(by.client, run, by=by.author, key=key)
    return {"job_id": str(run.id), "revision": started.number, "jobs": started.jobs}


@job_router.post(
    "/jobs/{job:uuid}/decision", summary="Decide an article that needs a review", response_model=JobDetails
)
async def decide_job(job: UUID, body: JobDecisionRequest, by: Reviewer, key: ActionKey = None) -> dict[str, Any]:
    run = await _get_run(by, job)
    review = await get_open_review(by.client, run.id)
    if review is None:
        raise Conflict(f"article {run.id} is {run.state} and waits for no decision")
    await decide_article(
        by.client, review, body.action, by=by.author, notes=body.notes, step=body.step, seen=body.seen, key=key
    )
    return _format_details(await get_details(by.client, await _get_run(by, job)))


@job_router.post(
    "/jobs/{job:uuid}/refresh", summary="Ask WordPress for the events of an article", response_model=JobDetails
)
async def refresh_job(job: UUID, by: Writer) -> dict[str, Any]:
    run = await _get_run(by, job)
    try:
        await refresh_events(by.client, run)
    except (RetryLater, GiveUp) as error:
        raise Problem(503, "WORDPRESS_UNAVAILABLE", str(error), headers={"Retry-After": "30"}) from error
    return _format_details(await get_details(by.client, run))


@webhook_router.post(
    ROUTE,
    status_code=204,
    summary="Receive a notification of the plugin",
    response_class=Response,
    openapi_extra=_JSON_BODY,
)
async def receive_wordpress_notification(request: Request) -> Response:
    """Its signature is checked instead of a key."""
    client: Client = request.app.state.client
    application = client.app.find_owner(article.name) if client.app else None
    assert application is not None
    try:
        await receive_notification(client.scope_to(application), request.headers, await _read_body(request))
    except BadSignature as error:
        raise Problem(401, "HMAC_INVALID", str(error)) from error
    return Response(status_code=204)


@router.post(
    "/imports",
    status_code=202,
    summary="Import a CSV file of articles",
    response_model=ImportDetails,
    openapi_extra=_CSV_BODY,
)
async def start_import(
    request: Request,
    by: Writer,
    name: Annotated[str, Query(max_length=200, description="The name of the file.")] = "articles.csv",
    skip_invalid: Annotated[bool, Query(description="Import the valid lines of a file with errors.")] = False,
    key: ActionKey = None,
) -> Response:
    run = await imports.start_import(
        by.client,
        await _get_model(by),
        await _read_body(request),
        name=name,
        skip_invalid=skip_invalid,
        key=key,
    )
    return JSONResponse(await _format_import(by, run), 202, {"Location": f"{IMPORTS}/{run.id}"})


@router.post("/imports/preview", summary="Check a CSV file", response_model=ImportPreview, openapi_extra=_CSV_BODY)
async def preview_import(request: Request, by: Reader) -> dict[str, Any]:
    preview = await imports.preview_file(by.client, await _get_model(by), await _read_body(request))
    return {
        "valid": len(preview.lines),
        "articles": [{"line": each.line, **each.article.model_dump()} for each in preview.lines],
        "errors": [_format_line_error(each) for each in preview.errors],
    }


@router.get("/imports/{import_id:uuid}", summary="Show an import", response_model=ImportDetails)
async def get_import(import_id: UUID, by: Reader) -> dict[str, Any]:
    return await _format_import(by, await imports.get_import_run(by.client, import_id))


@router.post("/imports/{import_id:uuid}/cancel", summary="Cancel an import", response_model=ImportDetails)
async def cancel_import(import_id: UUID, by: Writer, key: ActionKey = None) -> dict[str, Any]:
    """Cancel the articles that it has started too, except those that were requested before."""
    run = await imports.get_import_run(by.client, import_id)
    await by.client.runs.cancel(run.id, by=by.author, key=key)
    return await _format_import(by, await imports.get_import_run(by.client, import_id))


@router.get("/blogs", summary="List blogs", response_model=BlogList)
async def list_blogs(by: Reader) -> dict[str, Any]:
    found = await blogs.list_blogs(by.client)
    return {"blogs": [{"blog_id": blog_id, **blog.model_dump()} for blog_id, blog in found.items()]}


@router.put("/blogs/{blog_id}", summary="Create or change a blog", response_model=BlogDetails)
async def set_blog(blog_id: BlogId, body: Annotated[Blog, Body()], by: Writer) -> dict[str, Any]:
    return {"blog_id": blog_id, **(await blogs.set_blog(by.client, blog_id, body)).model_dump()}


@router.get("/metrics", summary="Throughput, failure and retry rates, and mean cost", response_model=MetricsList)
async def get_metrics(by: Reader) -> dict[str, Any]:
    if not by.sees_all_tenants:
        raise Problem(403, "OTHER_TENANT", "the metrics are of all blogs: use a key for all tenants")
    return {"metrics": [asdict(await measure_articles(by.client, period)) for period in PERIODS]}


router.include_router(job_router)


async def _get_model(by: Principal, blog_id: str | None = None) -> LanguageModel:
    model: LanguageModel = get_first_provider(await by.client.get_resource("llm", tenant=blog_id))
    return model


def _check_own_blog(by: Principal, blog_id: str) -> None:
    if not by.sees(blog_id):
        raise blogs.BlogNotFound(blog_id)


async def _get_run(by: Principal, job: UUID) -> Run:
    return await articles.get_article_run(by.client, job)


async def _read_body(request: Request) -> bytes:
    return b"".join([chunk async for chunk in request.stream()])


def _format_summary(summary: ArticleSummary) -> dict[str, Any]:
    run, request, published = summary.run, summary.request, summary.published
    return {
        "job_id": str(run.id),
        "idempotency_key": request.identity,
        "blog_id": request.blog_id,
        "theme": request.theme,
        "language": request.language,
        "word_count": request.word_count,
        "state": summary.state,
        "step": summary.step,
        "revision": run.revision,
        "pipeline_version": summary.pipeline_version,
        "post_id": published.post_id if published else None,
        "edit_url": published.edit_url if published else None,
        "created_at": run.created_at.isoformat(),
        "end_time": _format_time(run.ended_at),
    }


def _format_details(details: ArticleDetails) -> dict[str, Any]:
    review, ending = details.review, details.ending
    return _format_summary(details.summary) | {
        "request": details.summary.request.model_dump(),
        "start_time": _format_time(details.start_time),
        "steps": [_format_step(each, details) for each in details.steps],
        "outputs": details.summary.results,
        "providers": details.providers,
        "tokens_in": sum(each.tokens_in for each in details.charges),
        "tokens_out": sum(each.tokens_out for each in details.charges),
        "cost_micros": details.cost,
        "artifacts": [file.model_dump() for file in details.artifacts],
        "events": [{"sequence": event.sequence, **event.body} for event in details.events],
        "review": None
        if review is None
        else {
            "id": str(review.id),
            "step": review.step,
            "revision": review.revision,
            "can_rerun": list(review.can_send_back_to),
        },
        "error": None if details.error is None else _format_error(details.error),
        "ended": None if ending is None else {"by": ending.by, "reason": ending.reason},
    }


def _format_line_error(error: LineError) -> dict[str, Any]:
    return {"line": error.line, "code": error.code, "message": error.message}


def _format_error(error: ArticleError) -> dict[str, Any]:
    known = error.known
    return {
        "step": error.step,
        "code": error.code,
        "message": error.message,
        "error_class": known.error_class if known else None,
        "retried": known.is_retried if known else None,
        "next_action": known.next_action if known else None,
        "actor": known.actor if known else None,
    }


def _format_step(step: StepProgress, details: ArticleDetails) -> Mapping[str, Any]:
    is_timed = step.started_at is not None and step.ended_at is not None
    return {
        "step": step.step,
        "jobs": {str(state): count for state, count in step.jobs.items()},
        "start_time": _format_time(step.started_at),
        "end_time": _format_time(step.ended_at),
        "seconds": (step.ended_at - step.started_at).total_seconds() if is_timed else None,  # type: ignore[operator]
        "stale": step.step in details.stale,
        "providers": details.list_providers_of(step.step),
        "models": details.list_models_of(step.step),
        "failed_attempts": [_format_failure(each) for each in details.failures if each.step == step.step],
        "successful_attempts": [_format_attempt(each) for each in details.successes if each.step == step.step],
    }


def _format_failure(event: Event) -> dict[str, Any]:
    error = event.data
    return _format_attempt(event) | {
        "code": standard_code(str(error.get("code") or "ERROR")),
        "message": error.get("message"),
        "next_provider": error.get("next_provider"),
    }


def _format_attempt(event: Event) -> dict[str, Any]:
    return {
        "item": event.item or None,
        "revision": event.revision,
        "attempt": event.attempt,
        "at": event.at.isoformat(),
        "provider": (event.data or {}).get("provider"),
    }


async def _format_import(by: Principal, run: Run) -> dict[str, Any]:
    progress = await imports.get_import_progress(by.client, run)
    return {
        "import_id": str(run.id),
        "state": run.state,
        "lines": {str(state): count for state, count in progress.totals.states.items()},
        "needs_review": progress.in_review,
        "cost_micros": await imports.get_import_cost(by.client, run),
        "skipped_lines": run.input["skipped_lines"],
        "created_at": run.created_at.isoformat(),
        "end_time": _format_time(run.ended_at),
    }


def _format_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
