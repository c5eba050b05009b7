"""Load and print the details of a run for `retoma runs show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from rich.text import Text

from retoma.cli import printing
from retoma.cli.printing import Column
from retoma.client import Client
from retoma.records import ErrorCounts, Job, Orphan, Run, StepProgress, Wait, describe_recorded_error
from retoma.states import JobState, RunState
from retoma.terminal import escape_text

MAX_ERRORS = 10
MAX_RESULTS = 20


@dataclass(frozen=True)
class RunDetails:
    run: Run
    steps: list[StepProgress]
    waits: list[Wait]
    running: list[Job]
    errors: dict[tuple[str, str], Any]
    error_counts: ErrorCounts
    results: dict[str, Any]
    stale: list[tuple[str, str]]
    orphans: list[Orphan]
    children: dict[RunState, int]
    forked_title: str = ""
    parent_title: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "run": vars(self.run),
            "steps": [asdict(step) for step in self.steps],
            "waits": [asdict(wait) | {"explanation": wait.explanation} for wait in self.waits],
            "errors": errors_to_json(self.errors),
            "error_counts": asdict(self.error_counts),
            "results": self.results,
            "stale": [{"step": step, "item": item} for step, item in self.stale],
            "orphans": [asdict(orphan) for orphan in self.orphans],
            "children": self.children,
        }


def errors_to_json(errors: Mapping[tuple[str, str], Any]) -> list[dict[str, Any]]:
    return [{"step": step, "item": item} | error for (step, item), error in errors.items()]


async def load_details(client: Client, run: Run) -> RunDetails:
    graph = await client.runs.get_graph(run)
    order = [step.name for step in graph.steps if not step.internal]
    progress = {step.step: step for step in await client.runs.get_progress(run.id)}
    jobs = [] if run.is_over else await client.runs.list_jobs(run.id)
    return RunDetails(
        run=run,
        steps=[progress[name] for name in order if name in progress],
        waits=[] if run.is_over else await client.runs.list_waits(run.id),
        running=[job for job in jobs if job.state is JobState.RUNNING],
        errors=await client.runs.get_errors(run.id),
        error_counts=await client.runs.get_error_counts(run.id),
        results={step: result for step, result in (await client.runs.get_results(run.id)).items() if step in order},
        stale=[(step, item) for step, item in await client.runs.list_stale(run.id) if step in order],
        orphans=await client.runs.list_orphans(run.id),
        children=await client.runs.count_children(run.id),
        forked_title=await _get_title(client, run.forked_from),
        parent_title=await _get_title(client, run.parent),
    )


async def _get_title(client: Client, run: UUID | None) -> str:
    return "" if run is None else (await client.runs.get(run)).about


def print_details(details: RunDetails) -> None:
    run, console = details.run, printing.stdout()
    if run.about:
        console.print(Text(escape_text(run.about), style="bold"))
    console.print(
        Text.assemble((escape_text(run.pipeline), "bold"), "  ", str(run.id), "  ", printing.format_state(run.state))
    )
    console.print(_format_times(run, details.forked_title))
    if run.parent:
        console.print(f"child of {_name_run(run.parent, details.parent_title)}")
    if run.input:
        console.print(f"input    {printing.format_value(run.input, 200)}")
    if details.children:
        console.print(_format_children(details.children))
    if details.stale:
        console.print(f"stale    {_stale_line(details)}")
    console.print()
    console.print(printing.make_table([_step_row(step, run.state) for step in details.steps], _STEP_COLUMNS))
    for title, lines in (
        ("Waiting", [escape_text(wait.explain(printing.format_zoned_time)) for wait in details.waits]),
        (
            "Running",
            [f"{_format_job(job.step, job.item)}, attempt {job.attempt}" for job in details.running][:MAX_ERRORS],
        ),
        (f"Errors ({details.error_counts.failed} failed)", _error_lines(details, retried=False)),
        (f"Retried ({details.error_counts.recovered}, last error of each)", _error_lines(details, retried=True)),
        ("Orphans (look for them at the provider)", [_format_orphan(orphan) for orphan in details.orphans]),
        ("Results", _result_lines(details)),
    ):
        if lines:
            console.print()
            console.print(Text(title, style="bold"))
            for line in lines:
                console.print(f"  {line}")


def _format_orphan(orphan: Orphan) -> str:
    job = f"{_format_job(orphan.step, orphan.item)}, revision {orphan.revision}, {escape_text(orphan.effect)}"
    key = f", key {escape_text(orphan.key)}" if orphan.key else ""
    value = "" if orphan.value is None else f", value {printing.format_value(orphan.value, 100)}"
    error = f": {escape_text(orphan.error['message'])}" if orphan.error else ""
    end = f"{orphan.resolution} by {escape_text(orphan.resolved_by or '')}" if orphan.resolution else "not resolved"
    return f"{job}, begun {printing.format_time(orphan.begun_at)}{key}{value}, {end}{error}"


def _name_run(run: UUID, title: str) -> str:
    return f"“{escape_text(title)}” ({run})" if title else str(run)


def _format_children(children: Mapping[RunState, int]) -> Text:
    counts = [printing.format_state(state).append(f" {count}") for state, count in children.items()]
    return Text.assemble("children ", Text(", ").join(counts))


def _format_times(run: Run, forked_title: str) -> str:
    forked = f", forked from {_name_run(run.forked_from, forked_title)}" if run.forked_from else ""
    tenant = f"tenant {escape_text(run.tenant)}, version {run.version}, revision {run.revision}{forked}"
    if run.ended_at is not None:
        took = printing.format_duration(run.ended_at - run.run_at)
        ended = printing.format_time(run.ended_at)
        return f"{tenant}, started {printing.format_time(run.created_at)}, ended {ended} after {took}"
    later = f", scheduled for {printing.format_time(run.run_at)}" if run.run_at > run.created_at else ""
    return f"{tenant}, started {printing.format_time(run.created_at)}{later}"


_STEP_COLUMNS = [
    Column("step"),
    Column("state"),
    Column("items"),
    Column("queue"),
    Column("started_at", "started", printing.format_time),
    Column("took", formatter=printing.format_duration),
]
# The order in which the states of a step's jobs are listed.
_STATE_ORDER = [
    JobState.RUNNING,
    JobState.READY,
    JobState.PARKED,
    JobState.WAITING,
    JobState.QUARANTINED,
    JobState.FAILED,
    JobState.CANCELLED,
    JobState.SKIPPED,
    JobState.SUCCEEDED,
]


def _step_row(step: StepProgress, run_state: RunState) -> dict[str, Any]:
    absence = step.explain_absence(run_state)
    return {
        "step": step.step,
        "state": Text(absence.replace("_", " ")) if absence else _format_states(step),
        "items": _format_items(step) if step.each and not absence else None,
        "queue": step.queue,
        "started_at": step.started_at,
        "took": step.duration,
    }


def _format_states(step: StepProgress) -> Text:
    """Return the state of the step's jobs, or the number of jobs in each state."""
    found = [state for state in reversed(_STATE_ORDER) if step.jobs.get(state)] or [JobState.WAITING]
    if len(found) == 1:
        return printing.format_state(found[0])
    return Text(", ").join(printing.format_state(state).append(f" {step.jobs[state]}") for state in found)


