"""What must be true when all is quiet again: the ledger, the users' memory and the model against the database."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from bench.chaos import farm, model
from bench.chaos.client import UserLog
from bench.chaos.faults import Kill, UnreachablePeriod
from bench.chaos.ledger import Key, Line
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
FINAL_STATES = {"completed", "completed_with_errors", "failed", "rejected", "cancelled"}
REVIEWS = {"approval"}  # steps of people: their result is that of another step


@dataclass
class Findings:
    """What is wrong, sentence by sentence under its heading, and what is only told."""

    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    figures: dict[str, Any] = field(default_factory=dict)

    def expect(self, heading: str, sentences: Iterable[str]) -> None:
        self.wrong[heading].extend(sentences)

    @property
    def is_good(self) -> bool:
        return not any(self.wrong.values())


@dataclass
class Store:
    """All that the database has."""

    runs: dict[UUID, asyncpg.Record]
    jobs: dict[Key, asyncpg.Record]
    events: list[asyncpg.Record]

    @classmethod
    async def read(cls, connection: Connection) -> Store:
        runs = await connection.fetch(
            "select r.id, v.pipeline, r.state::text as state, r.input::text as input, r.revision, "
            "r.open_sinks "
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
        return cls({run["id"]: run for run in runs}, {key_of(job): job for job in jobs}, events)


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
    findings.expect("lost: acknowledged and not stored", _find_lost(store, user_log))
    findings.expect("started twice", _find_started_twice(store, user_log))
    findings.expect("not ended", _find_not_ended(store))
    findings.expect("stale writes accepted", _find_stale_writes(store, lines))
    findings.expect("double transitions", _find_double_transitions(store))
    findings.expect("events that contradict the rows", _find_contradictions(store))
    findings.expect("results that the model does not give", _find_surprises(store, user_log))
    findings.expect("completed work that ran again", _find_rework(store, lines))
    findings.expect("one attempt that ran twice", _find_ran_twice(lines))
    findings.expect(
        f"bodies that began later than {LATEST_AFTER_CANCEL:g} s after a cancel",
        _find_work_after_cancel(user_log, lines, deafness),
    )
    findings.expect("counters that do not add up", _find_leftover_counters(store))
    findings.expect("jobs left over in runs that have ended", _find_leftovers(store))
    findings.expect(f"jobs recovered later than {LATEST_RECOVERY:g} s", _find_late_recoveries(lines, kills))
    _add_figures(findings, store, user_log, lines, kills)
    return findings


async def find_wrong_counters(connection: Connection) -> tuple[int, list[str]]:
    """How many open runs there are just now, and those of their counters that differ from their rows."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        looked_at = await connection.fetchval(_OPEN)
        rows = await connection.fetch(_COUNTERS)
    return looked_at, [
        f"{row['what']} of {row['step']}:{row['item']} in {row['run']}: {row['stored']}, its rows say {row['counted']}"
        for row in rows
    ]


async def find_wrong_slots(connection: Connection) -> list[str]:
    """Where pools and outside work contradict the jobs, just now."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        rows = await connection.fetch(_SLOTS, farm.MOST)
    return [f"{row['what']}: {row['step']}:{row['item']} in {row['run']}" for row in rows]


def check_external_work(
    findings: Findings, works: Sequence[farm.Work], store: Store, *, at_rest: Sequence[str], stood_still: int
) -> None:
    """What the provider knows, and what the database says of slots when all runs are over.

    `stood_still` is how often a worker was silent for longer than its lease: no other fault may double a submit. What
    such a worker submits holds no slots, nor does what a job has submitted that was quarantined.
    """
    findings.expect("leaked slots, and jobs without theirs", at_rest)
    doubled = farm.find_duplicates(works)
    findings.expect(
        "more duplicate submits than workers that stood still",
        [f"{later.external_id} while there was {former.external_id}" for later, former in doubled.items()][
            stood_still:
        ],
    )
    poison = {":".join(map(str, key)) for key, job in store.jobs.items() if job["state"] == "quarantined"}
    most = farm.most_slots_at_once(work for work in works if work not in doubled and work.key not in poison)
    findings.expect("more work outside than slots", [f"{most} slots at a time"] if most > farm.MOST else [])
    findings.figures |= {
        "outside work submitted": len(works),
        "duplicate submits (allowed, counted)": len(doubled),
        "submits that nobody asked after (allowed, counted)": len(farm.find_never_polled(works)),
        "most slots of work outside at a time": most,
    }


def check_deliveries(findings: Findings, deliveries: Deliveries, user_log: UserLog, receiver: Receiver) -> None:
    asked = [one.run for one in user_log.acknowledged.values() if one.wants_webhook]
    findings.expect("deliveries owed and neither delivered nor dead", find_missing(deliveries, asked))
    findings.expect("deliveries lost", find_lost(deliveries, receiver.got))
    findings.expect("deliveries out of order", find_out_of_order(deliveries, receiver.got))
    findings.expect("deliveries that changed between attempts", find_changed(receiver.got))
    findings.expect("deliveries without a good signature", receiver.unsigned)
    findings.figures |= count_deliveries(deliveries, receiver.got)


def _find_lost(store: Store, user_log: UserLog) -> Iterable[str]:
    for one in user_log.acknowledged.values():
        if one.run not in store.runs:
            yield f"{one.pipeline} {one.run}"


def _find_started_twice(store: Store, user_log: UserLog) -> Iterable[str]:
    yield from user_log.contradictions
    runs = Counter(json.loads(run["input"])["nonce"] for run in store.runs.values())
    yield from (f"{nonce}: {count} runs" for nonce, count in runs.items() if count > 1)


def _find_not_ended(store: Store) -> Iterable[str]:
    for run in store.runs.values():
        if run["state"] not in FINAL_STATES:
            jobs = Counter(job["state"] for key, job in store.jobs.items() if key[0] == run["id"])
            yield f"{run['pipeline']} {run['id']} is {run['state']}, its jobs {dict(jobs)}"


def _find_stale_writes(store: Store, lines: Sequence[Line]) -> Iterable[str]:
    """A result carries the attempt and the token of the execution that gave it.

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
    # A list of pairs is made by the engine itself.
    return [(part["attempt"], part["token"]) for part in output[:1] if isinstance(part, dict)]


