"""One run: how far it is, why it waits, what happened, and what came of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from retoma.define.file import files_in
from retoma.define.graph import Graph
from retoma.errors import NotFound
from retoma.records import Job, Made, Review, Run, StepProgress, Stuck, Wait
from retoma.server.pages import differences, graph, items, typed, waterfall
from retoma.server.pages.asked import urgency
from retoma.server.pages.episodes import Episode, ended_by, episodes
from retoma.server.pages.page import Page
from retoma.server.pages.trail import told
from retoma.server.pages.visit import Visit
from retoma.server.pages.words import KNOWN
from retoma.states import JOB_ENDS, JobState, ReviewState, RunState

FIXED = (RunState.CANCELLED, RunState.CANCELLING, RunState.REJECTED)
JOBS, EVENTS, ERRORS, TRIES, CHARGES, FILES, REVIEWS, MADE = 50, 50, 20, 30, 50, 50, 20, 10
MOST_HELD = 1_000  # reviews of one run
DECIDED = tuple(state for state in ReviewState if state is not ReviewState.OPEN)


@dataclass(frozen=True)
class Draft:
    """What a person wrote in place of a result and could not be taken, and why."""

    text: str
    wrong: str


async def show(
    visit: Visit, status: int = 200, draft: Draft | None = None, fork: list[typed.Field] | None = None
) -> Response:
    """`fork` is the form for another run as a person left it."""
    client = visit.client
    run = await client.show(visit.id("run"))
    visit.path = f"/runs/{run.id}"
    last = await client.last_event(run.id)  # before what is shown, so that nothing is missed after it
    shape = await client.graph(run)
    progress = {step.step: step for step in await client.progress(run.id)}
    steps = [progress[step.name] for step in shape.steps if not step.hidden and step.name in progress]
    now = await client.now()
    chosen = await _selected(visit, run, steps)
    held = await _held(visit, run)
    return visit.show(
        "run.html",
        status,
        run=run,
        draft=draft,
        now=now,
        last_event=last,
        steps=steps,
        progress=progress,
        urgency=urgency,
        done=sum(all(state is JobState.SUCCEEDED for state in step.jobs) and step.total > 0 for step in steps),
        fall=await _fall(visit, run, steps, graph.needs(shape), chosen["job"], run.ended_at or now, held),
        groups=_groups(visit, run),
        fork_fields=typed.offered(fork or (input_fields(visit, run) if run.is_over else [])),
        is_fork_open=fork is not None,
        charges=await client.charge_totals(by=("provider", "what", "step"), run=run.id, limit=CHARGES),
        **_asked(held, shape, progress),
        **_allowed(run, chosen["job"]),
        **await _standing_still(visit, run),
        **await _outdated(visit, run),
        **await _failures(visit, run),
        **await _results(visit, run, shape, chosen["job"]),
        **await items.shown(visit, run, shape),
        **await _events(visit, run),
        **chosen,
    )


async def cancel(visit: Visit) -> Response:
    run = visit.id("run")
    await visit.client.cancel(run, by=visit.by, key=visit.key)
    return visit.go(f"/runs/{run}", "cancelled")


async def resume(visit: Visit) -> Response:
    run = visit.id("run")
    await visit.client.resume(run, by=visit.by, key=visit.key)
    return visit.go(f"/runs/{run}", "resumed_no_worker" if await visit.client.lacks_worker(run) else "resumed")


async def rerun_failed(visit: Visit) -> Response:
    run = visit.id("run")
    await visit.client.rerun_failed(run, by=visit.by, key=visit.key)
    return visit.go(f"/runs/{run}", "rerun")


async def stuck(visit: Visit) -> Response:
    found = _explained(visit, await visit.client.stuck())
    return visit.show("stuck.html", stuck=found, now=await visit.client.now())


def _asked(held: list[Review], shape: Graph, progress: Mapping[str, StepProgress]) -> dict[str, Any]:
    """What people are asked, and how that colours steps and jobs."""
    asking = {(review.step, review.item) for review in held if review.applied_at is None}
    steps = {step for step, _ in asking}
    still_open = [review for review in held if review.is_open]
    return {
        "asking": steps,
        "state_of": lambda step: graph.shown(graph.overall(progress[step]), step in steps),
        "job_state_of": lambda job: graph.shown(job.state, (job.step, job.item) in asking),
        "reviews": still_open[:REVIEWS],
        "just_decided": [review for review in held if review.can_be_undone][:REVIEWS],
        "more_reviews": max(0, len(still_open) - REVIEWS),
        "graph": graph.drawn(shape, progress, steps),
    }


def _allowed(run: Run, job: Job | None) -> dict[str, bool]:
    return {
        "may_resume": run.state in (RunState.STUCK, RunState.FAILED),
        "may_remake": run.state not in FIXED,
        "may_rerun": run.state in (RunState.FAILED, RunState.COMPLETED_WITH_ERRORS),
        "may_edit": run.state not in FIXED and job is not None and job.state in JOB_ENDS,
    }


async def _standing_still(visit: Visit, run: Run) -> dict[str, Any]:
    """Why it waits, when it ends, and each time that it stood still."""
    client, halts = visit.client, await episodes(visit.client, run)
    return {
        "waits": [] if run.is_over else [_told(visit, wait) for wait in await client.waits(run.id)],
        "estimate": None if run.is_over else await client.estimate(run.id),
        "stuck": _explained(visit, await client.stuck(run=run.id)) if run.state is RunState.STUCK else [],
        "ended_by": ended_by(halts, run),
        "episodes": halts,
        "cause_of": lambda halt: _cause(visit, halt.cause, halt.data),
        "way_of": lambda halt: _way(visit, halt),
    }


async def _outdated(visit: Visit, run: Run) -> dict[str, Any]:
    stale = set(await visit.client.stale(run.id))
    return {"stale": {step for step, _ in stale}, "stale_jobs": stale}


async def _failures(visit: Visit, run: Run) -> dict[str, Any]:
    errors = await visit.client.errors(run.id, limit=ERRORS)
    return {
        "failures": [each for each in errors.items() if not each[1]["retried"]],
        "retried": [each for each in errors.items() if each[1]["retried"]],
        "error_counts": await visit.client.error_counts(run.id),
    }


async def _results(visit: Visit, run: Run, shape: Graph, job: Job | None) -> dict[str, Any]:
    """The files of the run, and what the chosen job was made of and has given."""
    app = visit.client.app
    return {
        "found_files": await visit.client.files(run, limit=FILES),
        "kept": app is not None and app.files is not None,
        "job_files": [] if job is None else list(files_in(job.output))[:FILES],
        "value": await _value(visit, run, shape, job),
        "made": await _made(visit, run, job),
        "told": lambda feedback: told(visit, run.pipeline, feedback.get("review", ""), feedback),
    }


async def _events(visit: Visit, run: Run) -> dict[str, Any]:
    after = visit.asked.get("after", "")
    found = await visit.client.events(run.id, after=_number(after, 0), limit=EVENTS + 1)
    return {"events": found[:EVENTS], "later": found[EVENTS - 1].id if len(found) > EVENTS else None}


async def _fall(
    visit: Visit,
    run: Run,
    steps: list[StepProgress],
    needs: Mapping[str, list[str]],
    job: Job | None,
    ends: datetime,
    held: list[Review],
) -> waterfall.Waterfall:
    client = visit.client
    item = job if job is not None and job.item else None
    tries = await client.tries(run.id, item.step, item.item) if item else await client.tries(run.id)
    return waterfall.drawn(steps, needs, await client.outside(run.id), run.run_at, ends, tries, item, held)


async def _selected(visit: Visit, run: Run, steps: list[StepProgress]) -> dict[str, Any]:
    """The step that the address names, with a page of its jobs, or with one of them and its attempts."""
    asked = visit.asked
    step = next((each for each in steps if each.step == asked.get("step")), None)
    if step is None:
        if asked.get("step"):
            raise NotFound(visit.say("no step", step=asked["step"]))
        return {"step": None, "jobs": [], "job": None, "tries": [], "more": None, "job_states": []}
    item = asked.get("item") if step.each else ""
    jobs = await _jobs(visit, run, step.step, item)
    job = jobs[0] if item is not None and jobs else None
    tries = [] if job is None else await visit.client.job_events(run.id, step.step, job.item, limit=TRIES)
    more = jobs[JOBS - 1].position if len(jobs) > JOBS else None
    return {"step": step, "jobs": jobs[:JOBS], "job": job, "tries": tries, "more": more, "job_states": list(step.jobs)}


async def _held(visit: Visit, run: Run) -> list[Review]:
    """The reviews of a run: all that are open, and of the others the first."""
    still = await visit.client.reviews(run=run.id, limit=MOST_HELD)
    rest = await visit.client.reviews(run=run.id, states=DECIDED, limit=MOST_HELD)
    return [*still, *rest]


async def _made(visit: Visit, run: Run, job: Job | None) -> list[tuple[Made, differences.Difference | None]]:
    """The revisions of a job, the newest first, each with what it changed of the one before."""
    if job is None:
        return []
    found = await visit.client.made(run.id, job.step, job.item, limit=MADE + 1)
    given = [each for each in found if each.state is JobState.SUCCEEDED]
    before = dict(zip((each.revision for each in given), given[1:], strict=False))
    return [(each, _difference(each, before.get(each.revision))) for each in found[:MADE]]


def _difference(made: Made, former: Made | None) -> differences.Difference | None:
    return None if former is None else differences.between(former.output, made.output)


def _groups(visit: Visit, run: Run) -> list[str]:
    app = visit.client.app
    pipeline = app.pipelines.get(run.pipeline) if app else None
    return sorted(pipeline.groups) if pipeline else []


def input_fields(visit: Visit, run: Run) -> list[typed.Field]:
    """The input of this run, to be changed for another; nothing where this server does not know its type."""
    app = visit.client.app
    pipeline = app.pipelines.get(run.pipeline) if app else None
    if pipeline is None or pipeline.inputs is None:
        return []
    return typed.fields_of(pipeline.inputs.model_json_schema(), run.input or {}, language=visit.language)


async def _value(visit: Visit, run: Run, shape: Graph, job: Job | None) -> Any:
    """The item itself, of a job that goes over one."""
    source = next((step.source for step in shape.steps if job is not None and step.name == job.step), None)
    if job is None or source is None:
        return None
    found = await visit.client.items(run.id, source, only=[job.item], limit=1)
    return found[0].value if found else None


async def _jobs(visit: Visit, run: Run, step: str, item: str | None) -> list[Job]:
    state = visit.choice("job_state", JobState)
    return await visit.client.step_jobs(
        run.id,
        step,
        item=item,
        states=[state] if state and item is None else None,
        after=_number(visit.asked.get("from", ""), -1),
        limit=JOBS + 1,
    )


def _explained(visit: Visit, stuck: list[Stuck]) -> list[tuple[Stuck, str]]:
    """With the cause in the visitor's language, where we have words for it."""
    return [(each, _cause(visit, each.cause, each.data or {})) for each in stuck]


