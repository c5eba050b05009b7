"""Batches: one order for many videos, of one channel or of several. Each video is a child run of the batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from retoma import Client, Webhook
from retoma.errors import InvalidInput, NotFound
from retoma.records import ItemStatus, Run
from retoma.states import JobState, RunState
from retoma_apps.media.channels import get_channel
from retoma_apps.videos.models import MAX_BATCH_VIDEOS, Batch, BatchOrder, PlannedVideo
from retoma_apps.videos.operations.budgets import ensure_budget
from retoma_apps.videos.operations.channels import (
    TooLate,
    create_brief,
    find_lateness,
    find_topic_problem,
)
from retoma_apps.videos.pipeline import video_batch
from retoma_apps.videos.services import Services
from retoma_apps.videos.steps.writing.bundled import NeedsLanguageModel
from retoma_apps.videos.steps.writing.port import Writer

ITEMS_STEP = "videos"


@dataclass(frozen=True)
class BatchVideo:
    """A video of a batch. `number` is its place in the order, from 1; `run` is None until it has started."""

    number: int
    channel: str
    brief: dict[str, Any]
    run: Run | None
    state: RunState
    error: str | None


@dataclass(frozen=True)
class BatchSummary:
    """The number of videos in the order, of those that were published, of those that ended in any other way, and of
    those that wait for a review."""

    run: Run
    total: int
    published: int
    failed: int
    in_review: int

    @property
    def waits_for_people(self) -> bool:
        """Whether nothing but reviews is left to do, although the run of the batch is running."""
        return 0 < self.total - self.published - self.failed <= self.in_review


async def start_batch(client: Client, order: BatchOrder, *, key: str | None) -> UUID:
    """Start a batch and return its run; the same order under the same key returns the first run.

    Raise Conflict if the key belongs to another order, TooLate,
    NeedsLanguageModel if the writer of a channel does not know its topic, or InvalidInput if a video occurs twice.
    """
    owner = client.tenants.choose_owner(video.channel for video in order.videos)
    writers = {name: await _get_writer(client, name) for name in {video.channel for video in order.videos}}
    batch = await _plan(client, order, writers)
    problem = await _find_lateness(client, order) or _find_topic_problem(batch, writers)
    if problem and not (key and await client.runs.find_by_key(key, video_batch, tenant=owner)):
        raise problem
    for channel in sorted({video.channel for video in order.videos}):
        await ensure_budget(client, channel, await get_channel(client, channel))
    webhook = Webhook(order.webhook_url) if order.webhook_url else None
    started = await client.start(
        video_batch, batch, tenant=owner, key=key, webhook=webhook, request=order, run_at=order.start_at
    )
    return started.id


async def get_batch_run(client: Client, batch: UUID) -> Run:
    run = await client.runs.get(batch)
    if run.pipeline != video_batch.name:
        raise NotFound(f"there is no batch {batch}")
    return run


async def get_batch_summary(client: Client, run: Run) -> BatchSummary:
    states = (await client.runs.get_item_totals(run.id, ITEMS_STEP)).states
    children = {} if run.is_over else await client.runs.count_children(run.id)
    return BatchSummary(
        run,
        len(run.input["videos"]),
        published=states.get(JobState.SUCCEEDED, 0),
        failed=states.get(JobState.FAILED, 0),
        in_review=sum(count for state, count in children.items() if state.waits_for_people),
    )


async def get_cost(client: Client, run: Run) -> int:
    """Return what the batch and its videos have cost so far, in millionths of a US dollar."""
    return sum(total.micros for total in await client.costs.get_totals(by=(), run=run.id))


async def list_batch_videos(client: Client, run: Run) -> list[BatchVideo]:
    """Return the videos of a batch in the order of the request."""
    children = await _find_children(client, run)
    items = {each.item: each for each in await client.runs.list_items(run.id, ITEMS_STEP, limit=MAX_BATCH_VIDEOS)}
    return [
        _describe_video(
            index + 1,
            planned,
            children.get(_identify(planned["channel"], planned["brief"])),
            items.get(str(index)),
            run,
        )
        for index, planned in enumerate(run.input["videos"])
    ]


def _describe_video(
    number: int, planned: dict[str, Any], child: Run | None, item: ItemStatus | None, batch: Run
) -> BatchVideo:
    has_failed = item is not None and item.state is JobState.FAILED
    if child is not None:
        state = child.state
    elif has_failed:
        state = RunState.FAILED
    else:
        state = RunState.CANCELLED if batch.is_over else RunState.PENDING
    is_explained = has_failed and state is not RunState.COMPLETED  # it may have been resumed alone since
    error = str((item.error or {}).get("message")) if item and is_explained else None
    return BatchVideo(number, planned["channel"], planned["brief"], child, state, error)


async def _find_children(client: Client, run: Run) -> dict[str, Run]:
    """Return the newest child for each video: a cancelled one may have been replaced."""
    found: dict[str, Run] = {}
    before = None
    while page := await client.runs.list(parent=run.id, before=before, limit=MAX_BATCH_VIDEOS):
        for child in page:
            found.setdefault(_identify(child.tenant, child.input), child)
        before = page[-1].id
    return found


def _identify(channel: str, brief: dict[str, Any]) -> str:
    return json.dumps([channel, brief], sort_keys=True)


async def _find_lateness(client: Client, order: BatchOrder) -> TooLate | None:
    """Return the first problem with the times of an order. That of one video names its index, as pydantic does."""
    now = await client.now()
    for index, video in enumerate(order.videos):
        found = find_lateness(video, order.start_at, now)
        if found is not None:
            is_own = found.field == "scheduled_for"
            return TooLate(f"videos.{index}.{found.field}" if is_own else found.field, found.message_key, found.reason)
    return None


async def _get_writer(client: Client, channel: str) -> Writer:
    services: Services = await client.get_resource("services", tenant=channel)
    return services.writer


def _find_topic_problem(batch: Batch, writers: Mapping[str, Writer]) -> NeedsLanguageModel | None:
    problems = (find_topic_problem(video.brief, writers[video.channel]) for video in batch.videos)
    return next((problem for problem in problems if problem), None)


async def _plan(client: Client, order: BatchOrder, writers: Mapping[str, Writer]) -> Batch:
    channels = {name: await get_channel(client, name) for name in {video.channel for video in order.videos}}
    videos: dict[PlannedVideo, int] = {}
    for number, video in enumerate(order.videos, 1):
        brief = create_brief(video, channels[video.channel], writers[video.channel])
        planned = PlannedVideo(channel=video.channel, brief=brief)
        first = videos.setdefault(planned, number)
        if first != number:
            raise InvalidInput(f"videos: number {number} is the same video as number {first}")
    return Batch(videos=list(videos))
