"""Runs: their revisions, errors and events, and the metrics of a pipeline's runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from retoma.states import JobState, RunState

GENERIC_CODE = "ERROR"  # of an error without a specific code
MAX_ABOUT_LENGTH = 120
ABOUT_FIELDS = ("topic", "title", "name", "subject")
"""Input fields that can describe the subject of a run."""


def describe_input(value: Any) -> str:
    """Return a short description of a run without a title: a field of ABOUT_FIELDS, or the first text."""
    fields = value if isinstance(value, dict) else {}
    texts = [*(fields.get(name) for name in ABOUT_FIELDS), *fields.values()]
    return next((each.strip()[:MAX_ABOUT_LENGTH] for each in texts if isinstance(each, str) and each.strip()), "")


@dataclass(frozen=True)
class RunSummary:
    """A run as the API lists it, without its input, which may be large."""

    id: UUID
    title: Annotated[str | None, Field(description="What people call it, if its pipeline makes titles.")]
    tenant: str
    pipeline: str
    version: int
    state: RunState
    revision: int
    created_at: datetime
    run_at: datetime
    ended_at: datetime | None
    parent: Annotated[UUID | None, Field(description="The run that started this run as its child.")]


@dataclass(frozen=True)
class Run(RunSummary):
    input: Any
    forked_from: Annotated[UUID | None, Field(description="The run that this run was forked from.")]

    @property
    def is_over(self) -> bool:
        return self.state.is_over

    @property
    def about(self) -> str:
        """Return the title, or else a short description from the input: a field of ABOUT_FIELDS, or its first text."""
        return self.title or describe_input(self.input)


@dataclass(frozen=True)
class StuckRun:
    """A run without progress: since when, why, and how often it was resumed automatically."""

    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    revision: int
    since: datetime
    cause: str
    data: Annotated[
        dict[str, Any],
        Field(description="Known details, such as step, item, worker, queue and the sentence `explanation`."),
    ]
    resumes: Annotated[int, Field(description="Automatic resumes since the run last made progress.")]
    max_resumes: int


@dataclass(frozen=True)
class StepRevision:
    """One job at a revision."""

    revision: int
    state: JobState
    output: Any
    author: Annotated[str | None, Field(description="The person who entered the result, if any.")]
    reused_from: Annotated[int | None, Field(description="The revision that this result was reused from.")]
    feedback: Annotated[Any, Field(description="The reviewer's feedback that caused this revision.")]
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True)
class Revision:
    """The result of a rerun or an edit: the new revision of the run, and how many jobs it reruns."""

    number: int
    jobs: int


@dataclass(frozen=True)
class ErrorCounts:
    failed: Annotated[int, Field(description="Jobs that failed.")]
    recovered: Annotated[int, Field(description="Jobs that had a failed attempt but have not failed.")]
    retried_attempts: Annotated[int, Field(description="Attempts that failed and were retried.")]


def describe_recorded_error(error: Mapping[str, Any]) -> str:
    """Return the message of an error, prefixed with its type unless it has a specific code: `KeyError: 'v1'`."""
    message, kind = str(error.get("message") or ""), error.get("type")
    if not kind or error.get("code") != GENERIC_CODE:
        return message
    return f"{kind}: {message}" if message and message != kind else str(kind)


@dataclass(frozen=True)
class Event:
    id: int
    at: datetime
    kind: str
    revision: int
    attempt: int | None
    worker: int | None
    step: str | None
    item: str | None
    data: Any


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event of any run, without the stack trace of an error. `tenant` is the internal number of the tenant."""

    id: int
    run: UUID
    run_title: str | None
    tenant: int
    at: datetime
    kind: str
    revision: int
    attempt: int | None
    step: str | None
    item: str | None
    data: Any


@dataclass(frozen=True)
class PipelineMetrics:
    """Metrics of ended runs. `failed` excludes rejected and cancelled runs.

    `steps` counts steps with at least one attempt that have ended, in open runs too; `retried` of them needed more
    than one attempt. The durations cover the `timed` runs and exclude time spent waiting for people. Timed runs are
    completed runs, and open runs in which only steps that are excluded from the duration are left.
    """

    ended: int
    failed: int
    steps: int
    retried: int
    timed: int
    mean_seconds: float | None
    median_seconds: float | None
