"""A schedule: when to start runs of a pipeline, and with which inputs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from retoma.define.codec import MAX_RESULT_BYTES, describe_validation_error
from retoma.define.definition_errors import Location, suggest_name
from retoma.define.durations import Duration, as_timedelta
from retoma.define.input_template import Occurrence, check_template, render
from retoma.define.pipeline import Pipeline
from retoma.define.recurrence import Cron, Interval, Rule, check_cron, check_interval, check_time_zone, format_seconds
from retoma.errors import InvalidInput
from retoma.records import CatchUp, Overlap
from retoma.terminal import UNSAFE_CHARACTERS
from retoma.translations import N_

MAX_CATCH_UP = 1_000
MAX_JITTER = timedelta(days=1)
MAX_NAME_LENGTH = 100
MAX_TITLE_LENGTH = 200
_FORBIDDEN = re.compile(rf"[/{UNSAFE_CHARACTERS}\ud800-\udfff]")
SAMPLE = datetime(2030, 1, 31, 3, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """What a schedule does, checked: raises InvalidInput for a mistake. Either `cron` or `every` is set."""

    pipeline: str
    cron: str | None = None
    every: timedelta | None = None
    time_zone: str = "UTC"
    inputs: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_limit: int = 10
    jitter: timedelta = timedelta(0)
    overlap: Overlap = Overlap.ALLOW

    def __post_init__(self) -> None:
        self._check_rule()
        if not 1 <= self.catch_up_limit <= MAX_CATCH_UP:
            raise InvalidInput(f"catch_up_limit is a number from 1 to {MAX_CATCH_UP}, not {self.catch_up_limit!r:.40}")
        if not timedelta(0) <= self.jitter <= MAX_JITTER:
            raise InvalidInput(
                N_("a jitter is from zero to 24 hours, not %(jitter)s"), jitter=format_seconds(self.jitter)
            )
        if self.every is not None and self.jitter >= self.every:
            raise InvalidInput(
                N_("the jitter of %(jitter)s must be shorter than the interval of %(every)s"),
                jitter=format_seconds(self.jitter),
                every=format_seconds(self.every),
            )
        if self.title is not None and not 0 < len(self.title) <= MAX_TITLE_LENGTH:
            raise InvalidInput(f"a title is a text of 1 to {MAX_TITLE_LENGTH} characters, not {self.title!r:.80}")
        check_template(self.inputs)
        if len(encode_template(self.inputs)) > MAX_RESULT_BYTES:
            raise InvalidInput(f"the inputs are over the limit of {MAX_RESULT_BYTES:,} bytes of JSON")

    def get_rule(self, anchor_at: datetime) -> Rule:
        return Cron(self.cron, self.time_zone) if self.cron is not None else self._get_interval(anchor_at)

    def is_due_like(self, other: SchedulePlan) -> bool:
        """Return whether both are due at the same times and start as late."""
        mine, others = (
            (each.cron, each.every, each.jitter, each.time_zone if each.cron else "") for each in (self, other)
        )
        return mine == others

    def _get_interval(self, anchor_at: datetime) -> Interval:
        assert self.every is not None
        return Interval(self.every, anchor_at)

    def _check_rule(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise InvalidInput(N_("a schedule has either a cron rule or an interval: set one of cron and every"))
        check_time_zone(self.time_zone)
        if self.cron is not None:
            check_cron(self.cron, self.time_zone)
        elif self.every is not None:
            check_interval(self.every)


@dataclass(frozen=True)
class Schedule:
    """Start runs of a pipeline by a cron rule, in the local time of `time_zone`, or at an interval.

    `App(schedules=[Schedule("nightly", report, cron="0 3 * * *", time_zone="America/Sao_Paulo")])`

    Strings in `inputs` may have placeholders: `{{ due_at }}`, `{{ due_date }}`, `{{ previous_due_at }}` and
    `{{ schedule }}`. Servers and workers save the schedule when they start. `catch_up` says what happens to times at
    which nothing could start: `skip` them, start the `latest`, or start `all` of the last `catch_up_limit`. Each run
    starts up to `jitter` later than it is due. With `overlap="skip"`, no run starts while the last one is not over.
    """

    name: str
    pipeline: Pipeline | str
    cron: str | None = field(default=None, kw_only=True)
    every: Duration | None = field(default=None, kw_only=True)
    time_zone: str = field(default="UTC", kw_only=True)
    inputs: Mapping[str, Any] | BaseModel | None = field(default=None, kw_only=True)
    tenant: str = field(default="default", kw_only=True)
    title: str | None = field(default=None, kw_only=True)
    catch_up: CatchUp | str = field(default=CatchUp.LATEST, kw_only=True)
    catch_up_limit: int = field(default=10, kw_only=True)
    jitter: Duration = field(default=0, kw_only=True)
    overlap: Overlap | str = field(default=Overlap.ALLOW, kw_only=True)

    @property
    def pipeline_name(self) -> str:
        return self.pipeline if isinstance(self.pipeline, str) else self.pipeline.name

    @property
    def plan(self) -> SchedulePlan:
        """What it does. Raise InvalidInput for a mistake."""
        inputs = self.inputs.model_dump(mode="json") if isinstance(self.inputs, BaseModel) else self.inputs
        return SchedulePlan(
            pipeline=self.pipeline_name,
            cron=self.cron,
            every=None if self.every is None else as_timedelta(self.every),
            time_zone=self.time_zone,
            inputs=to_jsonable_python(inputs or {}),
            title=self.title,
            catch_up=parse_catch_up(self.catch_up),
            catch_up_limit=self.catch_up_limit,
            jitter=as_timedelta(self.jitter),
            overlap=parse_overlap(self.overlap),
        )

    def check(self, pipelines: Mapping[str, Pipeline]) -> None:
        """Raise DefinitionError for a mistake. `pipelines` are those of the application that declares it."""
        location = Location(self.pipeline_name, kind="schedule " + repr(self.name) + " of pipeline")
        if self.pipeline_name not in pipelines:
            raise location.error(f"the application has no such pipeline; {suggest_name(self.pipeline_name, pipelines)}")
        try:
            check_schedule_name(self.name)
            check_inputs(pipelines[self.pipeline_name], self.name, self.plan, SAMPLE)
        except InvalidInput as error:
            raise location.error(str(error)) from error


def check_schedule_name(name: str) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or _FORBIDDEN.search(name):
        raise InvalidInput(
            N_("the name of a schedule is a text of 1 to %(length)s characters without '/', not %(name)s"),
            length=MAX_NAME_LENGTH,
            name=f"{name!r:.80}",
        )


def check_inputs(pipeline: Pipeline, name: str, plan: SchedulePlan, at: datetime) -> None:
    """Raise InvalidInput unless the pipeline accepts the inputs as they would be at this time."""
    rendered = render(plan.inputs, Occurrence(name, at, at, plan.time_zone))
    if pipeline.inputs is None:
        if rendered:
            raise InvalidInput(f"pipeline {pipeline.name!r} takes no input")
        return
    try:
        pipeline.inputs.model_validate(rendered)
    except ValidationError as error:
        raise InvalidInput(
            N_("the inputs are not valid for pipeline %(pipeline)s: %(error)s"),
            pipeline=repr(pipeline.name),
            error=describe_validation_error(error),
        ) from error


def parse_catch_up(value: CatchUp | str) -> CatchUp:
    if value not in list(CatchUp):
        raise InvalidInput(
            f"there is no catch-up policy {value!r:.40}; {suggest_name(str(value), [str(each) for each in CatchUp])}"
        )
    return CatchUp(value)


def parse_overlap(value: Overlap | str) -> Overlap:
    if value not in list(Overlap):
        raise InvalidInput(
            f"there is no overlap policy {value!r:.40}; {suggest_name(str(value), [str(each) for each in Overlap])}"
        )
    return Overlap(value)


def encode_template(inputs: Mapping[str, Any]) -> str:
    try:
        return json.dumps(inputs, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the inputs of a schedule must be JSON: {error}") from error


def get_jitter(seed: str, due_at: datetime, jitter: timedelta) -> timedelta:
    """Return how much later than due it starts: the same in every process, by the schedule's `seed`."""
    digest = hashlib.sha256(f"{seed} {due_at.timestamp()}".encode()).digest()
    return jitter * (int.from_bytes(digest[:6]) / 2**48)