def _cause(visit: Visit, cause: str, data: Mapping[str, Any]) -> str:
    about = {name: data.get(name) or "" for name in ("queue", "pool", "step", "until")}
    why = visit.say(f"wait {cause}", **about) if f"wait {cause}" in KNOWN else data.get("why") or cause
    where = " · ".join(str(data[name]) for name in ("step", "item") if data.get(name))
    return f"{where}: {why}" if where else why


def _way(visit: Visit, halt: Episode) -> str:
    """How it went on."""
    return visit.say(f"way {halt.way}", by=halt.by)


def _told(visit: Visit, wait: Wait) -> str:
    """Why jobs wait, in the visitor's language."""
    label = visit.label(wait.step)
    who = f"{label} ({wait.item})" if wait.item and wait.jobs == 1 else label
    until = visit.formats.time(wait.until)
    why = visit.say(f"wait {wait.reason}", queue=wait.queue, pool=wait.pool or "", until=until, step=wait.step)
    if wait.jobs == 1:
        return visit.say("waits one", who=who, why=why)
    return visit.say("waits", who=who, jobs=visit.formats.number(wait.jobs), why=why)


def _number(given: str, otherwise: int) -> int:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else otherwise


PAGES = (
    Page("/runs/{run}", show),
    Page("/runs/{run}/cancel", act=cancel),
    Page("/runs/{run}/resume", act=resume),
    Page("/runs/{run}/rerun-failed", act=rerun_failed),
    Page("/stuck", stuck),
)
