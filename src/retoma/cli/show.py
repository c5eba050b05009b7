"""One run, as `retoma runs show` tells of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from retoma.cli import output
from retoma.cli.output import Column
from retoma.client import Client
from retoma.records import ErrorCounts, Job, Run, StepProgress, Wait, describe_recorded
from retoma.states import JOB_ENDS, JobState
from retoma.terminal import clean

MOST_ERRORS = 10
MOST_RESULTS = 20


@dataclass(frozen=True)
class Facts:
    run: Run
    steps: list[StepProgress]
    waits: list[Wait]
    running: list[Job]
    errors: dict[tuple[str, str], Any]
    error_counts: ErrorCounts
    results: dict[str, Any]
    stale: list[tuple[str, str]]

    def plain(self) -> dict[str, Any]:
        return {
            "run": vars(self.run),
            "steps": [asdict(step) for step in self.steps],
            "waits": [asdict(wait) | {"why": wait.why} for wait in self.waits],
            "errors": [{"step": step, "item": item} | error for (step, item), error in self.errors.items()],
            "error_counts": asdict(self.error_counts),
            "results": self.results,
            "stale": [{"step": step, "item": item} for step, item in self.stale],
        }


async def facts(client: Client, run: Run) -> Facts:
    graph = await client.graph(run)
    order = [shape.name for shape in graph.steps if not shape.hidden]
    progress = {step.step: step for step in await client.progress(run.id)}
    jobs = [] if run.is_over else await client.jobs(run.id)
    return Facts(
        run=run,
        steps=[progress[name] for name in order if name in progress],
        waits=[] if run.is_over else await client.waits(run.id),
        running=[job for job in jobs if job.state is JobState.RUNNING],
        errors=await client.errors(run.id),
        error_counts=await client.error_counts(run.id),
        results={step: result for step, result in (await client.results(run.id)).items() if step in order},
        stale=[(step, item) for step, item in await client.stale(run.id) if step in order],
    )


def print_facts(known: Facts) -> None:
    run, console = known.run, output.out()
    console.print(Text.assemble((clean(run.pipeline), "bold"), "  ", str(run.id), "  ", output.state(run.state)))
    console.print(_when(run))
    if run.input:
        console.print(f"input    {output.value(run.input, 200)}")
    if known.stale:
        console.print(f"stale    {_stale_line(known)}")
    console.print()
    console.print(output.table([_step_row(step) for step in known.steps], _STEP_COLUMNS))
    for title, lines in (
        ("Why it waits", [clean(wait.why) for wait in known.waits]),
        ("Running", [f"{_name(job.step, job.item)}, attempt {job.attempt}" for job in known.running][:MOST_ERRORS]),
        (f"Errors ({known.error_counts.failed} failed)", _error_lines(known, retried=False)),
        (
            f"Retried ({known.error_counts.retried_attempts} attempts, not failed)",
            _error_lines(known, retried=True),
        ),
        ("Results", _result_lines(known)),
    ):
        if lines:
            console.print()
            console.print(Text(title, style="bold"))
            for line in lines:
                console.print(f"  {line}")


def _when(run: Run) -> str:
    forked = f", forked from {run.forked_from}" if run.forked_from else ""
    tenant = f"tenant {clean(run.tenant)}, version {run.version}, revision {run.revision}{forked}"
    if run.ended_at is not None:
        took = output.duration(run.ended_at - run.run_at)
        return f"{tenant}, started {output.moment(run.created_at)}, ended {output.moment(run.ended_at)} after {took}"
    later = f", begins {output.moment(run.run_at)}" if run.run_at > run.created_at else ""
    return f"{tenant}, started {output.moment(run.created_at)}{later}"


_STEP_COLUMNS = [
    Column("step"),
    Column("state"),
    Column("items"),
    Column("queue"),
    Column("started_at", "started", output.moment),
    Column("took", shown=output.duration),
]
# In which order the states of a step's jobs are listed.
_TELLING = [
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


def _step_row(step: StepProgress) -> dict[str, Any]:
    done = step.jobs and all(state in JOB_ENDS for state in step.jobs)
    return {
        "step": step.step,
        "state": _states(step),
        "items": _items(step) if step.each else None,
        "queue": step.queue,
        "started_at": step.started_at,
        "took": step.ended_at - step.started_at if done and step.started_at and step.ended_at else None,
    }


def _states(step: StepProgress) -> Text:
    """The state of its jobs, or how many are in which."""
    found = [state for state in reversed(_TELLING) if step.jobs.get(state)] or [JobState.WAITING]
    if len(found) == 1:
        return output.state(found[0])
    return Text(", ").join(output.state(state).append(f" {step.jobs[state]}") for state in found)


def _items(step: StepProgress) -> str:
    if not step.jobs:
        return "none yet"
    return f"{step.jobs.get(JobState.SUCCEEDED, 0)}/{step.total}"


def _error_lines(known: Facts, *, retried: bool) -> list[str]:
    lines = []
    errors = [(name, error) for name, error in known.errors.items() if error["retried"] is retried]
    for (step, item), error in errors[:MOST_ERRORS]:
        said = output.value(describe_recorded(error), 300)
        code = output.value(error.get("code") or "")
        lines.append(f"{_name(step, item)}: {code}{f': {said}' if said else ''} (attempt {error['attempt']})")
    if len(errors) > MOST_ERRORS:
        lines.append(f"... and {len(errors) - MOST_ERRORS} more; -o json has all")
    return lines


def _result_lines(known: Facts) -> list[str]:
    some = list(known.results.items())[:MOST_RESULTS]
    return [f"{step}: {output.value(result, 160)}" for step, result in some]


def _stale_line(known: Facts) -> str:
    named = [_name(step, item) for step, item in known.stale[:MOST_RESULTS]]
    more = len(known.stale) - len(named)
    listed = ", ".join([*named, *([f"and {more} more"] if more else [])])
    return f"{listed}; `retoma runs rerun {known.run.id} --stale` makes it anew"


def _name(step: str, item: str) -> str:
    return f"{step} of {output.value(item, 60)}" if item else step
