"""Check the invariants after a chaos run: compare the execution log, the users' log and the model with the database."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from bench.chaos import fake_provider, model
from bench.chaos.application import RECEIPT_STEPS
from bench.chaos.client import UserLog
from bench.chaos.execution_log import Key, Line
from bench.chaos.faults import Kill, UnreachablePeriod
from bench.chaos.receiver import (
    Deliveries,
    Receiver,
    count_deliveries,
    find_changed,
    find_lost,
    find_missing,
    find_out_of_order,
)
from retoma.store.database import Connection

_COUNTERS = Path(__file__).with_name("counters.sql").read_text()
_SLOTS = Path(__file__).with_name("slots.sql").read_text()
_OPEN = "select count(*) from retoma.runs where ended_at is null and final_state is null"
LATEST_RECOVERY = 60.0
LATEST_AFTER_CANCEL = 3.0
LATEST_AFTER_PAUSE = 3.0  # until a worker that continues has noticed that it counts as dead
FINAL_STATES = {"completed", "completed_with_errors", "failed", "rejected", "cancelled"}
REVIEWS = {"approval"}  # reviews: their result is that of another step


@dataclass
class Findings:
    """Violations by heading, and metrics that are only reported."""

    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, Any] = field(default_factory=dict)

    def expect(self, heading: str, sentences: Iterable[str]) -> None:
        self.wrong[heading].extend(sentences)

    @property
    def is_good(self) -> bool:
        return not any(self.wrong.values())


@dataclass
class Store:
    """All rows of the database."""

    runs: dict[UUID, asyncpg.Record]
    jobs: dict[Key, asyncpg.Record]
    events: list[asyncpg.Record]
    abandoned_effects: list[asyncpg.Record] = field(default_factory=list)

    @classmethod
    async def read(cls, connection: Connection) -> Store:
        runs = await connection.fetch(
            "select r.id, v.pipeline, r.state::text as state, r.input::text as input, r.revision, "
            "r.open_sinks, (r.parent).run as parent, (r.parent).step as parent_step, (r.parent).item as parent_item "
            "from retoma.runs r join retoma.versions v on v.id = r.version"
        )
        jobs = await connection.fetch(
            "select j.run, j.step, j.item, j.revision, j.state::text as state, j.attempt, j.worker_deaths, "
            "j.child_crashes, "
            "j.waiting_on, j.worker, j.code, j.output::text as output, j.author is not null as edited, "
            "m.reused_from is not null as reused "
            "from retoma.jobs j left join retoma.pending_reruns m using (run, step, item, revision) order by j.revision"
        )
        events = await connection.fetch(
            "select run, revision, attempt, kind, step, item, data::text as data from retoma.events"
        )
        effects = await connection.fetch(
            "select run, step, item, revision, name, find, orphaned_at, resolution "
            "from retoma.effects where abandoned_at is not null"
        )
        return cls({run["id"]: run for run in runs}, {key_of(job): job for job in jobs}, events, effects)


def key_of(row: Any) -> Key:
    return row["run"], row["step"], row["item"], row["revision"]


def check(
    store: Store,
    user_log: UserLog,
    lines: Sequence[Line],
    kills: Sequence[Kill] = (),
    deafness: Sequence[UnreachablePeriod] = (),
) -> Findings:
    findings = Findings()
    findings.expect("lost runs (acknowledged but not stored)", _find_lost(store, user_log))
    findings.expect("runs started twice", _find_started_twice(store, user_log))
    findings.expect("runs that did not end", _find_not_ended(store))
    findings.expect("stale writes accepted", _find_stale_writes(store, lines))
    findings.expect("duplicate state transitions", _find_double_transitions(store))
    findings.expect("events that contradict the rows", _find_contradictions(store))
    findings.expect("results that differ from the model", _find_surprises(store, user_log))
    findings.expect("completed steps that were executed again", _find_rework(store, lines))
    findings.expect("attempts executed twice", _find_ran_twice(lines))
    findings.expect(
        f"steps started more than {LATEST_AFTER_CANCEL:g} s after a cancel",
        _find_work_after_cancel(user_log, lines, deafness),
    )
    findings.expect("inconsistent counters at the end", _find_leftover_counters(store))
    findings.expect("unfinished jobs in ended runs", _find_leftovers(store))
    findings.expect(f"jobs recovered after more than {LATEST_RECOVERY:g} s", _find_late_recoveries(lines, kills))
    _add_figures(findings, store, user_log, lines, kills)
    return findings


async def find_wrong_counters(connection: Connection) -> tuple[int, list[str]]:
    """Return the number of open runs, and those of their counters that differ from their rows."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        looked_at = await connection.fetchval(_OPEN)
        rows = await connection.fetch(_COUNTERS)
    return looked_at, [
        f"{row['what']} of {row['step']}:{row['item']} in {row['run']}: {row['stored']}, its rows say {row['counted']}"
        for row in rows
    ]


