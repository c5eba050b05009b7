"""The referee of the chaos: it says nothing of a world in which all went well, and names each thing that is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from bench.chaos import farm, model
from bench.chaos.checker import Findings, Store, check, check_deliveries, check_external_work, find_wrong_slots
from bench.chaos.client import Acknowledged, UserLog
from bench.chaos.faults import UnreachablePeriod
from bench.chaos.ledger import Line
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
        self.runs: dict[UUID, Any] = {run: a_run(run)}
        self.jobs: dict[Any, Any] = {(run, step, "", 1): a_job(run, step, story) for step, _ in story.states}
        self.events = [an_event(run, "start"), *(an_event(run, "result", step) for step, _ in story.states)]
        self.events.append(an_event(run, "end", data={"state": "completed"}))
        self.lines = [line for key in self.jobs for line in (a_line(key, 1.0, "began"), a_line(key, 2.0, "ended"))]
        self.got = [ReceivedRequest(uuid4(), run, 1, b"{}", ACCEPTED)]
        self.hooks: list[Any] = [{"run": run, "events": ["run.completed"], "state": "completed"}]
        self.deliveries: list[Any] = [a_delivery(self.got[0])]
        self.submissions: list[Any] = []
        self.stood_still = 0
        self.deafness: list[UnreachablePeriod] = []

    def check(self) -> Findings:
        store = Store(self.runs, self.jobs, self.events)
        findings = check(store, self.told, self.lines, deafness=self.deafness)
        check_external_work(findings, self.submissions, store, at_rest=[], stood_still=self.stood_still)
        receiver = Receiver(None)  # type: ignore[arg-type]
        receiver.got = self.got
        check_deliveries(findings, Deliveries(self.hooks, self.deliveries), self.told, receiver)
        return findings


def a_run(run: UUID) -> dict[str, Any]:
    given = json.dumps({"nonce": NONCE, "size": 0})
    return {"id": run, "pipeline": "chain", "state": "completed", "input": given, "open_sinks": 0, "revision": 1}


def a_job(run: UUID, step: str, story: model.Story) -> dict[str, Any]:
    output = {"value": story.values[step, ""], "attempt": 1, "token": step}
    counts = {"attempt": 1, "worker_deaths": 0, "child_crashes": 0, "waiting_on": 0, "worker": 1, "code": None}
    origin = {"edited": False, "reused": False}
    key = {"run": run, "step": step, "item": "", "revision": 1}
    return {**key, **counts, **origin, "state": "succeeded", "output": json.dumps(output)}


def an_event(run: UUID, kind: str, step: str | None = None, data: object = None) -> Any:
    item, attempt = ("", 1) if step else (None, None)
    key = {"run": run, "step": step, "item": item, "revision": 1}
    return {**key, "kind": kind, "attempt": attempt, "data": json.dumps(data)}


def a_line(key: Any, at: float, what: str) -> Line:
    return Line(at, PID, key, 1, key[1], what)


def a_delivery(got: ReceivedRequest) -> dict[str, Any]:
    return {
        "id": got.id,
        "run": got.run,
        "seq": got.seq,
        "event": "run.completed",
        "state": "delivered",
        "attempt": 1,
    }


class Submitted(farm.Work):
    """Work of one key that goes on, without a file."""

    @property
    def key(self) -> str:
        return "same"

    @property
    def submitted_at(self) -> float:
        return float(self.external_id)

    @property
    def first_polled_at(self) -> None:
        return None

    @property
    def over_at(self) -> float:
        return 100.0

    def state_at(self, now: float) -> str:
        return "running"


class Wide(Submitted):
    """Work of a key of its own that needs two slots."""

    @property
    def key(self) -> str:
        return f"{self.external_id}:poster::1"

    @property
    def slots(self) -> int:
        return 2


def test_of_a_world_in_which_all_went_well_it_says_nothing() -> None:
    assert World().check().is_good


def lose_run(world: World) -> None:
    world.runs.clear()
    world.jobs.clear()
    world.events.clear()
    world.lines.clear()


def lose_a_job(world: World) -> None:
    del world.jobs[world.run, "third", "", 1]


def run_a_body_twice(world: World) -> None:
    world.lines.append(a_line((world.run, "third", "", 1), 3.0, "began"))


def end_a_job_twice(world: World) -> None:
    world.events.append(an_event(world.run, "result", "third"))


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


def submit_more_than_fits(world: World) -> None:
    world.submissions = [Wide("1"), Wide("2"), Wide("3")]


@pytest.mark.parametrize(
    ("spoil", "heading"),
    [
        (submit_more_than_fits, "more work outside than slots"),
        (lose_run, "lost: acknowledged and not stored"),
        (lose_a_job, "completed work that ran again"),
        (run_a_body_twice, "one attempt that ran twice"),
        (end_a_job_twice, "double transitions"),
        (take_a_stale_result, "stale writes accepted"),
        (begin_after_a_cancel, "bodies that began later than 3 s after a cancel"),
        (leave_a_webhook_unsent, "deliveries owed and neither delivered nor dead"),
        (forget_a_webhook, "deliveries owed and neither delivered nor dead"),
        (mark_as_delivered, "deliveries lost"),
        (submit_twice, "more duplicate submits than workers that stood still"),
    ],
)
def test_what_is_wrong_is_named(spoil: Callable[[World], None], heading: str) -> None:
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
def test_a_body_may_begin_after_a_cancel_that_its_worker_could_not_hear_of(
    fault: UnreachablePeriod, excused: bool
) -> None:
    world = World()
    begin_after_a_cancel(world)
    world.deafness.append(fault)
    late = world.check().wrong["bodies that began later than 3 s after a cancel"]
    assert len(late) == (0 if excused else 4)


def test_a_paused_worker_may_have_submitted_twice() -> None:
    world = World()
    submit_twice(world)
    world.stood_still = 1
    assert world.check().is_good


async def test_slots_that_are_held_for_nothing_are_named(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("film")

    @pipeline.step(pool=Pool("gpu", capacity=1))
    async def clip() -> int:
        return 1

    async with (
        open_sandbox(pipeline) as sandbox,
        sandbox.manual_worker() as hands,
        sandbox.database.connection() as connection,
    ):
        run = (await sandbox.client.start(pipeline)).id
        await run_next(hands, "clip")
        assert await find_wrong_slots(connection) == []
        await connection.execute(
            "insert into retoma.holdings select run, step, item, revision, pool, 1 from retoma.jobs"
        )
        assert await find_wrong_slots(connection) == [f"slots that are held by no job at work: clip: in {run}"]


def test_work_of_a_quarantined_job_holds_no_slots() -> None:
    world = World()
    submit_more_than_fits(world)
    world.jobs["3", "poster", "", 1] = a_job(
        world.run, "first", model.predict_run("chain", world.run, NONCE, 0, set())
    ) | {"state": "quarantined"}
    assert not world.check().wrong["more work outside than slots"]
