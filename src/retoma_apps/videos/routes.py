"""The routes that callers of the video workflow know."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from retoma import Comment, Decision, Webhook
from retoma.errors import AlreadyDecided, InvalidInput
from retoma.records import Decided, Run
from retoma.server import Caller, Problem, caller, documented, idempotency_key, problem_of, send_file
from retoma.states import JobState, ReviewState, RunState
from retoma_apps.videos import checkpoints
from retoma_apps.videos.channels import brief_of, channel_of
from retoma_apps.videos.checkpoints import TYPES, Kind
from retoma_apps.videos.models import Channel, FilmWishes, FinalChoice, FootageWishes, Language, NarrationWishes, Order
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.stages import stage_of

Reader = Annotated[Caller, caller("runs:read")]
Writer = Annotated[Caller, caller("runs:write")]
Reviewer = Annotated[Caller, caller("reviews:write")]
Limit = Annotated[int, Query(ge=1, le=100)]
Name = Annotated[str, Path(min_length=1, max_length=100)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Key = Annotated[str | None, idempotency_key("The same key and body give the same video, however often they are sent.")]
DecisionKey = Annotated[
    str | None, idempotency_key("The same key again is the same decision: it has no second effect.")
]
MOST_AT_ONCE = 100
_FOR_ONE = "Who asks: what others were handed in the last ten minutes is left out."
SHORTEST_TOPIC = 3
"""Letters, once the spaces around it are gone."""
ACTIONS = {"approved": "approve", "rejected": "reject", "revision_requested": "send_back"}
router = APIRouter(prefix="/api/v1", tags=["videos"], responses=documented(400, 401, 403, 404, 409, 413, 422, 429, 503))


class Remark(BaseModel):
    """About one moment of a recording, or a range of it, in seconds."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2000)
    at: float | None = Field(None, ge=0)
    to: float | None = Field(None, ge=0)


class Verdict(NarrationWishes, FootageWishes, FilmWishes):
    """A decision. `thumbnail`, `title`, `description` and `tags` are for an approved final review; `clips` are the
    numbers of those to replace, with `queries` by number; `voice` and `rate` for another narration; `value` is a
    person's version of what is approved."""

    action: Literal["approved", "rejected", "revision_requested"]
    notes: str = Field("", max_length=20_000)
    reviewer: str = Field("", max_length=200, description="Who decided, if the key stands for several people.")
    seen_revision: int | None = Field(
        None, ge=1, le=10**6, description="The `revision` of the checkpoint as it was seen."
    )
    rewind_to: str | None = Field(None, max_length=100, description="Which step is to be done again.")
    thumbnail: int | None = Field(None, ge=1, le=3)
    title: str | None = Field(None, min_length=1, max_length=100)
    description: str | None = Field(None, max_length=4500)
    tags: list[Annotated[str, Field(max_length=60)]] | None = Field(None, max_length=30)
    clips: list[Annotated[int, Field(ge=1, le=10_000)]] | None = Field(None, max_length=1000)
    comments: list[Remark] = Field([], max_length=500)
    value: Any = Field(None, description="A person's version of what is approved, in the shape of the step's result.")


class BatchApproval(BaseModel):
    model_config = ConfigDict(extra="forbid")

    checkpoint_ids: list[UUID] = Field(min_length=1, max_length=MOST_AT_ONCE)
    notes: str = Field("", max_length=20_000)
    seen_revisions: dict[UUID, int] = Field(
        {}, description="By id, what was seen; where it is left out, the current one."
    )


@router.post("/videos", status_code=202, summary="Order a video")
async def order(given: Order, by: Writer, key: Key = None) -> Response:
    if by.tenant is not None and by.tenant != given.channel:
        raise Problem(404, "NOT_FOUND", f"there is no channel {given.channel!r}")
    if "\x00" in given.topic:
        raise InvalidInput("topic: it has a NUL, which no text has")
    if len(given.topic.strip()) < SHORTEST_TOPIC:
        raise InvalidInput("topic: say what the video is about, in at least three letters")
    brief = await brief_of(by.client, given)
    told = Webhook(given.webhook_url) if given.webhook_url else None
    started = await by.client.start(longform, brief, tenant=given.channel, key=key, webhook=told)
    shown = await _video(by, await by.client.show(started.id))
    return JSONResponse(shown, 202, {"Location": f"/api/v1/videos/{started.id}"})


