"""Decisions in the API, and the fields that each checkpoint accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retoma import Client
from retoma.errors import InvalidInput
from retoma.records import Review
from retoma.reviews import Comment, Decision
from retoma_apps.media.voices import check_voice
from retoma_apps.videos.models import FinalChoice, FinalFeedback, UtcDatetime

ACTIONS = {"approved": "approve", "rejected": "reject", "revision_requested": "send_back"}
COMMON_FIELDS = {"action", "notes", "reviewer", "seen"}
FEEDBACK_FIELDS = set(FinalFeedback.model_fields)


WHO_DECIDED = "Who decided, if several people share the key. Recorded with the key's name: `ana, by key n8n`."
Revision = Annotated[int, Field(ge=1, le=10**6)]
Second = Annotated[float, Field(ge=0, le=10**7)]


class Remark(BaseModel):
    """A comment on one moment of a recording, or a range of it, in seconds."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=2000)
    at: Second | None = None
    to: Second | None = None
    quote: str = Field("", max_length=2000, description="The passage that the comment is about.")


class CheckpointDecision(FinalFeedback):
    """A decision. `thumbnail`, `title`, `description`, `tags` and `scheduled_for` are for an approved final review;
    `clips` are the numbers of those to replace, with `queries` by number; `voice` and `rate` are for another narration;
    `value` is a person's version of the approved result. Fields that do not belong to the checkpoint or the action are
    rejected."""

    action: Literal["approved", "rejected", "revision_requested"]
    notes: str = Field("", max_length=20_000)
    reviewer: str = Field("", max_length=200, description=WHO_DECIDED)
    seen: Revision | None = Field(None, description="The `revision` of the checkpoint that the reviewer saw.")
    rewind_to: str | None = Field(None, max_length=100, description="The step to rerun.")
    thumbnail: int | None = Field(None, ge=1, le=3)
    title: str | None = Field(None, min_length=1, max_length=100)
    description: str | None = Field(None, max_length=4500)
    tags: list[Annotated[str, Field(max_length=60)]] | None = Field(None, max_length=30)
    scheduled_for: UtcDatetime | None = Field(None, description="Another publication time than that of the order.")
    clips: list[Annotated[int, Field(ge=1, le=10_000)]] | None = Field(None, max_length=1000)
    comments: list[Remark] = Field([], max_length=500)
    value: Any = Field(None, description="A person's version of the approved result, in the step's format.")


async def build_decision(
    client: Client,
    request: CheckpointDecision,
    review: Review,
    voices: Mapping[str, object],
    *,
    by: str,
    key: str | None,
) -> Decision:
    """Convert a request to a decision. Raise InvalidInput if any field would have no effect."""
    _reject_unknown_fields(request, review)
    if request.voice:
        check_voice(request.voice, (await client.runs.get(review.run)).input["language"], voices)
    await _reject_unknown_clips(client, request, review)
    return Decision(
        ACTIONS[request.action],
        by=format_author(request.reviewer, by),
        seen=request.seen,
        notes=request.notes,
        to=request.rewind_to,
        comments=[Comment(one.text, one.at, one.to, one.quote) for one in request.comments],
        key=key,
        via="api",
        items=[str(number) for number in request.clips] if request.clips else None,
        extra=request.model_dump(include=FEEDBACK_FIELDS, exclude_defaults=True),
        **_approved_value(request, review),
    )


def format_author(reviewer: str, key: str) -> str:
    """Return the author: the key, and the person it claims to act for. Anyone can claim a name; the key was checked."""
    return f"{claimed}, by key {key}" if (claimed := reviewer.strip()) else key


def _reject_unknown_fields(request: CheckpointDecision, review: Review) -> None:
    fields = request.model_dump(exclude_defaults=True).keys()
    if unexpected := sorted(fields - COMMON_FIELDS - _allowed_fields(request, review)):
        raise InvalidInput(f"{', '.join(unexpected)}: not allowed when {review.step} is {request.action}")


def _allowed_fields(request: CheckpointDecision, review: Review) -> set[str]:
    """Return the allowed fields. The review's form rejects feedback that the target step cannot use."""
    match request.action:
        case "approved":
            return set(FinalChoice.model_fields) if review.step == "final_review" else {"value"}
        case "rejected":
            return set()
        case "revision_requested":
            return {"rewind_to", "comments", *FEEDBACK_FIELDS} | (
                {"clips"} if review.step in ("broll_review", "final_review") else set()
            )


async def _reject_unknown_clips(client: Client, request: CheckpointDecision, review: Review) -> None:
    wanted = {*(request.clips or ()), *map(int, request.queries)}
    if not wanted:
        return
    subjects = await client.reviews.get_subjects(review)
    footage = subjects.get("broll_search") or subjects.get("broll_review")
    count = len(footage.value["clips"]) if footage else 0
    if unknown := sorted(number for number in wanted if not 1 <= number <= count):
        raise InvalidInput(f"clips: there is no clip {', '.join(map(str, unknown))}; there are {count}")


def _approved_value(request: CheckpointDecision, review: Review) -> dict[str, Any]:
    if request.action == "approved" and review.step == "final_review":
        chosen = request.model_dump(mode="json", include=set(FinalChoice.model_fields), exclude_none=True)
        if "thumbnail" not in chosen:
            raise InvalidInput("a final review needs `thumbnail`: the number of the chosen one, from 1 to 3")
        return {"value": chosen}
    return {} if request.value is None else {"value": request.value}