def _find_double_transitions(store: Store) -> Iterable[str]:
    kinds = {"start": "start", "result": "end", "failure": "end", "end": "end"}
    ends = Counter((*key_of(event), kinds[event["kind"]]) for event in store.events if event["kind"] in kinds)
    yield from (f"{what}: {count} times" for what, count in ends.items() if count > 1)


def _find_contradictions(store: Store) -> Iterable[str]:
    """The log of events and the rows say the same."""
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
    # An edit that nothing depends on is a revision without an end of its own.
    last = {run: event for (run, step, _, _), event in sorted(ends.items(), key=lambda end: end[0][3]) if step is None}
    for run in store.runs.values():
        event = last.get(run["id"])
        state = json.loads(event["data"])["state"] if event else None
        if state != (run["state"] if run["state"] in FINAL_STATES else None):
            yield f"{run['id']} is {run['state']}, its event says {state}"


def _find_surprises(store: Store, user_log: UserLog) -> Iterable[str]:
    cancelled = {one.run for one in user_log.acknowledged.values() if one.cancelled_at is not None}
    jobs_of: dict[UUID, dict[model.JobName, asyncpg.Record]] = defaultdict(dict)
    for (of_run, step, item, _), job in store.jobs.items():
        jobs_of[of_run][step, item] = job  # of the newest revision
    for run in store.runs.values():
        yield from _surprises_of(run, jobs_of[run["id"]], is_cancelled=run["id"] in cancelled)


def _surprises_of(
    run: asyncpg.Record, jobs: dict[model.JobName, asyncpg.Record], *, is_cancelled: bool
) -> Iterable[str]:
    given = json.loads(run["input"])
    quarantined = {name for name, job in jobs.items() if job["state"] == "quarantined"}
    reached = run["revision"] if is_cancelled else None
    story = model.predict_run(run["pipeline"], run["id"], given["nonce"], given["size"], quarantined, reached)
    about = f"{run['pipeline']} {run['id']}"
    if is_cancelled and run["state"] != "cancelled":
        yield f"{about} was cancelled and is {run['state']}"
    elif not is_cancelled and run["state"] in FINAL_STATES and run["state"] != story.state:
        yield f"{about} is {run['state']}, the model says {story.state}"
    for name, job in jobs.items():
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
            yield f"{line.key} ran and is not in the database"
        elif job["state"] == "succeeded" and line.what == "began" and line.attempt > job["attempt"]:
            yield f"{line.key}: attempt {job['attempt']} gave the result, and attempt {line.attempt} began"


def _find_ran_twice(lines: Sequence[Line]) -> Iterable[str]:
    began = Counter((line.key, line.attempt) for line in lines if line.what == "began")
    yield from (f"{key}, attempt {attempt}: {count} times" for (key, attempt), count in began.items() if count > 1)


def _find_work_after_cancel(
    user_log: UserLog, lines: Sequence[Line], deafness: Sequence[UnreachablePeriod]
) -> Iterable[str]:
    """Counted from when the worker could hear of it: no fault kept it from that since."""
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
        "jobs": len(store.jobs),
        "executions of bodies": sum(executions.values()),
        "duplicated effects (bodies that ended more than once; allowed)": sum(n - 1 for n in ended.values() if n > 1),
        "starts sent twice": user_log.sent_twice,
        "starts without an answer, sent again": user_log.unanswered,
        "delayed starts": user_log.delayed,
        "jobs reclaimed from dead workers": sum(job["worker_deaths"] > 0 for job in store.jobs.values()),
        "jobs quarantined after three deaths": sum(job["state"] == "quarantined" for job in store.jobs.values()),
        "worst recovery (s)": round(max(recoveries, default=0.0), 2),
        "median recovery (s)": round(statistics.median(recoveries), 2) if recoveries else 0.0,
    }


def _recoveries(lines: Sequence[Line], kills: Sequence[Kill]) -> list[float]:
    """Seconds from each kill to the next attempt of what it interrupted."""
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