def _format_items(step: StepProgress) -> str:
    if not step.jobs:
        return "none yet"
    return f"{step.jobs.get(JobState.SUCCEEDED, 0)}/{step.total}"


def _error_lines(details: RunDetails, *, retried: bool) -> list[str]:
    lines = []
    errors = [(name, error) for name, error in details.errors.items() if error["retried"] is retried]
    for (step, item), error in errors[:MAX_ERRORS]:
        message = printing.format_value(describe_recorded_error(error), 300)
        code = printing.format_value(error.get("code") or "")
        attempt = f"(attempt {error['attempt']}{_format_provider(error)})"
        lines.append(f"{_format_job(step, item)}: {code}{f': {message}' if message else ''} {attempt}")
    if len(errors) > MAX_ERRORS:
        lines.append(f"... and {len(errors) - MAX_ERRORS} more; use -o json to see all")
    return lines


def _format_provider(error: Mapping[str, Any]) -> str:
    """Return the provider of a chain that failed, and the one to which the job moves on."""
    provider, following = error.get("provider"), error.get("next_provider")
    return f", {provider}{f', next {following}' if following else ''}" if provider else ""


def _result_lines(details: RunDetails) -> list[str]:
    first = list(details.results.items())[:MAX_RESULTS]
    return [f"{step}: {printing.format_value(result, 160)}" for step, result in first]


def _stale_line(details: RunDetails) -> str:
    jobs = [_format_job(step, item) for step, item in details.stale[:MAX_RESULTS]]
    more = len(details.stale) - len(jobs)
    listed = ", ".join([*jobs, *([f"and {more} more"] if more else [])])
    return f"{listed}; rerun with `retoma runs rerun {details.run.id} --stale`"


def _format_job(step: str, item: str) -> str:
    return f"{step} of {printing.format_value(item, 60)}" if item else step