@router.get("/videos", summary="List videos, the newest first")
async def list_videos(
    by: Reader,
    channel: Annotated[str | None, Query(max_length=100)] = None,
    before: UUID | None = None,
    limit: Limit = 20,
) -> dict[str, Any]:
    tenant = by.tenant if by.tenant is not None else channel
    runs = await by.client.runs(tenant=tenant, pipeline=longform.name, before=before, limit=limit)
    return {
        "videos": [await _video(by, run) for run in runs],
        "next": str(runs[-1].id) if len(runs) == limit else None,
    }


@router.get("/videos/{video:uuid}", summary="Show a video")
async def show_video(video: UUID, by: Reader) -> dict[str, Any]:
    return await _video(by, await _run(by, video))


@router.get("/channels/{channel}", summary="Show what a channel's videos have in common")
async def show_channel(channel: Name, by: Reader) -> Channel:
    _own(by, channel)
    return await channel_of(by.client, channel)


@router.put("/channels/{channel}", summary="Set what a channel's videos have in common")
async def set_channel(channel: Name, given: Channel, by: Writer) -> Channel:
    _own(by, channel)
    await by.client.set_profile(channel, given.model_dump())
    return given


@router.get("/checkpoints/batch", summary="List checkpoints that wait, the oldest first")
async def batch(
    by: Reader,
    type: Literal[TYPES] | None = None,  # type: ignore[valid-type]  # noqa: A002
    after: UUID | None = None,
    limit: Limit = 10,
    reviewer: Annotated[str | None, Query(max_length=200, description=_FOR_ONE)] = None,
) -> dict[str, Any]:
    last = None if after is None else await by.client.review(after, tenant=by.tenant)
    waiting = await by.client.reviews(tenant=by.tenant, pipeline=longform.name, step=type, after=last, limit=limit)
    counts = await by.client.review_counts(tenant=by.tenant)
    total = sum(one.open for one in counts if one.pipeline == longform.name and type in (None, one.step))
    return {
        "batch": [
            await checkpoints.brief_line(by.client, one)
            for one in waiting
            if reviewer is None or await by.client.claim_review(one.id, by=reviewer, tenant=by.tenant) == reviewer
        ],
        "total_pending": total,
        "next": str(waiting[-1].id) if len(waiting) == limit else None,
    }


@router.post("/checkpoints/batch/approve", summary="Approve many checkpoints, each with its own outcome")
async def approve_batch(given: BatchApproval, by: Reviewer, key: DecisionKey = None) -> dict[str, Any]:
    decisions = {
        one: Decision("approve", by=by.name, notes=given.notes, seen=given.seen_revisions.get(one), key=key, via="api")
        for one in dict.fromkeys(given.checkpoint_ids)
    }
    ended = await by.client.decide_many(decisions, tenant=by.tenant)
    return {"results": [_outcome(one) for one in ended], "approved": sum(one.error is None for one in ended)}


@router.get("/checkpoints/{checkpoint:uuid}", summary="Show a checkpoint with all that a person decides by")
async def show_checkpoint(checkpoint: UUID, by: Reader) -> Response:
    review = await by.client.review(checkpoint, tenant=by.tenant)
    shown = await checkpoints.payload(by.client, review)
    return JSONResponse(shown, headers={"ETag": f'"{review.revision}"'})


@router.post("/checkpoints/{checkpoint:uuid}/decision", summary="Decide a checkpoint")
async def decide(checkpoint: UUID, given: Verdict, by: Reviewer, key: DecisionKey = None) -> Response:
    review = await by.client.review(checkpoint, tenant=by.tenant)
    try:
        decided = await by.client.decide(checkpoint, _decision(given, review.step, by, key), tenant=by.tenant)
    except AlreadyDecided as error:
        told = problem_of(error)
        told.members["decision"] = await checkpoints.payload(by.client, error.winner)
        raise told from error
    return JSONResponse(await checkpoints.payload(by.client, decided))


