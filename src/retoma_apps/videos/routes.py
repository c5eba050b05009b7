"""The HTTP routes of the video workflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from retoma.errors import AccessDenied, AlreadyDecided, NotFound, RetomaError
from retoma.records import DecisionResult, Review, Run, Scope
from retoma.reviews import Decision
from retoma.server import (
    Principal,
    Problem,
    document_binary,
    document_problems,
    get_public_url,
    idempotency_key_header,
    require_scope,
    require_scope_or_link,
    send_file,
    to_problem,
)
from retoma_apps.media import topic_list
from retoma_apps.media.channels import check_own_channel, get_channel_and_revision
from retoma_apps.media.channels import get_channel as load_channel
from retoma_apps.media.models import Channel, ChannelName, Language
from retoma_apps.media.topic_list import TopicList
from retoma_apps.media.voices import check_voice
from retoma_apps.videos.models import BatchOrder, Order
from retoma_apps.videos.operations import batches, channels, checkpoints
from retoma_apps.videos.operations.budgets import apply_budget
from retoma_apps.videos.operations.channels import check_account
from retoma_apps.videos.operations.checkpoints import TYPES, Kind
from retoma_apps.videos.operations.decisions import (
    WHO_DECIDED,
    CheckpointDecision,
    Revision,
    build_decision,
    format_author,
)
from retoma_apps.videos.operations.overview import Overview, get_overview, get_start_at
from retoma_apps.videos.pipeline import longform, video_batch
from retoma_apps.videos.schemas import (
    Batch,
    BatchPage,
    Checkpoint,
    CheckpointOutcomes,
    CheckpointPage,
    Video,
    VideoPage,
)
from retoma_apps.videos.services import Services
from retoma_apps.videos.states import Stage
from retoma_apps.videos.steps.writing.bundled import NeedsLanguageModel

Reader = Annotated[Principal, require_scope("runs:read")]
Viewer = Annotated[Principal, require_scope_or_link("runs:read", run="video", digest="digest")]
Writer = Annotated[Principal, require_scope("runs:write")]
Reviewer = Annotated[Principal, require_scope("reviews:write")]
Limit = Annotated[int, Query(ge=1, le=100)]
Name = Annotated[str, Path(min_length=1, max_length=100)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Key = Annotated[str | None, idempotency_key_header("The same key and body always return the same video.")]
BatchKey = Annotated[str | None, idempotency_key_header("The same key and body always return the same batch.")]
DecisionKey = Annotated[
    str | None, idempotency_key_header("The same key is the same decision: repeats have no effect.")
]
MAX_BATCH_SIZE = 100
_REVIEWER_DESCRIPTION = (
    "Claim checkpoints for this reviewer; those that others claimed in the last ten minutes are left out. "
    "Needs `reviews:write`."
)
router = APIRouter(
    prefix="/api/v1", tags=["videos"], responses=document_problems(400, 401, 403, 404, 409, 413, 422, 429, 503)
)


class BatchApproval(BaseModel):
    model_config = ConfigDict(extra="forbid")

    checkpoint_ids: list[UUID] = Field(min_length=1, max_length=MAX_BATCH_SIZE)
    notes: str = Field("", max_length=20_000)
    reviewer: str = Field("", max_length=200, description=WHO_DECIDED)
    seen: dict[UUID, Revision] = Field(
        {}, max_length=MAX_BATCH_SIZE, description="The seen revision by id; default: the current one."
    )


@router.post("/videos", status_code=202, summary="Order a video", response_model=Video)
async def order_video(order: Order, by: Writer, key: Key = None) -> Response:
    check_own_channel(by, order.channel)
    services: Services = await by.client.get_resource("services", tenant=order.channel)
    with _name_missing_model():
        video = await channels.start_video(by.client, order, services.writer, key=key)
    shown = await _describe_video(by, await by.client.runs.get(video))
    return JSONResponse(shown, 202, {"Location": f"/api/v1/videos/{video}"})


@router.get("/videos", summary="List videos, newest first", response_model=VideoPage)
async def list_videos(
    by: Reader,
    channel: Annotated[str | None, Query(max_length=100)] = None,
    before: UUID | None = None,
    limit: Limit = 20,
) -> dict[str, Any]:
    runs = await by.client.runs.list(tenant=channel, pipeline=longform.name, before=before, limit=limit)
    return {
        "videos": [await _describe_video(by, run) for run in runs],
        "next": str(runs[-1].id) if len(runs) == limit else None,
    }


@router.get("/topics", summary="List the topics that can be ordered")
async def list_topics(by: Reader, language: Language | None = None) -> TopicList:
    services: Services = await by.client.get_resource("services")
    return topic_list.list_topics(services.writer.topics, language)


@router.get("/videos/{video:uuid}", summary="Get a video", response_model=Video)
async def get_video(video: UUID, by: Reader) -> dict[str, Any]:
    return await _describe_video(by, await _get_run(by, video))


@router.post("/videos/batches", status_code=202, summary="Order many videos", response_model=Batch)
async def order_batch(order: BatchOrder, by: Writer, key: BatchKey = None) -> Response:
    for video in order.videos:
        check_own_channel(by, video.channel)
    with _name_missing_model():
        batch = await batches.start_batch(by.client, order, key=key)
    shown = await _describe_batch(by, await by.client.runs.get(batch))
    return JSONResponse(shown, 202, {"Location": f"/api/v1/videos/batches/{batch}"})


@router.get("/videos/batches", summary="List batches, newest first", response_model=BatchPage)
async def list_batches(by: Reader, before: UUID | None = None, limit: Limit = 20) -> dict[str, Any]:
    runs = await by.client.runs.list(pipeline=video_batch.name, before=before, limit=limit)
    return {
        "batches": [await _summarize_batch(by, run) for run in runs],
        "next": str(runs[-1].id) if len(runs) == limit else None,
    }


@router.get("/videos/batches/{batch:uuid}", summary="Get a batch with its videos", response_model=Batch)
async def get_batch(batch: UUID, by: Reader) -> dict[str, Any]:
    return await _describe_batch(by, await batches.get_batch_run(by.client, batch))


@router.get("/channels/{channel}", summary="Get a channel's settings")
async def get_channel(channel: ChannelName, by: Reader) -> Channel:
    check_own_channel(by, channel)
    return await load_channel(by.client, channel)


@router.put("/channels/{channel}", summary="Change a channel's settings")
async def set_channel(channel: ChannelName, body: Channel, by: Writer) -> Channel:
    check_own_channel(by, channel)
    stored, revision = await get_channel_and_revision(by.client, channel)
    body = _keep_account(body, stored, by)
    services: Services = await by.client.get_resource("services", tenant=channel)
    check_voice(body.voice, body.language, services.voices, stored.voice)
    await by.client.tenants.set_profile(channel, body.model_dump(), revision=revision)
    await apply_budget(by.client, channel, body)
    return body


@router.get("/checkpoints/batch", summary="List open checkpoints, oldest first", response_model=CheckpointPage)
async def list_checkpoints(
    by: Reader,
    type: Literal[TYPES] | None = None,  # type: ignore[valid-type]  # noqa: A002
    after: UUID | None = None,
    limit: Limit = 10,
    reviewer: Annotated[str | None, Query(min_length=1, max_length=200, description=_REVIEWER_DESCRIPTION)] = None,
) -> dict[str, Any]:
    if reviewer is not None and not by.has_scope(Scope.REVIEWS_WRITE):
        raise Problem(
            403, "SCOPE_MISSING", "claiming checkpoints needs the scope reviews:write", scope=Scope.REVIEWS_WRITE
        )
    last = None if after is None else await _get_review(by, after)
    waiting = await _list_waiting(by, type, last, limit, None if reviewer is None else format_author(reviewer, by.name))
    counts = await by.client.reviews.count_open()
    total = sum(one.open for one in counts if one.pipeline == longform.name and type in (None, one.step))
    return {
        "batch": [await checkpoints.get_summary(by.client, one) for one in waiting],
        "total_pending": total,
        "next": str(waiting[-1].id) if len(waiting) == limit else None,
    }


@router.post(
    "/checkpoints/batch/approve",
    summary="Approve many checkpoints, each with its own outcome",
    response_model=CheckpointOutcomes,
    response_model_exclude_none=True,
)
async def approve_checkpoints(body: BatchApproval, by: Reviewer, key: DecisionKey = None) -> dict[str, Any]:
    who = format_author(body.reviewer, by.name)
    decisions = {
        one: Decision("approve", by=who, notes=body.notes, seen=body.seen.get(one), key=key, via="api")
        for one in dict.fromkeys(body.checkpoint_ids)
    }
    ended = [await _decide(by, checkpoint, decision) for checkpoint, decision in decisions.items()]
    return {"results": [_format_outcome(one) for one in ended], "approved": sum(one.error is None for one in ended)}


@router.get(
    "/checkpoints/{checkpoint:uuid}",
    summary="Get a checkpoint with all data for the decision",
    response_model=Checkpoint,
)
async def get_checkpoint(request: Request, checkpoint: UUID, by: Reader) -> Response:
    review = await _get_review(by, checkpoint)
    shown = await checkpoints.get_payload(by.client, review, get_public_url(request))
    return JSONResponse(shown, headers={"ETag": f'"{review.revision}"'})


@router.post("/checkpoints/{checkpoint:uuid}/decision", summary="Decide a checkpoint", response_model=Checkpoint)
async def decide_checkpoint(
    request: Request, checkpoint: UUID, body: CheckpointDecision, by: Reviewer, key: DecisionKey = None
) -> Response:
    review = await _get_review(by, checkpoint)
    services: Services = await by.client.get_resource("services", tenant=review.tenant)
    decision = await build_decision(by.client, body, review, services.voices, by=by.name, key=key)
    try:
        decided = await by.client.reviews.decide(checkpoint, decision)
    except AlreadyDecided as error:
        problem = to_problem(error)
        problem.members["decision"] = await checkpoints.get_payload(by.client, error.winner, get_public_url(request))
        raise problem from error
    return JSONResponse(await checkpoints.get_payload(by.client, decided, get_public_url(request)))


@router.get(
    "/files/{kind}/{video:uuid}/{digest}/{name}",
    summary="Download a file of a video",
    response_class=Response,
    responses={
        200: document_binary("The content."),
        206: document_binary("The part of the file that `Range` requests."),
    },
)
async def download_video_file(
    kind: Kind,
    video: UUID,
    digest: Digest,
    name: Name,
    by: Viewer,
    part: Annotated[str | None, Header(alias="Range")] = None,
) -> Response:
    """`kind` and `name` are for people: only the digest identifies the file."""
    await _get_run(by, video)
    return await send_file(by.application.files, await by.client.files.get(video, digest), part)


async def _list_waiting(
    by: Principal, step: str | None, last: Review | None, limit: int, reviewer: str | None
) -> list[Review]:
    """Return open reviews after `last`; for a reviewer, only those that others have not claimed."""
    found: list[Review] = []
    page_size = limit if reviewer is None else MAX_BATCH_SIZE
    while True:
        page = await by.client.reviews.list(pipeline=longform.name, step=step, after=last, limit=page_size)
        for last in page:
            if reviewer is None or await _claim_for_reviewer(by, last, reviewer):
                found.append(last)
            if len(found) == limit:
                return found
        if len(page) < page_size:
            return found


async def _claim_for_reviewer(by: Principal, review: Review, reviewer: str) -> bool:
    if review.claimed_by not in (None, reviewer):
        return False
    return await by.client.reviews.claim(review.id, by=reviewer) == reviewer


async def _get_review(by: Principal, checkpoint: UUID) -> Review:
    """Return the review. Raise NotFound for a review of another pipeline too."""
    review = await by.client.reviews.get(checkpoint)
    if review.pipeline != longform.name:
        raise NotFound(f"there is no checkpoint {checkpoint}")
    return review


async def _decide(by: Principal, checkpoint: UUID, decision: Decision) -> DecisionResult:
    try:
        review = await _get_review(by, checkpoint)
        return DecisionResult(checkpoint, await by.client.reviews.decide(review.id, decision))
    except RetomaError as error:
        return DecisionResult(checkpoint, error=error)


def _format_outcome(one: DecisionResult) -> dict[str, Any]:
    if one.error is None:
        return {"checkpoint_id": str(one.review), "status": "approved"}
    problem = to_problem(one.error)
    return {"checkpoint_id": str(one.review), "status": "error", "code": problem.code, "error": problem.detail}


@contextmanager
def _name_missing_model() -> Iterator[None]:
    try:
        yield
    except NeedsLanguageModel as error:
        raise Problem(422, "NEEDS_LANGUAGE_MODEL", str(error)) from error


def _keep_account(channel: Channel, stored: Channel, by: Principal) -> Channel:
    """Return the settings to store, with the account that is stored unless one is named."""
    if "account" not in channel.model_fields_set and not by.sees_all_tenants:
        return channel.model_copy(update={"account": stored.account})
    try:
        check_account(by.client, channel, stored)
    except AccessDenied as error:
        raise Problem(403, "OTHER_ACCOUNT", str(error)) from error
    return channel


async def _get_run(by: Principal, video: UUID) -> Run:
    run = await by.client.runs.get(video)
    if run.pipeline != longform.name:
        raise Problem(404, "NOT_FOUND", f"there is no video {video}")
    return run


async def _describe_video(by: Principal, run: Run) -> dict[str, Any]:
    overview = await get_overview(by.client, run)
    start_at = get_start_at(run)
    return {
        "id": str(run.id),
        "topic": run.input["topic"],
        "title": overview.title,
        "channel": run.tenant,
        "batch_id": str(run.parent) if run.parent else None,
        "language": run.input["language"],
        "stage": overview.stage,
        "status": run.state,
        "current_step": overview.step,
        "error_message": _describe_error(overview),
        "revision": run.revision,
        "steps_done": list(overview.done),
        "start_at": start_at.isoformat() if start_at else None,
        "scheduled_for": run.input.get("scheduled_for"),
        "checkpoint": {"id": str(overview.review.id), "type": overview.review.step} if overview.review else None,
        "url": overview.upload.get("url"),
        "thumbnail_refused": overview.upload.get("thumbnail_refused"),
        "analytics": overview.done.get("analytics_init"),
        "created_at": run.created_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }


async def _summarize_batch(by: Principal, run: Run) -> dict[str, Any]:
    summary = await batches.get_batch_summary(by.client, run)
    start_at = get_start_at(run)
    return {
        "id": str(run.id),
        "status": run.state,
        "total": summary.total,
        "published": summary.published,
        "failed": summary.failed,
        "in_review": summary.in_review,
        "cost_micros": await batches.get_cost(by.client, run),
        "start_at": start_at.isoformat() if start_at else None,
        "created_at": run.created_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }


async def _describe_batch(by: Principal, run: Run) -> dict[str, Any]:
    videos = await batches.list_batch_videos(by.client, run)
    return await _summarize_batch(by, run) | {
        "videos": [
            {
                "number": video.number,
                "channel": video.channel,
                "topic": video.brief["topic"],
                "language": video.brief["language"],
                "scheduled_for": video.brief.get("scheduled_for"),
                "video_id": str(video.run.id) if video.run else None,
                "status": video.state,
                "error_message": video.error,
            }
            for video in videos
        ]
    }


def _describe_error(overview: Overview) -> str | None:
    """Describe why a video failed: the failed step, the rejected review, or that it was cancelled."""
    if overview.stage is Stage.CANCELLED:
        return "Cancelled"
    if overview.end is None:
        return None
    return f"{'Rejected at ' if overview.stage is Stage.REJECTED else ''}{overview.end.step}: {overview.end.reason}"
