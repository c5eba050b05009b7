"""A video's progress, open review and reason for failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma import Client
from retoma.records import Job, Review, Run
from retoma.states import JobState, ReviewState, RunState
from retoma_apps.videos.models import Analytics
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.states import Stage, current_results, stage_of, title_of

REVIEW_STATES = (RunState.PAUSED, RunState.NEEDS_REVIEW)


@dataclass(frozen=True)
class End:
    """The step at which the video failed or was rejected, and the reason."""

    step: str
    reason: str


@dataclass(frozen=True)
class Overview:
    """`done` has results by step; `step` is the first without one, and `review` the open review."""

    run: Run
    stage: Stage
    done: dict[str, Any]
    step: str | None
    review: Review | None
    end: End | None

    @property
    def is_decided(self) -> bool:
        """Whether the review that it waits for is decided. The decision takes effect shortly."""
        return self.review is None and self.run.state in REVIEW_STATES

    @property
    def title(self) -> str | None:
        return title_of(self.done)

    @property
    def upload(self) -> dict[str, Any]:
        return self.done.get("upload") or {}

    @property
    def analytics(self) -> Analytics | None:
        """Return the data recorded after the upload."""
        recorded = self.done.get("analytics_init")
        return None if recorded is None else Analytics.model_validate(recorded)


def get_start_at(run: Run) -> datetime | None:
    """Return when work starts or started, if the run was ordered for later."""
    return run.run_at if run.run_at > run.created_at else None


async def get_overview(client: Client, run: Run) -> Overview:
    jobs = await client.runs.list_jobs(run.id)
    done = current_results(jobs)
    waiting = await client.reviews.list(run=run.id, limit=1) if run.state in REVIEW_STATES else []
    return Overview(
        run,
        stage=stage_of(run.state, done, started=any(job.attempt for job in jobs)),
        done=done,
        step=None if run.is_over else next((step for step in longform.steps if step not in done), None),
        review=waiting[0] if waiting else None,
        end=await _get_end(client, run, jobs),
    )


async def _get_end(client: Client, run: Run, jobs: Iterable[Job]) -> End | None:
    if run.state is RunState.REJECTED:
        (review,) = await client.reviews.list(run=run.id, states=[ReviewState.REJECTED], limit=1)
        return End(review.step, review.notes or "")
    if run.state is not RunState.FAILED:
        return None
    errors = await client.runs.get_errors(run.id, with_stack=False)
    failed = (job for job in jobs if job.state is JobState.FAILED and (job.step, job.item) in errors)
    return next((End(job.step, str(errors[job.step, job.item].get("message"))) for job in failed), None)