@router.get("/files/{kind}/{video:uuid}/{digest}/{name}", summary="Fetch a file of a video", response_class=Response)
async def fetch(
    kind: Kind,
    video: UUID,
    digest: Digest,
    name: Name,
    by: Reader,
    part: Annotated[str | None, Header(alias="Range")] = None,
) -> Response:
    """`kind` and `name` are for people: the content alone says which file it is."""
    await _run(by, video)
    app = by.client.app
    return await send_file(app.files if app else None, await by.client.file(video, digest), part)


def _decision(given: Verdict, step: str, by: Caller, key: str | None) -> Decision:
    values: dict[str, Any] = {}
    if given.action == "approved" and step == "final_review":
        chosen = given.model_dump(include=set(FinalChoice.model_fields), exclude_none=True)
        if "thumbnail" not in chosen:
            raise InvalidInput("a final review needs `thumbnail`: which of the three is chosen, counted from 1")
        values["value"] = chosen
    elif given.action == "approved" and given.value is not None:
        values["value"] = given.value
    return Decision(
        ACTIONS[given.action],
        by=given.reviewer.strip() or by.name,
        seen=given.seen_revision,
        notes=given.notes,
        to=given.rewind_to if given.action == "revision_requested" else None,
        comments=[Comment(one.text, one.at, one.to) for one in given.comments],
        key=key,
        via="api",
        items=[str(number) for number in given.clips] if given.clips else None,
        extra=given.model_dump(include={"voice", "rate", "queries", "subtitles"}, exclude_unset=True),
        **values,
    )


def _outcome(one: Decided) -> dict[str, Any]:
    if one.error is None:
        return {"checkpoint_id": str(one.review), "status": "approved"}
    told = problem_of(one.error)
    return {"checkpoint_id": str(one.review), "status": "error", "code": told.code, "error": told.detail}


def _own(by: Caller, channel: str) -> None:
    if by.tenant is not None and by.tenant != channel:
        raise Problem(404, "NOT_FOUND", f"there is no channel {channel!r}")


async def _run(by: Caller, video: UUID) -> Run:
    run = await by.client.show(video, tenant=by.tenant)
    if run.pipeline != longform.name:
        raise Problem(404, "NOT_FOUND", f"there is no video {video}")
    return run


async def _video(by: Caller, run: Run) -> dict[str, Any]:
    jobs = {job.step: job for job in await by.client.jobs(run.id)}
    done = {step for step, job in jobs.items() if job.state is JobState.SUCCEEDED}
    script = next((jobs[step].output for step in ("script_review", "script_generation") if step in done), None)
    upload = jobs["upload"].output if "upload" in done else None
    waiting = await by.client.reviews(run=run.id) if run.state in (RunState.PAUSED, RunState.NEEDS_REVIEW) else []
    return {
        "id": str(run.id),
        "topic": run.input["topic"],
        "title": script["title"] if script else None,
        "channel": run.tenant,
        "language": _language(run),
        "stage": stage_of(run.state, done, begun=any(job.attempt for job in jobs.values())),
        "status": run.state,
        "current_step": None if run.is_over else next((step for step in longform.steps if step not in done), None),
        "error_message": await _error(by, run, [step for step, job in jobs.items() if job.state is JobState.FAILED]),
        "revision": run.revision,
        "steps_done": sorted(done, key=list(longform.steps).index),
        "scheduled_for": run.input.get("scheduled_for"),
        "checkpoint": {"id": str(waiting[0].id), "type": waiting[0].step} if waiting else None,
        "url": upload["url"] if upload else None,
        "created_at": run.created_at.isoformat(),
        "ended_at": run.ended_at.isoformat() if run.ended_at else None,
    }


async def _error(by: Caller, run: Run, failed: Collection[str]) -> str | None:
    """Why a video came to no good end: which step failed, or who rejected what."""
    if run.state is RunState.REJECTED:
        (review,) = await by.client.reviews(run=run.id, states=[ReviewState.REJECTED], limit=1)
        return f"Rejected at {review.step}: {review.notes}"
    if run.state is not RunState.FAILED:
        return None
    errors = await by.client.errors(run.id)
    return next((f"{step}: {said.get('message')}" for (step, _), said in errors.items() if step in failed), None)


def _language(run: Run) -> Language:
    language: Language = run.input["language"]
    return language
