"""The checker of the chaos test: it reports nothing if all went well, and each violation otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from bench.chaos import fake_provider, model
from bench.chaos.checker import Findings, Store, check, check_deliveries, check_external_work, find_wrong_slots
from bench.chaos.client import Acknowledged, UserLog
from bench.chaos.execution_log import Line
from bench.chaos.faults import UnreachablePeriod
from bench.chaos.receiver import ACCEPTED, Deliveries, ReceivedRequest, Receiver
from retoma import Pipeline, Pool
from tests.conftest import OpenSandbox
from tests.engine.builders import run_next

NONCE, PID = "1-1", 7


class World:
    """A chain of four steps that ran once each, and one webhook that came."""

    def __init__(self) -> None:
        self.run = run = uuid4()
        story = model.predict_run("chain", run, NONCE, 0, set())
        self.told = UserLog({NONCE: Acknowledged(run, "chain", NONCE, 0, wants_webhook=True)})
        self.runs: dict[UUID, Any] = {run: make_run(run)}
        self.jobs: dict[Any, Any] = {(run, step, "", 1): make_job(run, step, story) for step, _ in story.states}
        self.events = [make_event(run, "start"), *(make_event(run, "result", step) for step, _ in story.states)]
        self.events.append(make_event(run, "end", data={"state": "completed"}))
        self.lines = [
            line for key in self.jobs for line in (make_line(key, 1.0, "began"), make_line(key, 2.0, "ended"))
        ]
        self.got = [ReceivedRequest(uuid4(), run, 1, b"{}", ACCEPTED)]
        self.hooks: list[Any] = [{"run": run, "events": ["run.completed"], "state": "completed"}]
        self.deliveries: list[Any] = [make_delivery(self.got[0])]
        self.submissions: list[Any] = []
        self.abandoned_effects: list[Any] = []
        self.deafness: list[UnreachablePeriod] = []

    def check(self) -> Findings:
        store = Store(self.runs, self.jobs, self.events, self.abandoned_effects)
        findings = check(store, self.told, self.lines, deafness=self.deafness)
        check_external_work(findings, self.submissions, store, at_rest=[], deafness=self.deafness)
        receiver = Receiver(None)  # type: ignore[arg-type]
        receiver.got = self.got
        check_deliveries(findings, Deliveries(self.hooks, self.deliveries), self.told, receiver)
        return findings


def make_run(run: UUID) -> dict[str, Any]:
    values = json.dumps({"nonce": NONCE, "size": 0})
    parent = {"parent": None, "parent_step": None, "parent_item": None}
    own = {"id": run, "pipeline": "chain", "state": "completed", "input": values, "open_sinks": 0, "revision": 1}
    return own | parent


def make_job(run: UUID, step: str, story: model.Story) -> dict[str, Any]:
    output = {"value": story.values[step, ""], "attempt": 1, "token": step}
    counts = {"attempt": 1, "worker_deaths": 0, "child_crashes": 0, "waiting_on": 0, "worker": 1, "code": None}
    origin = {"edited": False, "reused": False}
    key = {"run": run, "step": step, "item": "", "revision": 1}
    return {**key, **counts, **origin, "state": "succeeded", "output": json.dumps(output)}


def make_event(run: UUID, kind: str, step: str | None = None, data: object = None) -> Any:
    item, attempt = ("", 1) if step else (None, None)
    key = {"run": run, "step": step, "item": item, "revision": 1}
    return {**key, "kind": kind, "attempt": attempt, "data": json.dumps(data)}


def make_line(key: Any, at: float, what: str) -> Line:
    return Line(at, PID, key, 1, key[1], what)


def make_delivery(got: ReceivedRequest) -> dict[str, Any]:
    return {
        "id": got.id,
        "run": got.run,
        "seq": got.seq,
        "event": "run.completed",
        "state": "delivered",
        "attempt": 1,
    }


class Submitted(fake_provider.Work):
    """External work of one key that is still running, without a file."""

    @property
    def key(self) -> str:
        return "same"

    @property
    def submitted_at(self) -> float:
        return float(self.external_id)

    @property
    def submitted_by(self) -> int:
        return PID

    @property
    def first_polled_at(self) -> float | None:
        return 1.0

    @property
    def over_at(self) -> float:
        return 100.0

    def state_at(self, now: float) -> str:
        return "running"


class Unpolled(Submitted):
    @property
    def first_polled_at(self) -> None:
        return None


class Forgotten(Submitted):
    """External work of the job `third` of a run."""

    @property
    def key(self) -> str:
        return f"{self.external_id}:third::1"

    @property
    def submitted_at(self) -> float:
        return 1.0


class Wide(Submitted):
    """External work with its own key that needs two slots."""

    @property
    def key(self) -> str:
        return f"{self.external_id}:poster::1"

    @property
    def slots(self) -> int:
        return 2


def test_the_checker_reports_nothing_if_all_went_well() -> None:
    assert World().check().is_good


def lose_run(world: World) -> None:
    world.runs.clear()
    world.jobs.clear()
    world.events.clear()
    world.lines.clear()


def lose_a_job(world: World) -> None:
    del world.jobs[world.run, "third", "", 1]


def run_a_body_twice(world: World) -> None:
    world.lines.append(make_line((world.run, "third", "", 1), 3.0, "began"))


def end_a_job_twice(world: World) -> None:
    world.events.append(make_event(world.run, "result", "third"))


def take_a_stale_result(world: World) -> None:
    world.jobs[world.run, "third", "", 1]["output"] = json.dumps({"value": 1, "attempt": 1, "token": "another"})


def begin_after_a_cancel(world: World) -> None:
    world.told.acknowledged[NONCE].cancelled_at = -2.5


def leave_a_webhook_unsent(world: World) -> None:
    world.deliveries[0]["state"] = "due"


def forget_a_webhook(world: World) -> None:
    world.deliveries.clear()


def mark_as_delivered(world: World) -> None:
    world.got.clear()


def submit_twice(world: World) -> None:
    world.submissions = [Submitted("1"), Submitted("2")]


def submit_and_forget(world: World) -> None:
    world.submissions = [Unpolled("1")]


def leave_work_behind(world: World) -> None:
    world.jobs[world.run, "third", "", 1]["state"] = "failed"
    world.submissions = [Forgotten(str(world.run))]


def start_a_second_child(world: World) -> None:
    for child in (uuid4(), uuid4()):
        world.runs[child] = make_run(child) | make_parent(uuid4(), f"{NONCE}/author-0")


def cancel_a_child_alone(world: World) -> None:
    parent, child = uuid4(), uuid4()
    world.runs[child] = make_run(child) | make_parent(parent, f"{NONCE}/author-0") | {"state": "cancelled"}


def make_parent(parent: UUID, nonce: str) -> dict[str, Any]:
    values = json.dumps({"nonce": nonce, "size": 0})
    return {"parent": parent, "parent_step": "story", "parent_item": "author-0", "input": values}


def leave_an_orphan(world: World) -> None:
    key = {"run": world.run, "step": "third", "item": "", "revision": 1, "name": "hire"}
    world.abandoned_effects = [key | {"find": "provider.find", "orphaned_at": 1.0, "resolution": None}]


def submit_more_than_fits(world: World) -> None:
    world.submissions = [Wide("1"), Wide("2"), Wide("3")]


@pytest.mark.parametrize(
    ("spoil", "heading"),
    [
        (submit_more_than_fits, "more external work than slots"),
        (lose_run, "lost runs (acknowledged but not stored)"),
        (lose_a_job, "completed steps that were executed again"),
        (run_a_body_twice, "attempts executed twice"),
        (end_a_job_twice, "duplicate state transitions"),
        (take_a_stale_result, "stale writes accepted"),
        (begin_after_a_cancel, "steps started more than 3 s after a cancel"),
        (leave_a_webhook_unsent, "expected deliveries neither delivered nor dead"),
        (forget_a_webhook, "expected deliveries neither delivered nor dead"),
        (mark_as_delivered, "deliveries lost"),
        (submit_twice, "duplicate submissions, not by a paused worker"),
        (submit_and_forget, "submissions that were never polled"),
        (leave_work_behind, "external work of ended runs that is still going on"),
        (leave_an_orphan, "orphans although find exists"),
        (start_a_second_child, "runs started twice"),
        (cancel_a_child_alone, "results that differ from the model"),
    ],
)
def test_each_violation_is_reported(spoil: Callable[[World], None], heading: str) -> None:
    world = World()
    spoil(world)
    assert len(world.check().wrong[heading]) >= 1


@pytest.mark.parametrize(
    ("fault", "excused"),
    [
        (UnreachablePeriod(-2.0, 0.5), True),
        (UnreachablePeriod(-2.0, 0.5, pid=PID), True),
        (UnreachablePeriod(-2.0, 0.5, pid=PID + 1), False),
        (UnreachablePeriod(-2.4, -2.1), False),
        (UnreachablePeriod(1.5, 9.0), False),
    ],
)
def test_a_body_may_start_after_a_cancel_that_its_worker_could_not_receive(
    fault: UnreachablePeriod, excused: bool
) -> None:
    world = World()
    begin_after_a_cancel(world)
    world.deafness.append(fault)
    late = world.check().wrong["steps started more than 3 s after a cancel"]
    assert len(late) == (0 if excused else 4)


@pytest.mark.parametrize("spoil", [submit_twice, submit_and_forget])
@pytest.mark.parametrize(
    ("fault", "excused"),
    [
        (UnreachablePeriod(0.5, 0.9, pid=PID), True),
        (UnreachablePeriod(0.5, 0.9, pid=PID + 1), False),
        (UnreachablePeriod(0.5, 0.9), False),
        (UnreachablePeriod(-9.0, -8.0, pid=PID), False),
        (UnreachablePeriod(3.0, 4.0, pid=PID), False),
    ],
)
def test_only_a_worker_that_was_paused_before_may_submit_unnoticed(
    spoil: Callable[[World], None], fault: UnreachablePeriod, excused: bool
) -> None:
    world = World()
    spoil(world)
    world.deafness.append(fault)
    assert world.check().is_good == excused


def test_what_a_successful_job_started_may_go_on() -> None:
    world = World()
    leave_work_behind(world)
    world.jobs[world.run, "third", "", 1]["state"] = "succeeded"
    assert world.check().is_good


async def test_slots_held_without_work_are_reported(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film")

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip() -> int:
        return 1

    async with (
        open_sandbox(pipeline) as sandbox,
        sandbox.manual_worker() as worker,
        sandbox.database.connection() as connection,
    ):
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "clip")
        assert await find_wrong_slots(connection) == []
        await connection.execute(
            "insert into retoma.holdings select run, step, item, revision, pool, 1 from retoma.jobs"
        )
        assert await find_wrong_slots(connection) == [f"slots that no running or parked job holds: clip: in {run}"]


def test_work_of_a_quarantined_job_holds_no_slots() -> None:
    world = World()
    submit_more_than_fits(world)
    world.jobs["3", "poster", "", 1] = make_job(
        world.run, "first", model.predict_run("chain", world.run, NONCE, 0, set())
    ) | {"state": "quarantined"}
    assert not world.check().wrong["more external work than slots"]
