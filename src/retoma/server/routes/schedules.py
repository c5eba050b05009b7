"""Schedules, which start runs at set times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime, BaseModel, Field
from starlette.responses import Response

from retoma.client.schedules import MAX_PREVIEW
from retoma.define.recurrence import MAX_CRON_LENGTH, MAX_INTERVAL
from retoma.define.schedule import MAX_CATCH_UP, MAX_JITTER, MAX_TITLE_LENGTH
from retoma.errors import InvalidInput
from retoma.records import CatchUp, Overlap, Schedule, ScheduleOccurrence
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.schemas import (
    MAX_INT,
    ItemKey,
    Limit,
    Name,
    RequestBody,
    ScheduleName,
    StartedRun,
    idempotency_key_header,
)
from retoma.server.serializers import STARTED_RESPONSES, to_started_response

router = APIRouter(tags=["schedules"])
Reader = Annotated[Principal, require_scope("runs:read")]
Operator = Annotated[Principal, require_scope("runs:write")]
Administrator = Annotated[Principal, require_scope("schedules:write")]
ScheduleId = Annotated[int, Path(ge=1, le=MAX_INT, description="The id of the schedule.")]
IdempotencyKey = Annotated[
    str | None, idempotency_key_header("Repeating the request with the same key returns the same run.")
]
_PROBLEMS = document_problems(404, 409)
CronText = Annotated[str, Field(min_length=9, max_length=MAX_CRON_LENGTH)]
Seconds = Annotated[float, Field(ge=1, le=MAX_INTERVAL.total_seconds())]
JitterSeconds = Annotated[float, Field(ge=0, le=MAX_JITTER.total_seconds())]
TimeZone = Annotated[str, Field(min_length=1, max_length=100)]


class ScheduleRule(RequestBody):
    """Either `cron`, in the local time of `time_zone`, or `every_seconds` of elapsed time."""

    cron: CronText | None = Field(None, description="Minute, hour, day of the month, month, day of the week.")
    every_seconds: Seconds | None = None
    time_zone: TimeZone = Field("UTC", description="Such as `America/Sao_Paulo`.")

    @property
    def every(self) -> timedelta | None:
        return None if self.every_seconds is None else timedelta(seconds=self.every_seconds)


class SchedulePreview(ScheduleRule):
    after: AwareDatetime | None = Field(None, description="Default: now.")
    limit: int = Field(5, ge=1, le=MAX_PREVIEW)


class ScheduleRequest(ScheduleRule):
    name: ScheduleName
    pipeline: Name
    tenant: Name | None = Field(
        None, description="The tenant of its runs. Default: the only one of the key, or `default`."
    )
    title: Name | None = Field(None, max_length=MAX_TITLE_LENGTH)
    inputs: dict[str, Any] = Field(
        default_factory=dict,
        description="Strings may have the placeholders `{{ due_at }}`, `{{ due_date }}`, `{{ previous_due_at }}` and "
        "`{{ schedule }}`.",
    )
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_limit: int = Field(10, ge=1, le=MAX_CATCH_UP)
    jitter_seconds: JitterSeconds = 0
    overlap: Overlap = Overlap.ALLOW


class ScheduleChanges(RequestBody):
    """What is given changes. A new `cron` replaces `every_seconds`, and the other way round."""

    pipeline: Name | None = None
    cron: CronText | None = None
    every_seconds: Seconds | None = None
    time_zone: TimeZone | None = None
    title: ItemKey | None = Field(None, max_length=MAX_TITLE_LENGTH, description="An empty text removes it.")
    inputs: dict[str, Any] | None = None
    catch_up: CatchUp | None = None
    catch_up_limit: int | None = Field(None, ge=1, le=MAX_CATCH_UP)
    jitter_seconds: JitterSeconds | None = None
    overlap: Overlap | None = None
    revision: int | None = Field(
        None, ge=1, le=MAX_INT, description="The revision that you have read: a later one is a conflict."
    )


class ScheduleList(BaseModel):
    schedules: list[Schedule]


class ScheduleDetails(BaseModel):
    schedule: Schedule
    next: list[datetime] = Field(description="When it is due next, without jitter, as if it were not paused.")


class DueTimeList(BaseModel):
    times: list[datetime]
    error: str | None = Field(None, description="Why the rule is not valid, and has no times.")


class OccurrencePage(BaseModel):
    occurrences: list[ScheduleOccurrence]
    next: datetime | None = Field(description="Pass it as `before` to get the next page. Null on the last page.")


@router.get("/schedules", summary="List schedules by tenant and name")
async def list_schedules(
    by: Reader,
    tenant: Annotated[Name | None, Query(description="Only this tenant.")] = None,
    pipeline: Annotated[Name | None, Query(description="Only schedules of this pipeline.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> ScheduleList:
    found = await by.client.schedules.list(tenant=tenant, pipeline=pipeline, limit=limit)
    return ScheduleList(schedules=list(found))


@router.get("/schedule-preview", summary="List the next times of a rule")
async def preview_schedule(query: Annotated[SchedulePreview, Query()], by: Reader) -> DueTimeList:
    """A rule that is not valid is an answer, not a problem: it says what to change."""
    try:
        found = await by.client.schedules.preview(
            cron=query.cron, every=query.every, time_zone=query.time_zone, after=query.after, limit=query.limit
        )
    except InvalidInput as error:
        return DueTimeList(times=[], error=str(error))
    return DueTimeList(times=list(found))


@router.post("/schedules", status_code=201, summary="Create a schedule", responses=_PROBLEMS)
async def create_schedule(body: ScheduleRequest, by: Administrator) -> Schedule:
    return await by.client.schedules.create(
        body.name,
        body.pipeline,
        cron=body.cron,
        every=body.every,
        time_zone=body.time_zone,
        inputs=body.inputs,
        tenant=by.choose_tenant(body.tenant),
        title=body.title,
        catch_up=body.catch_up,
        catch_up_limit=body.catch_up_limit,
        jitter=body.jitter_seconds,
        overlap=body.overlap,
        by=by.author,
    )


@router.get("/schedules/{schedule}", summary="Get a schedule and its next times", responses=_PROBLEMS)
async def get_schedule(schedule: ScheduleId, by: Reader) -> ScheduleDetails:
    found = await by.client.schedules.get(schedule)
    return ScheduleDetails(schedule=found, next=list(await by.client.schedules.list_next(schedule)))


@router.patch("/schedules/{schedule}", summary="Change a schedule", responses=_PROBLEMS)
async def update_schedule(schedule: ScheduleId, body: ScheduleChanges, by: Administrator) -> Schedule:
    """A schedule that the code declares is changed in the code."""
    return await by.client.schedules.update(
        schedule,
        pipeline=body.pipeline,
        cron=body.cron,
        every=body.every_seconds,
        time_zone=body.time_zone,
        inputs=body.inputs,
        title=body.title,
        catch_up=body.catch_up,
        catch_up_limit=body.catch_up_limit,
        jitter=body.jitter_seconds,
        overlap=body.overlap,
        revision=body.revision,
        by=by.author,
    )


@router.delete(
    "/schedules/{schedule}", status_code=204, summary="Delete a schedule with its history", responses=_PROBLEMS
)
async def delete_schedule(schedule: ScheduleId, by: Administrator) -> None:
    """Its runs stay. A schedule that the code declares is removed in the code."""
    await by.client.schedules.delete(schedule)


@router.post("/schedules/{schedule}/pause", summary="Pause a schedule", responses=_PROBLEMS)
async def pause_schedule(schedule: ScheduleId, by: Operator) -> Schedule:
    return await by.client.schedules.pause(schedule, by=by.author)


@router.post("/schedules/{schedule}/resume", summary="Resume a schedule", responses=_PROBLEMS)
async def resume_schedule(schedule: ScheduleId, by: Operator) -> Schedule:
    """Times at which it was due during the pause start nothing."""
    return await by.client.schedules.resume(schedule, by=by.author)


@router.post(
    "/schedules/{schedule}/trigger",
    status_code=202,
    summary="Start a run of a schedule now",
    response_model=StartedRun,
    responses=STARTED_RESPONSES | _PROBLEMS,
)
async def trigger_schedule(schedule: ScheduleId, by: Operator, key: IdempotencyKey = None) -> Response:
    """When it is due next does not change."""
    return to_started_response(await by.client.schedules.trigger(schedule, key=key, by=by.author))


@router.get(
    "/schedules/{schedule}/occurrences", summary="List what became of due times, newest first", responses=_PROBLEMS
)
async def list_schedule_occurrences(
    schedule: ScheduleId,
    by: Reader,
    before: Annotated[AwareDatetime | None, Query(description="`next` of the previous page.")] = None,
    limit: Annotated[Limit, Query()] = 50,
) -> OccurrencePage:
    found = await by.client.schedules.list_occurrences(schedule, before=before, limit=limit + 1)
    page = list(found[:limit])
    return OccurrencePage(occurrences=page, next=page[-1].due_at if len(found) > limit else None)