async def find_wrong_slots(connection: Connection) -> list[str]:
    """Return where pools and external work contradict the jobs at this moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        rows = await connection.fetch(_SLOTS, fake_provider.MOST)
    return [f"{row['what']}: {row['step']}:{row['item']} in {row['run']}" for row in rows]


def check_external_work(
    findings: Findings,
    works: Sequence[fake_provider.Work],
    store: Store,
    *,
    at_rest: Sequence[str],
    deafness: Sequence[UnreachablePeriod] = (),
) -> None:
    """Compare the provider's records with the database after all runs have ended and everything left was looked for.

    A worker that was paused between its intention and its submission submits what another worker has already looked
    for in vain. Such a stray holds no slots and is known to nobody. Work of a quarantined job holds no slots either.
    """
    strays = {work for work in works if _is_stray(work, deafness)}
    poison = {":".join(map(str, key)) for key, job in store.jobs.items() if job["state"] == "quarantined"}
    doubled = fake_provider.find_duplicates(works)
    most = fake_provider.most_slots_at_once(work for work in works if work not in strays and work.key not in poison)
    findings.expect("leaked or missing slots", at_rest)
    findings.expect(
        "duplicate submissions, not by a paused worker",
        [
            f"{later.external_id} while there was {former.external_id}"
            for later, former in doubled.items()
            if later not in strays and former not in strays
        ],
    )
    findings.expect("more external work than slots", [f"{most} slots at a time"] if most > fake_provider.MOST else [])
    findings.expect(
        "submissions that were never polled",
        [work.external_id for work in fake_provider.find_never_polled(works) if work not in strays],
    )
    findings.expect(
        "external work of ended runs that is still going on",
        _find_left_behind([work for work in works if work not in strays], store),
    )
    findings.expect("orphans although find exists", _find_needless_orphans(store))
    findings.figures |= {
        "external work submitted": len(works),
        "submissions by a worker that was paused before (allowed)": len(strays),
        "peak slots of external work": most,
        "calls left behind that were looked for": sum(e["resolution"] is not None for e in store.abandoned_effects),
        "calls left behind that were cancelled": sum(e["resolution"] == "cancelled" for e in store.abandoned_effects),
    }


def _is_stray(work: fake_provider.Work, deafness: Sequence[UnreachablePeriod]) -> bool:
    by, at = work.submitted_by, work.submitted_at
    return any(one.pid == by and one.since < at < one.until + LATEST_AFTER_PAUSE for one in deafness)


def _find_left_behind(works: Iterable[fake_provider.Work], store: Store) -> Iterable[str]:
    """Work of a job without a result must have ended with its run."""
    now = time.monotonic()
    jobs = {":".join(map(str, key)): job for key, job in store.jobs.items()}
    for work in works:
        job = jobs.get(work.key)
        is_over = job is not None and store.runs[job["run"]]["state"] in FINAL_STATES
        if (
            job is not None
            and is_over
            and job["state"] != "succeeded"
            and work.state_at(now) in fake_provider.IN_PROGRESS
        ):
            yield f"{work.external_id} is {work.state_at(now)}, its job {job['state']} ({job['code']})"


def _find_needless_orphans(store: Store) -> Iterable[str]:
    for effect in store.abandoned_effects:
        if effect["orphaned_at"] is not None and effect["find"] is not None:
            yield f"{effect['name']} of {key_of(effect)}"


def check_deliveries(findings: Findings, deliveries: Deliveries, user_log: UserLog, receiver: Receiver) -> None:
    asked = [one.run for one in user_log.acknowledged.values() if one.wants_webhook]
    findings.expect("expected deliveries neither delivered nor dead", find_missing(deliveries, asked))
    findings.expect("deliveries lost", find_lost(deliveries, receiver.got))
    findings.expect("deliveries out of order", find_out_of_order(deliveries, receiver.got))
    findings.expect("deliveries that changed between attempts", find_changed(receiver.got))
    findings.expect("deliveries without a valid signature", receiver.unsigned)
    findings.figures |= count_deliveries(deliveries, receiver.got)


def _find_lost(store: Store, user_log: UserLog) -> Iterable[str]:
    for one in user_log.acknowledged.values():
        if one.run not in store.runs and one.pipeline != "receipt":  # retention removes those
            yield f"{one.pipeline} {one.run}"


def _find_started_twice(store: Store, user_log: UserLog) -> Iterable[str]:
    yield from user_log.contradictions
    runs = Counter(_nonce_of(run) for run in store.runs.values())
    yield from (f"{nonce}: {count} runs" for nonce, count in runs.items() if count > 1)


def _find_not_ended(store: Store) -> Iterable[str]:
    for run in store.runs.values():
        if run["state"] not in FINAL_STATES:
            jobs = Counter(job["state"] for key, job in store.jobs.items() if key[0] == run["id"])
            yield f"{run['pipeline']} {run['id']} is {run['state']}, its jobs {dict(jobs)}"


def _find_stale_writes(store: Store, lines: Sequence[Line]) -> Iterable[str]:
    """Each result carries the attempt and the token of the execution that returned it.

    An edit and a reuse keep a result of an earlier revision.
    """
    executions = {(line.key, line.attempt, line.token) for line in lines if line.what == "ended"}
    tokens = {(line.key[:3], line.token) for line in lines if line.what == "ended"}
    for key, job in store.jobs.items():
        if job["state"] != "succeeded" or key[1] in REVIEWS:
            continue
        for attempt, token in _signatures(json.loads(job["output"])):
            if job["edited"] or job["reused"]:
                if (key[:3], token) not in tokens:
                    yield f"{key} kept a result that no execution gave"
            elif attempt != job["attempt"]:
                yield f"{key} is at attempt {job['attempt']} and has the result of attempt {attempt}"
            elif (key, attempt, token) not in executions:
                yield f"{key} has a result that no execution of attempt {attempt} gave"


def _signatures(output: Any) -> list[tuple[int, str]]:
    if isinstance(output, dict):
        return [(output["attempt"], output["token"])]
    # The engine itself creates a list of pairs.
    return [(part["attempt"], part["token"]) for part in output[:1] if isinstance(part, dict)]


def _find_double_transitions(store: Store) -> Iterable[str]:
    kinds = {"start": "start", "result": "end", "failure": "end", "end": "end"}
    ends = Counter((*key_of(event), kinds[event["kind"]]) for event in store.events if event["kind"] in kinds)
    yield from (f"{what}: {count} times" for what, count in ends.items() if count > 1)


def _find_contradictions(store: Store) -> Iterable[str]:
    """The event log and the rows must agree."""
    ends = {
        (event["run"], event["step"], event["item"], event["revision"]): event
        for event in store.events
        if event["kind"] in ("result", "failure", "end")
    }
    for key, job in store.jobs.items():
        event = ends.get(key)
        told = event["kind"] if event else None
        ran = job["worker"] not in (None, 0)
        ended_as = "edited" if job["edited"] else job["state"]
        expected = {"succeeded": "result", "failed": "failure", "quarantined": "failure"}.get(
            ended_as, "result" if ended_as == "skipped" and ran else None
        )
        if told != expected:
            yield f"{key} is {job['state']}, its event says {told}"
        elif event and event["attempt"] != job["attempt"]:
            yield f"{key} is at attempt {job['attempt']}, its event says {event['attempt']}"
    # An edit without dependent steps is a revision without its own end event.
    last = {run: event for (run, step, _, _), event in sorted(ends.items(), key=lambda end: end[0][3]) if step is None}
    for run in store.runs.values():
        event = last.get(run["id"])
        state = json.loads(event["data"])["state"] if event else None
        if state != (run["state"] if run["state"] in FINAL_STATES else None):
            yield f"{run['id']} is {run['state']}, its event says {state}"


def _find_surprises(store: Store, user_log: UserLog) -> Iterable[str]:
    cancelled = {one.run for one in user_log.acknowledged.values() if one.cancelled_at is not None}
    cancelled |= {run["id"] for run in store.runs.values() if _was_cancelled_with_its_job(run, store, cancelled)}
    jobs_of: dict[UUID, dict[model.JobName, asyncpg.Record]] = defaultdict(dict)
    for (of_run, step, item, _), job in store.jobs.items():
        jobs_of[of_run][step, item] = job  # of the newest revision
    failed = {_nonce_of(run) for run in store.runs.values() if run["parent"] and run["state"] != "completed"}
    for run in store.runs.values():
        yield from _surprises_of(run, jobs_of[run["id"]], failed, is_cancelled=run["id"] in cancelled)


def _was_cancelled_with_its_job(run: asyncpg.Record, store: Store, cancelled: Container[UUID]) -> bool:
    """A child run may be cancelled if its parent was, or if the job that waited for it was quarantined."""
    if run["parent"] is None or run["state"] != "cancelled":
        return False
    job = store.jobs.get((run["parent"], run["parent_step"], run["parent_item"], 1))
    return run["parent"] in cancelled or (job is not None and job["state"] == "quarantined")


def _nonce_of(run: asyncpg.Record) -> str:
    return str(json.loads(run["input"])["nonce"])


def _surprises_of(
    run: asyncpg.Record,
    jobs: dict[model.JobName, asyncpg.Record],
    failed_children: Collection[str],
    *,
    is_cancelled: bool,
) -> Iterable[str]:
    given = json.loads(run["input"])
    quarantined = {name for name, job in jobs.items() if job["state"] == "quarantined"}
    reached = run["revision"] if is_cancelled else None
    story = model.predict_run(
        run["pipeline"], run["id"], given["nonce"], given["size"], quarantined, reached, failed_children
    )
    about = f"{run['pipeline']} {run['id']}"
    if is_cancelled and run["state"] != "cancelled":
        yield f"{about} was cancelled and is {run['state']}"
    elif not is_cancelled and run["state"] in FINAL_STATES and run["state"] != story.state:
        yield f"{about} is {run['state']}, the model says {story.state}"
    stopped_at = max((jobs[name]["revision"] for name in quarantined), default=0)
    for name, job in jobs.items():
        if job["state"] == "succeeded" and job["revision"] < stopped_at:
            continue  # a rerun ended at the quarantined job before it reached this one, which keeps its earlier result
        if surprise := _surprise(name, job, story):
            yield f"{about}: {name} {surprise}"
    if run["state"] in ("completed", "completed_with_errors"):
        found = {name: job["state"] for name, job in jobs.items() if "*" not in name[0]}
        if found != story.states:
            yield f"{about}: its jobs are {_difference(found, story.states)}"


def _surprise(name: model.JobName, job: asyncpg.Record, story: model.Story) -> str | None:
    state, expected = job["state"], story.states.get(name)
    if state == "quarantined" and max(job["worker_deaths"], job["child_crashes"]) < 3:
        return f"is quarantined after {job['worker_deaths']} deaths and {job['child_crashes']} crashes"
    if state in ("failed", "succeeded") and expected and state != expected:
        return f"is {state} ({job['code']}), the model says {expected}"
    if state == "succeeded" and name in story.values and json.loads(job["output"])["value"] != story.values[name]:
        return f"gave {job['output']}, the model {story.values[name]}"
    return None


def _difference(found: dict[model.JobName, str], expected: dict[model.JobName, str]) -> str:
    names = [name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)]
    return "; ".join(f"{name} {found.get(name)} and not {expected.get(name)}" for name in sorted(names))


def _find_rework(store: Store, lines: Sequence[Line]) -> Iterable[str]:
    """A later attempt than the accepted one can only have been claimed after the result was committed."""
    for line in lines:
        job = store.jobs.get(line.key)
        if job is None:
            if line.key[1] not in RECEIPT_STEPS:
                yield f"{line.key} ran and is not in the database"
        elif job["state"] == "succeeded" and line.what == "began" and line.attempt > job["attempt"]:
            yield f"{line.key}: attempt {job['attempt']} gave the result, and attempt {line.attempt} began"


def _find_ran_twice(lines: Sequence[Line]) -> Iterable[str]:
    began = Counter((line.key, line.attempt) for line in lines if line.what == "began")
    yield from (f"{key}, attempt {attempt}: {count} times" for (key, attempt), count in began.items() if count > 1)


def _find_work_after_cancel(
    user_log: UserLog, lines: Sequence[Line], deafness: Sequence[UnreachablePeriod]
) -> Iterable[str]:
    """Measured from when the worker could receive the cancellation, with no fault since."""
    cancelled = {one.run: one.cancelled_at for one in user_log.acknowledged.values() if one.cancelled_at is not None}
    for line in lines:
        at = cancelled.get(line.key[0])
        if line.what != "began" or at is None or line.at - at <= LATEST_AFTER_CANCEL:
            continue
        deaf = [one.until for one in deafness if one.since < line.at and one.pid in (None, line.pid)]
        if line.at - max([at, *deaf]) > LATEST_AFTER_CANCEL:
            yield f"{line.key}, attempt {line.attempt}: after {line.at - at:.1f} s in process {line.pid}"


def _find_leftover_counters(store: Store) -> Iterable[str]:
    for run in store.runs.values():
        if run["state"] in ("completed", "completed_with_errors") and run["open_sinks"] != 0:
            yield f"{run['id']} is {run['state']} with {run['open_sinks']} open sinks"
    for key, job in store.jobs.items():
        waits = job["state"] == "waiting" or (job["state"] == "cancelled" and job["waiting_on"] > 0)
        if (job["waiting_on"] != 0) != waits:
            yield f"{key} is {job['state']} and waits for {job['waiting_on']}"


def _find_leftovers(store: Store) -> Iterable[str]:
    for key, job in store.jobs.items():
        if job["state"] in ("waiting", "ready", "running", "parked") and store.runs[key[0]]["state"] in FINAL_STATES:
            yield f"{key} is {job['state']}"


def _find_late_recoveries(lines: Sequence[Line], kills: Sequence[Kill]) -> Iterable[str]:
    yield from (f"after {seconds:.1f} s" for seconds in _recoveries(lines, kills) if seconds > LATEST_RECOVERY)


def _add_figures(
    findings: Findings, store: Store, user_log: UserLog, lines: Sequence[Line], kills: Sequence[Kill]
) -> None:
    executions = Counter(line.key for line in lines if line.what == "began")
    ended = Counter((line.key) for line in lines if line.what == "ended")
    recoveries = _recoveries(lines, kills)
    states = Counter(run["state"] for run in store.runs.values())
    findings.figures |= {
        "runs acknowledged": len(user_log.acknowledged),
        "runs by state": dict(states),
        "child runs": sum(run["parent"] is not None for run in store.runs.values()),
        "jobs": len(store.jobs),
        "step executions": sum(executions.values()),
        "steps completed more than once (allowed)": sum(n - 1 for n in ended.values() if n > 1),
        "starts sent twice": user_log.sent_twice,
        "starts without a response, sent again": user_log.unanswered,
        "delayed starts": user_log.delayed,
        "jobs reclaimed from dead workers": sum(job["worker_deaths"] > 0 for job in store.jobs.values()),
        "jobs quarantined after three worker deaths": sum(job["state"] == "quarantined" for job in store.jobs.values()),
        "worst recovery (s)": round(max(recoveries, default=0.0), 2),
        "median recovery (s)": round(statistics.median(recoveries), 2) if recoveries else 0.0,
    }


def _recoveries(lines: Sequence[Line], kills: Sequence[Kill]) -> list[float]:
    """Return the seconds from each kill to the next attempt of each interrupted job."""
    by_pid: dict[int, list[Line]] = defaultdict(list)
    began: dict[Key, list[Line]] = defaultdict(list)
    for line in lines:
        by_pid[line.pid].append(line)
        if line.what == "began":
            began[line.key].append(line)
    return [
        min(later) - kill.at
        for kill in kills
        for held in _held_at(by_pid[kill.pid], kill)
        if (later := [line.at for line in began[held.key] if line.attempt > held.attempt and line.at > kill.at])
    ]


def _held_at(lines: Sequence[Line], kill: Kill) -> Iterable[Line]:
    ended = {line.token for line in lines if line.what != "began" and line.at <= kill.at}
    return (line for line in lines if line.what == "began" and line.at <= kill.at and line.token not in ended)
