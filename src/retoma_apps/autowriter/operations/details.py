"""An article's job with everything that is known about it, also while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retoma import Client, File
from retoma.records import ChargeTotal, Event, InboundEvent, Job, Review, Run, StepProgress
from retoma.states import JobState, ReviewState, RunState
from retoma_apps.autowriter.models import ArticleRequest, Finding, Image, Published, QualityReport
from retoma_apps.autowriter.operations.decisions import get_open_review
from retoma_apps.autowriter.pipeline import article
from retoma_apps.autowriter.states import ArticleState, state_of, step_of
from retoma_apps.autowriter.steps.error_codes import ERROR_CODES, ErrorCode, standard_code

REVIEW_STATES = (RunState.PAUSED, RunState.NEEDS_REVIEW)
ATTEMPT_KINDS = ("failure", "retry", "result")
QUALITY_STEPS = ("quality_checked", "quality_gate_passed")


@dataclass(frozen=True)
class ArticleError:
    """Why an article failed, or what a person has to decide. `known` is its row in the table of codes, if any."""

    step: str
    code: str
    message: str
    known: ErrorCode | None


@dataclass(frozen=True)
class Ending:
    """The person who ended an article, and why."""

    by: str
    reason: str


@dataclass(frozen=True)
class ArticleSummary:
    """`published` is the draft, if there is one."""

    run: Run
    request: ArticleRequest
    state: ArticleState
    step: str | None
    published: Published | None
    results: dict[str, Any]

    @property
    def pipeline_version(self) -> str | None:
        return (self.results.get("brief_created") or {}).get("pipeline_version")

    @property
    def notes(self) -> list[Finding]:
        """Return what the quality checks found that holds no article, but that a person should know."""
        report = self.results.get("quality_checked")
        findings = QualityReport.model_validate(report).findings if report else []
        return [finding for finding in findings if finding.level == "note"]


@dataclass(frozen=True)
class ArticleDetails:
    """`steps` are in the order of the pipeline; `stale` are those whose inputs have changed since they ran.

    `attempts` are the events of attempts that have ended, with their providers. `events` are what WordPress reported
    about the draft, in order.
    """

    summary: ArticleSummary
    start_time: datetime | None
    end_time: datetime | None
    steps: list[StepProgress]
    stale: list[str]
    attempts: list[Event]
    charges: list[ChargeTotal]
    artifacts: list[File]
    events: list[InboundEvent]
    review: Review | None
    error: ArticleError | None
    ending: Ending | None

    @property
    def failures(self) -> list[Event]:
        return [event for event in self.attempts if event.kind != "result"]

    @property
    def successes(self) -> list[Event]:
        return [event for event in self.attempts if event.kind == "result"]

    @property
    def providers(self) -> list[str]:
        return sorted({each.provider for each in self.charges if each.provider})

    def list_providers_of(self, step: str) -> list[str]:
        return sorted({each.provider for each in self.charges if each.provider and each.step == step})

    def list_models_of(self, step: str) -> list[str]:
        return sorted({each.resource for each in self.charges if each.resource and each.step == step})

    @property
    def cost(self) -> int:
        """Return the cost in millionths of a US dollar."""
        return sum(each.micros for each in self.charges)


async def get_summary(client: Client, run: Run) -> ArticleSummary:
    jobs = await client.runs.list_jobs(run.id)
    return _summarize(run, jobs, await client.runs.get_results(run.id))


async def get_details(client: Client, run: Run) -> ArticleDetails:
    jobs = await client.runs.list_jobs(run.id)
    results = await client.runs.get_results(run.id)
    summary = _summarize(run, jobs, results)
    review = await get_open_review(client, run.id) if run.state in REVIEW_STATES else None
    return ArticleDetails(
        summary,
        start_time=(await client.runs.get_start_times([run.id])).get(run.id),
        end_time=run.ended_at,
        steps=sorted(await client.runs.get_progress(run.id), key=_get_position),
        stale=sorted({step for step, _ in await client.runs.list_stale(run.id)}),
        attempts=await client.runs.list_events(run.id, kinds=ATTEMPT_KINDS),
        charges=await client.costs.get_totals(by=("step", "provider", "resource"), run=run.id),
        artifacts=_list_artifacts(results),
        events=await client.inbound_events.list(summary.request.identity),
        review=review,
        error=_describe_review(review) if review else await find_error(client, run, jobs),
        ending=await find_ending(client, run),
    )


def _get_position(step: StepProgress) -> int:
    """Return the place of a step in the pipeline. A step of an earlier version comes last."""
    names = list(article.steps)
    return names.index(step.step) if step.step in names else len(names)


def _summarize(run: Run, jobs: Iterable[Job], results: Mapping[str, Any]) -> ArticleSummary:
    found = results.get("published_wp")
    published = None if found is None else Published.model_validate(found)
    step = step_of(jobs)
    return ArticleSummary(
        run,
        ArticleRequest.model_validate(run.input),
        state_of(run.state, has_started=step is not None, is_published=published is not None),
        step,
        published,
        dict(results),
    )


def _list_artifacts(results: Mapping[str, Any]) -> list[File]:
    images = (results.get("images_resolved") or {}).values()
    return [Image.model_validate(each).file for each in images]


async def find_error(client: Client, run: Run, jobs: Iterable[Job]) -> ArticleError | None:
    """Return the error of the first failed job; None if no job has failed."""
    failed = [job for job in jobs if job.state in (JobState.FAILED, JobState.QUARANTINED)]
    errors = await client.runs.get_errors(run.id, with_stack=False) if failed else {}
    for job in failed:
        if (recorded := errors.get((job.step, job.item))) is not None:
            code = str(job.code or recorded.get("code") or "ERROR")
            return _make_error(job.step, code, str(recorded.get("message") or ""))
    return None


def _describe_review(review: Review) -> ArticleError:
    """Describe what a person has to decide: the warnings, the missing image, or what a step asked."""
    if review.planned:
        code = "QUALITY_GATE_FAIL" if review.step in QUALITY_STEPS else "IMAGE_API_FAIL"
        return _make_error(review.step, code, "a person has to decide")
    reason = review.reason if isinstance(review.reason, dict) else {}
    return _make_error(review.step, str(reason.get("code") or "NEEDS_REVIEW"), str(reason.get("message") or ""))


def _make_error(step: str, code: str, message: str) -> ArticleError:
    standard = standard_code(code)
    return ArticleError(step, standard, message, ERROR_CODES.get(standard))


async def find_ending(client: Client, run: Run) -> Ending | None:
    """Return who cancelled or rejected an article, and why; None if nobody did."""
    if run.state is RunState.REJECTED:
        found = await client.reviews.list(run=run.id, states=[ReviewState.REJECTED], limit=1)
        return Ending(found[0].decided_by or "", found[0].notes or "") if found else None
    if run.state in (RunState.CANCELLED, RunState.CANCELLING):
        actions = await client.runs.list_events(run.id, kinds=["action"])
        cancels = [event for event in actions if event.data.get("action") == "cancel"]
        return Ending(str(cancels[-1].data.get("by")), "cancelled") if cancels else None
    return None
