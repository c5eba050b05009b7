"""The page of one run: progress, waits, events and the results of each step."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, cast
from uuid import UUID

from starlette.responses import Response

from retoma.client import Client
from retoma.define.file import find_files
from retoma.define.graph import Graph
from retoma.errors import NotFound
from retoma.records import ExternalWork, Job, OrphanResolution, Review, Run, StepProgress, StepRevision, WaitReason
from retoma.server.pages import differences, forms, graph, items, waterfall
from retoma.server.pages.budget_texts import PERIOD_NAMES, show_amount
from retoma.server.pages.child_runs import load_child_runs
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number
from retoma.server.pages.review_history import format_feedback
from retoma.server.pages.review_summary import get_urgency
from retoma.server.pages.stuck_episodes import find_fatal_episode, list_stuck_episodes
from retoma.server.pages.waits import describe_resolution, explain_cause, explain_stuck_runs, explain_wait
from retoma.states import JOB_FINAL_STATES, JobState, ReviewState, RunState
from retoma.translations import NP_

MAX_JOBS, MAX_EVENTS, MAX_ERRORS, MAX_ATTEMPTS, MAX_CHARGES, MAX_FILES, MAX_REVIEWS, MAX_STEP_REVISIONS = (
    50,
    50,
    20,
    30,
    50,
    50,
    20,
    10,
)
MAX_RUN_REVIEWS = 1_000  # reviews of one run
DECIDED_STATES = tuple(state for state in ReviewState if state is not ReviewState.OPEN)

EVENT_NAMES = {
    "start": NP_("event", "started"),
    "result": NP_("event", "result"),
    "failure": NP_("event", "failed"),
    "retry": NP_("event", "retry"),
    "action": NP_("event", "action"),
    "stuck": NP_("event", "stuck"),
    "resume": NP_("event", "resumed"),
    "review": NP_("event", "review"),
    "orphan": NP_("event", "orphan"),
    "end": NP_("event", "ended"),
}

RESOLUTION_NAMES = {
    "nothing_found": NP_("resolution of an orphan", "Nothing found"),
    "cancelled_by_hand": NP_("resolution of an orphan", "Cancelled by hand"),
}


@dataclass(frozen=True)
class RejectedEdit:
    """An edited result that was rejected, and why."""

    text: str
    error: str


async def show_run(
    context: PageContext,
    status: int = 200,
    rejected_edit: RejectedEdit | None = None,
    rejected_fork: list[forms.Field] | None = None,
) -> Response:
    """Show a run. `rejected_fork` is a rejected form for a new run, as it was filled in."""
    client = context.client
    run = await client.runs.get(context.get_path_id("run"))
    context.use_application_of(run.pipeline)
    context.path = f"/runs/{run.id}"
    last = await client.runs.get_last_event_id(run.id)  # read first, so no later event is missed
    shape = await client.runs.get_graph(run)
    progress = {step.step: step for step in await client.runs.get_progress(run.id)}
    steps = [progress[step.name] for step in shape.steps if not step.internal and step.name in progress]
    now = await client.now()
    chosen = await _load_selected_step(context, run, steps)
    held = await _list_reviews(context, run)
    external_work = await client.external_work.list(run.id)
    return context.render(
        "run.html",
        status,
        run=run,
        forked_title=await _find_title(client, run.forked_from),
        parent_title=await _find_title(client, run.parent),
        rejected_edit=rejected_edit,
        now=now,
        last_event=last,
        steps=steps,
        progress=progress,
        urgency=get_urgency,
        event_name=lambda kind: context.translate(EVENT_NAMES[kind]) if kind in EVENT_NAMES else kind,
        done=sum(_is_done(step, run) for step in steps),
        final_results=await _load_final_results(context, run, shape, progress),
        waterfall=await _build_waterfall(
            context, run, steps, graph.list_dependencies(shape), chosen["job"], run.ended_at or now, held, external_work
        ),
        groups=_list_groups(context, run),
        orphans=await client.runs.list_orphans(run.id),
        resolution_name=lambda resolution: context.translate(RESOLUTION_NAMES[resolution]),
        fork_fields=forms.visible_fields(rejected_fork or (build_input_fields(context, run) if run.is_over else [])),
        is_fork_open=rejected_fork is not None,
        charges=await client.costs.get_totals(by=("provider", "resource", "step"), run=run.id, limit=MAX_CHARGES),
        budgets=await client.budgets.list_statuses(run=run.id),
        show_amount=partial(show_amount, context, await client.budgets.get_money(run.tenant)),
        period_names={period: context.translate(name) for period, name in PERIOD_NAMES.items()},
        step_costs={
            each.step: each.micros for each in await client.costs.get_totals(by=("step",), run=run.id) if each.micros
        },
        **_load_reviews(held),
        **_load_display_states(run, held, external_work, shape, progress),
        **_allowed_actions(run, chosen["job"]),
        **await _load_stuck_state(context, run),
        **await _load_stale_jobs(context, run),
        **await _load_failures(context, run),
        **await _load_results(context, run, shape, chosen["job"]),
        **await load_child_runs(context, run),
        **await items.load_items(context, run, shape),
        **await _load_events(context, run),
        **chosen,
    )


async def _find_title(client: Client, run: UUID | None) -> str | None:
    """Return what the run is about that this one was forked from, or that started it."""
    return None if run is None else (await client.runs.get(run)).about


async def cancel_run(context: PageContext) -> Response:
    run = context.get_path_id("run")
    await context.client.runs.cancel(run, by=context.by, key=context.idempotency_key)
    return context.redirect(f"/runs/{run}", "cancelled")


async def resume_run(context: PageContext) -> Response:
    run = context.get_path_id("run")
    await context.client.runs.resume(run, by=context.by, key=context.idempotency_key)
    return context.redirect(
        f"/runs/{run}", "resumed_no_worker" if await context.client.runs.find_missing_worker(run) else "resumed"
    )


async def resolve_orphan(context: PageContext) -> Response:
    run, fields = context.get_path_id("run"), context.fields
    await context.client.runs.resolve_orphan(
        run,
        fields.get("step", ""),
        fields.get("effect", ""),
        cast(OrphanResolution, fields.get("resolution", "")),  # checked by the call
        item=fields.get("item", ""),
        revision=parse_number(fields.get("revision", ""), 1),
        by=context.by,
    )
    return context.redirect(f"/runs/{run}", "orphan_resolved")


async def rerun_failed(context: PageContext) -> Response:
    run = context.get_path_id("run")
    await context.client.runs.rerun_failed(run, by=context.by, key=context.idempotency_key)
    return context.redirect(f"/runs/{run}", "rerun")


async def show_stuck_runs(context: PageContext) -> Response:
    found = explain_stuck_runs(context, await context.client.runs.list_stuck())
    orphans = await context.client.runs.list_orphans()
    return context.render("stuck.html", stuck=found, orphans=orphans, now=await context.client.now())


def _load_reviews(reviews: list[Review]) -> dict[str, Any]:
    still_open = [review for review in reviews if review.is_open]
    return {
        "reviews": still_open[:MAX_REVIEWS],
        "rejections": [
            review for review in reviews if review.state is ReviewState.REJECTED and review.rejection_ends_run
        ],
        "just_decided": [review for review in reviews if review.can_be_undone][:MAX_REVIEWS],
        "more_reviews": max(0, len(still_open) - MAX_REVIEWS),
    }


def _is_done(step: StepProgress, run: Run) -> bool:
    """Whether a step has succeeded or, because a condition or the end of the run says so, is not needed."""
    if not step.jobs:
        return step.explain_absence(run.state) == "not_needed"
    return all(state in (JobState.SUCCEEDED, JobState.SKIPPED) for state in step.jobs)


async def _load_final_results(
    context: PageContext, run: Run, graph_definition: Graph, progress: Mapping[str, StepProgress]
) -> list[tuple[StepProgress, Any]]:
    """Return the steps that no other depends on, once the run is over, with their results; None for many items."""
    found: list[tuple[StepProgress, Any]] = []
    for step in graph.list_final_steps(graph_definition) if run.is_over else []:
        if progress[step].jobs.get(JobState.SUCCEEDED):
            jobs = [] if progress[step].each else await context.client.runs.list_step_jobs(run.id, step, limit=1)
            found.append((progress[step], jobs[0].output if jobs else None))
    return found


def _load_display_states(
    run: Run,
    reviews: list[Review],
    external_work: list[ExternalWork],
    graph_definition: Graph,
    progress: Mapping[str, StepProgress],
) -> dict[str, Any]:
    """Return the states of steps and jobs as people should read them: for what a parked job waits."""
    jobs = {(work.step, work.item): "waiting_for_child" for work in external_work if work.is_child_run}
    jobs |= {(review.step, review.item): "in_review" for review in reviews if review.applied_at is None}
    parked_as = {step: state for (step, _), state in sorted(jobs.items(), key=lambda job: job[1] == "in_review")}
    states = {
        name: graph.get_step_display_state(step, run.state, parked_as.get(name)) for name, step in progress.items()
    }
    return {
        "parked_as": parked_as,
        "state_of": states.__getitem__,
        "job_state_of": lambda job: graph.get_display_state(job.state, jobs.get((job.step, job.item))),
        "graph": graph.draw_graph(graph_definition, progress, states),
    }


def _allowed_actions(run: Run, job: Job | None) -> dict[str, bool]:
    return {
        "may_resume": run.state in (RunState.STUCK, RunState.FAILED),
        "may_rerun_steps": run.state.can_run,
        "may_rerun_failed": run.state in (RunState.FAILED, RunState.COMPLETED_WITH_ERRORS),
        "may_edit": run.state.can_run and job is not None and job.state in JOB_FINAL_STATES,
    }


async def _load_stuck_state(context: PageContext, run: Run) -> dict[str, Any]:
    """Return why the run waits, when it should end and its stuck episodes. Its open reviews have their own notes."""
    client, episodes = context.client, await list_stuck_episodes(context.client, run)
    waits = [] if run.is_over else await client.runs.list_waits(run.id)
    return {
        "waits": [explain_wait(context, wait) for wait in waits if wait.reason is not WaitReason.PERSON],
        "estimate": None if run.is_over else await client.runs.estimate_end(run.id),
        "stuck": explain_stuck_runs(context, await client.runs.list_stuck(run=run.id))
        if run.state is RunState.STUCK
        else [],
        "fatal_episode": find_fatal_episode(episodes, run),
        "episodes": episodes,
        "cause_of": lambda episode: explain_cause(context, episode.cause, episode.data),
        "describe_resolution": lambda episode: describe_resolution(context, episode),
    }


async def _load_stale_jobs(context: PageContext, run: Run) -> dict[str, Any]:
    stale = set(await context.client.runs.list_stale(run.id))
    return {"stale": {step for step, _ in stale}, "stale_jobs": stale}


async def _load_failures(context: PageContext, run: Run) -> dict[str, Any]:
    errors = await context.client.runs.get_errors(run.id, limit=MAX_ERRORS)
    return {
        "failures": [each for each in errors.items() if not each[1]["retried"]],
        "retried": [each for each in errors.items() if each[1]["retried"]],
        "error_counts": await context.client.runs.get_error_counts(run.id),
    }


async def _load_results(context: PageContext, run: Run, graph_definition: Graph, job: Job | None) -> dict[str, Any]:
    """Return the files of the run, and the input and output of the selected job."""
    application = context.application
    return {
        "found_files": await context.client.files.list(run, limit=MAX_FILES),
        "kept": application is not None and application.files is not None,
        "job_files": [] if job is None else list(find_files(job.output))[:MAX_FILES],
        "value": await _load_item_value(context, run, graph_definition, job),
        "step_history": await _load_step_history(context, run, job),
        "format_feedback": lambda feedback: format_feedback(
            context, run.pipeline, feedback.get("review", ""), feedback
        ),
    }


async def _load_events(context: PageContext, run: Run) -> dict[str, Any]:
    after = context.get_query_number("after", 0)
    found = await context.client.runs.list_events(run.id, after=after, limit=MAX_EVENTS + 1)
    return {"events": found[:MAX_EVENTS], "later": found[MAX_EVENTS - 1].id if len(found) > MAX_EVENTS else None}


async def _build_waterfall(
    context: PageContext,
    run: Run,
    steps: list[StepProgress],
    dependencies: Mapping[str, list[str]],
    job: Job | None,
    ends: datetime,
    reviews: list[Review],
    external_work: list[ExternalWork],
) -> waterfall.Waterfall:
    client = context.client
    item = job if job is not None and job.item else None
    tries = (
        await client.runs.list_failed_attempts(run.id, item.step, item.item)
        if item
        else await client.runs.list_failed_attempts(run.id)
    )
    return waterfall.draw_waterfall(steps, dependencies, external_work, run.run_at, ends, tries, item, reviews)


async def _load_selected_step(context: PageContext, run: Run, steps: list[StepProgress]) -> dict[str, Any]:
    """Return the step in the query with a page of its jobs, or with one job and its attempts."""
    query = context.query
    step = next((each for each in steps if each.step == query.get("step")), None)
    if step is None:
        if query.get("step"):
            raise NotFound(context.gettext("This run has no step %(step)s.", step=query["step"]))
        return {"step": None, "jobs": [], "job": None, "attempts": [], "more": None, "job_states": []}
    item = query.get("item") if step.each else ""
    jobs = await _list_jobs(context, run, step.step, item)
    job = jobs[0] if item is not None and jobs else None
    tries = (
        []
        if job is None
        else await context.client.runs.list_job_events(run.id, step.step, job.item, limit=MAX_ATTEMPTS)
    )
    more = jobs[MAX_JOBS - 1].position if len(jobs) > MAX_JOBS else None
    return {
        "step": step,
        "jobs": jobs[:MAX_JOBS],
        "job": job,
        "attempts": tries,
        "more": more,
        "job_states": list(step.jobs),
    }


async def _list_reviews(context: PageContext, run: Run) -> list[Review]:
    """List all open reviews of a run, then the first of the decided ones."""
    still = await context.client.reviews.list(run=run.id, limit=MAX_RUN_REVIEWS)
    rest = await context.client.reviews.list(run=run.id, states=DECIDED_STATES, limit=MAX_RUN_REVIEWS)
    return [*still, *rest]


async def _load_step_history(
    context: PageContext, run: Run, job: Job | None
) -> list[tuple[StepRevision, differences.Difference | None]]:
    """Return the revisions of a job, newest first, each with its changes."""
    if job is None:
        return []
    found = await context.client.runs.get_step_history(run.id, job.step, job.item, limit=MAX_STEP_REVISIONS + 1)
    succeeded = [each for each in found if each.state is JobState.SUCCEEDED]
    before = dict(zip((each.revision for each in succeeded), succeeded[1:], strict=False))
    shown = found[:MAX_STEP_REVISIONS]
    # In a thread: the comparison of large results takes long enough to delay other requests.
    compared = await asyncio.to_thread(lambda: [_diff_revisions(each, before.get(each.revision)) for each in shown])
    return list(zip(shown, compared, strict=True))


def _diff_revisions(current: StepRevision, previous: StepRevision | None) -> differences.Difference | None:
    return None if previous is None else differences.diff_results(previous.output, current.output)


def _list_groups(context: PageContext, run: Run) -> list[str]:
    pipeline = context.find_pipeline(run.pipeline)
    return sorted(pipeline.groups) if pipeline else []


def build_input_fields(context: PageContext, run: Run) -> list[forms.Field]:
    """Return the input of this run as fields for a new run; none if this server does not know its type."""
    pipeline = context.find_pipeline(run.pipeline)
    if pipeline is None or pipeline.inputs is None:
        return []
    fields = forms.build_fields(pipeline.inputs.model_json_schema(), run.input or {}, translate=context.gettext)
    return forms.set_zone(fields, context.time_zone)


async def _load_item_value(context: PageContext, run: Run, graph_definition: Graph, job: Job | None) -> Any:
    """Return the value of the job's item, if it has one."""
    source = next((step.source for step in graph_definition.steps if job is not None and step.name == job.step), None)
    if job is None or source is None:
        return None
    found = await context.client.runs.list_items(run.id, source, only=[job.item], limit=1)
    return found[0].value if found else None


async def _list_jobs(context: PageContext, run: Run, step: str, item: str | None) -> list[Job]:
    state = context.get_query_choice("job_state", JobState)
    return await context.client.runs.list_step_jobs(
        run.id,
        step,
        item=item,
        states=[state] if state and item is None else None,
        after=context.get_query_number("from", -1),
        limit=MAX_JOBS + 1,
    )


PAGES = (
    Page("/runs/{run}", show_run),
    Page("/runs/{run}/cancel", submit=cancel_run, submit_scope="runs:write"),
    Page("/runs/{run}/resume", submit=resume_run, submit_scope="runs:write"),
    Page("/runs/{run}/rerun-failed", submit=rerun_failed, submit_scope="runs:write"),
    Page("/runs/{run}/resolve-orphan", submit=resolve_orphan, submit_scope="runs:write"),
    Page("/stuck", show_stuck_runs),
)
