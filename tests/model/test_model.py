"""The real engine on real PostgreSQL, driven at random by clients that hold stale handles, against the model."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from retoma import App
from retoma.engine.exchange import Claim, Lane, Result, SetBack, Wish
from retoma.errors import WorkerGone
from retoma.store import workers
from retoma.store.database import Database
from retoma.testing import Sandbox, fresh_database, sandbox
from retoma.worker.catalog import Catalog
from tests.conftest import empty
from tests.model.model import Job, Run
from tests.model.outside import BAD_ENDS
from tests.model.outside_rules import OutsideRules, beside_in, beside_of, chosen, only_if
from tests.model.shapes import GPU, SHAPES, studio

Answer = TypeVar("Answer")
SILENCE = timedelta(seconds=6)
PAUSE = timedelta(minutes=1)
POOLED = {step.name for shape in SHAPES for step in shape.graph.steps if step.pool == GPU.name}
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "40"))
# Of a bug that is planted nobody wants the smallest example, which takes minutes.
PHASES = [phase for phase in Phase if phase is not Phase.shrink or "TEST_PATIENCE" not in os.environ]
APP = App("model", pipelines=SHAPES)


@dataclass
class Hand:
    """A worker moved by the machine. It never forgets a handle, however stale."""

    lane: Lane
    is_dead: bool = False
    claims: list[Claim] = field(default_factory=list)


class Engine(OutsideRules, RuleBasedStateMachine):
    loop: ClassVar[asyncio.AbstractEventLoop]
    database: ClassVar[Database]

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[UUID, Run] = {}
        self.hands: list[Hand] = []
        self.stack = ExitStack()

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(work)

    @initialize(shape=st.sampled_from(SHAPES), frames=st.integers(1, 3))
    def open(self, shape: Any, frames: int) -> None:
        self.wait(empty(self.database))
        opened = sandbox(APP, self.database)
        self.sandbox: Sandbox = self.wait(opened.__aenter__())
        self.stack.callback(lambda: self.wait(opened.__aexit__(None, None, None)))
        self.clock.now = self.wait(self.sandbox.clock.now())
        self.catalog = Catalog(APP)
        self.wait(self.catalog.open(self.database))
        for _ in range(3):
            self.new_hand()
        self.start(shape, later=False)
        self.begin_studio(frames)

    def begin_studio(self, frames: int) -> None:
        """A run whose items wait for the pool, beside a step that needs all of it."""
        self.start(studio, later=False)
        hand = self.hands[0]
        self.exchange(hand, [], [], 10)
        for claim in self.held_claims(hand):
            if claim.step == "frames":
                self.apply(claim, self.job(claim), "succeeded", [str(number) for number in range(frames)], False)
                results, _ = outcome_of(claim, self.runs[claim.run], "succeeded", frames, False, None)
                self.exchange(hand, results, [], 0)

    def teardown(self) -> None:
        for hand in self.hands:
            self.wait(hand.lane.close())
        self.stack.close()

    def new_hand(self) -> None:
        worker = self.wait(workers.register(self.database, "hand", APP.queues, 1, 1))
        self.hands.append(Hand(Lane(self.database, worker, 1)))

    def exchange(self, hand: Hand, results: list[Result], setbacks: list[SetBack], room: int) -> int:
        """One call; gives how many outcomes were refused, and checks that what it claims was ready."""
        wish = Wish(APP.queues, self.catalog.served, after=0, room=room, suspect=True)
        answer = self.wait(hand.lane.exchange(results, setbacks, wish))
        for claim in (*answer.kept, *answer.claimed):
            job = self.runs[claim.run].jobs[claim.step, claim.item]
            assert job.state == "ready"
            assert not job.delayed
            self.takes(job)
            job.state, job.holder = "running", hand.lane.worker
            job.attempt += 1
            job.fence = claim.fence
            assert (claim.attempt, claim.failures, claim.deaths) == (job.attempt, job.failures, job.deaths)
            hand.claims.append(claim)
        self.leaves(room - len(answer.claimed) - len(answer.kept))
        return answer.refused

    @rule(shape=st.sampled_from([*SHAPES, studio]), later=st.booleans())
    def start(self, shape: Any, later: bool) -> None:
        at = self.wait(self.sandbox.clock.now()) + timedelta(minutes=1) if later else None
        started = self.wait(self.sandbox.client.start(shape, run_at=at))
        run = Run(shape.graph, self.clock, pending=later)
        run.grow()
        for job in run.jobs.values():
            job.delayed = later and job.state == "ready"
        self.runs[started.id] = run

    @rule(which=st.integers(0, 999), room=st.integers(1, 4))
    def claim(self, which: int, room: int) -> None:
        hand = chosen(self.hands, which)
        if hand.is_dead:
            with pytest.raises(WorkerGone):
                self.exchange(hand, [], [], room)
        else:
            self.exchange(hand, [], [], room)

    @rule(which=st.integers(0, 999), room=st.integers(1, 4))
    def an_answer_is_lost(self, which: int, room: int) -> None:
        """The call is sent again under its number: it claims nothing more, and the worker learns what it holds."""
        hand = chosen([hand for hand in self.hands if not hand.is_dead], which)
        self.exchange(hand, [], [], room)
        hand.lane._call -= 1
        wish = Wish(APP.queues, self.catalog.served, after=0, room=room, suspect=True)
        again = self.wait(hand.lane.exchange([], [], wish))
        assert (again.replayed, again.claimed, again.kept) == (True, [], [])
        told = {(claim.run, claim.step, claim.item) for claim in self.wait(hand.lane.held())}
        assert told == {(number, *name) for number, _, name in self.held_by(hand)}

    def held_by(self, hand: Hand) -> list[tuple[UUID, Run, tuple[str, str]]]:
        return [
            (number, run, name)
            for number, run in self.runs.items()
            for name, job in sorted(run.jobs.items())
            if job.holder == hand.lane.worker
        ]

    @rule(
        which=st.integers(0, 999),
        handle=st.integers(0, 999),
        how=st.sampled_from(
            [
                "succeeded",
                "succeeded",
                "succeeded",
                "failed",
                "skipped",
                "retry",
                "crashed",
                "crashed_for_good",
                "back",
                "wait",
                "too_many",
                "interrupted",
                "parked",
                "parked",
                "parked",
            ]
        ),
        items=st.integers(0, 2),
        delayed=st.booleans(),
        room=st.integers(0, 3),
        stale=st.sampled_from([True, False, False]),
    )
    @only_if(lambda self: any(hand.claims for hand in self.hands))
    def finish(self, which: int, handle: int, how: str, items: int, delayed: bool, room: int, stale: bool) -> None:
        """Give back any handle that was ever held: it counts only if it still is."""
        hand, claim = self.any_handle(which, handle, stale)
        if how == "parked" and self.job(claim).beside.outside is not None:
            how = "succeeded"  # its outside work has ended: a step goes on then
        handover = self.handover(self.job(claim)) if how == "parked" else None
        results, setbacks = outcome_of(claim, self.runs[claim.run], how, items, delayed, handover)
        if hand.is_dead:
            with pytest.raises(WorkerGone):
                self.exchange(hand, results, setbacks, room)
            return
        job = self.runs[claim.run].jobs[claim.step, claim.item]
        valid = claim in self.held_claims(hand)
        if valid and handover is not None:
            job.attempt -= 1
            self.park(self.runs[claim.run], claim.step, job, handover)
        elif valid:
            self.apply(claim, job, how, [str(number) for number in range(items)], delayed)
        if how == "too_many" and claim.step in POOLED:
            self.pool.paused_until = max(self.pool.paused_until or self.clock.now, self.clock.now + PAUSE)
        assert self.exchange(hand, results, setbacks, room) == (0 if valid else 1)

    def any_handle(self, which: int, handle: int, stale: bool) -> tuple[Hand, Claim]:
        """A stale one, if there is any, of a job that runs anew: only its fence can tell."""
        if stale and (overtaken := self.overtaken()):
            return chosen(overtaken, handle)
        hand = chosen([hand for hand in self.hands if hand.claims], which)
        return hand, chosen(hand.claims if stale else self.held_claims(hand) or hand.claims, handle)

    def overtaken(self) -> list[tuple[Hand, Claim]]:
        return [
            (hand, claim)
            for hand in self.hands
            if not hand.is_dead
            for claim in hand.claims
            if self.job(claim).state == "running" and claim not in self.held_claims(hand)
        ]

    def held_claims(self, hand: Hand) -> list[Claim]:
        """Those that still count."""
        return [
            claim
            for claim in hand.claims
            if (job := self.job(claim)).state == "running"
            and job.holder == hand.lane.worker
            and job.fence == claim.fence
        ]

    @rule(which=st.integers(0, 999), room=st.integers(1, 3))
    def all_of_it_parks(self, which: int, room: int) -> None:
        """A worker claims, and hands over to the outside all that it holds, in one call."""
        hand = chosen([hand for hand in self.hands if not hand.is_dead], which)
        self.exchange(hand, [], [], room)
        claims = [claim for claim in self.held_claims(hand) if self.job(claim).beside.outside is None]
        setbacks = [SetBack(claim, "parked", error=self.handover(self.job(claim))) for claim in claims]
        for setback in setbacks:
            self.job(setback.claim).attempt -= 1
            claim = setback.claim
            self.park(self.runs[claim.run], claim.step, self.job(claim), setback.error or "")
        assert self.exchange(hand, [], setbacks, 0) == 0

    def apply(self, claim: Claim, job: Job, how: str, items: list[str], delayed: bool) -> None:
        run, name = self.runs[claim.run], (claim.step, claim.item)
        job.failures += how in ("retry", "crashed", "crashed_for_good")
        job.crashes += how in ("crashed", "crashed_for_good")
        job.attempt -= how in ("back", "wait", "too_many")
        if how in ("succeeded", "failed", "skipped"):
            run.end(name, how, items if run.is_source(claim.step) else None)
        elif how == "crashed_for_good":
            run.end(name, "quarantined" if job.crashes >= 3 else "failed")
        elif run.ends_as is not None:
            run.end(name, "cancelled")
        elif job.crashes >= 3 and how == "crashed":
            run.end(name, "quarantined")
        else:
            self.goes_back(run, name, how)
            job.delayed = delayed or how == "too_many"
            if how in ("retry", "crashed", "wait", "too_many"):
                self.try_again(run, name, job)

    def try_again(self, run: Run, name: tuple[str, str], job: Job) -> None:
        """What failed outside is forgotten, and takes its slots again."""
        if job.beside.outside is not None and job.beside.outside.state in BAD_ENDS:
            job.beside.pool = run.shape(name[0]).pool
            self.forget_calls(job)
        job.beside.forget_failed()

    @rule(which=st.integers(0, 999))
    @only_if(lambda self: any(not hand.is_dead for hand in self.hands))
    def worker_dies(self, which: int) -> None:
        """One hand falls silent while the others beat; two sweepers notice."""
        hand = chosen([hand for hand in self.hands if not hand.is_dead], which)
        self.advance(SILENCE * 2)
        for other in self.hands:
            if other is not hand and not other.is_dead:
                assert self.wait(workers.beat(self.database, other.lane.worker))
        held = self.held_by(hand)
        swept = self.wait(two_sweepers(self.database))
        assert [row for row in swept if row[0] == hand.lane.worker] == [(hand.lane.worker, len(held))]
        hand.is_dead = True
        for _, run, name in held:
            self.lose(run, name)
        self.new_hand()

    @rule(which=st.integers(0, 999))
    def worker_stops(self, which: int) -> None:
        """As one does that was asked to: what it still holds goes back unharmed."""
        hand = chosen([hand for hand in self.hands if not hand.is_dead], which)
        held = self.held_by(hand)
        assert self.wait(workers.end(self.database, hand.lane.worker)) == len(held)
        hand.is_dead = True
        for _, run, name in held:
            if run.ends_as is not None:
                run.end(name, "cancelled")
            else:
                self.goes_back(run, name, "interrupted")
        self.new_hand()

    def lose(self, run: Run, name: tuple[str, str]) -> None:
        job = run.jobs[name]
        job.deaths += 1
        if run.ends_as is not None:
            run.end(name, "cancelled")
        elif job.deaths >= 3:
            run.end(name, "quarantined")
        else:
            self.goes_back(run, name, "died")

    @rule()
    def time_passes(self) -> None:
        self.advance(timedelta(minutes=2))
        self.everyone_beats()
        self.wait(workers.promote(self.database, 1_000))
        if not self.pool.is_paused(self.clock.now):
            self.pool.paused_until = None
        for run in self.runs.values():
            run.pending = False
            for job in run.jobs.values():
                job.delayed = False

    def everyone_beats(self) -> None:
        for hand in self.hands:
            if not hand.is_dead:
                self.wait(workers.beat(self.database, hand.lane.worker))

    @rule(which=st.integers(0, 999))
    @only_if(lambda self: bool(self.runs))
    def cancel(self, which: int) -> None:
        number = chosen(list(self.runs), which)
        run = self.runs[number]
        if not run.is_over and run.ends_as != "cancelled":
            run.stop("cancelled")
        assert self.wait(self.sandbox.client.cancel(number)) == run.state

    @invariant()
    def the_database_agrees(self) -> None:
        if not self.runs:
            return
        found = self.wait(database_picture(self.database))
        assert found == {number: picture(run) for number, run in self.runs.items()}
        assert self.wait(beside_in(self.database)) == beside_of(self.runs)


async def database_picture(database: Database) -> dict[UUID, Any]:
    """Each run's state, and of its jobs that are made: waiting ones are the engine's own way of counting."""
    async with database.connection() as connection:
        runs = await connection.fetch("select id, state::text from retoma.runs")
        jobs = await connection.fetch(
            "select run, step, item, state::text, attempt, failures, crashes, deaths, ready_at is not null, "
            "case when state = 'skipped' then code end "
            "from retoma.jobs where state <> 'waiting' and not (state = 'cancelled' and waiting_on > 0)"
        )
    return {
        run["id"]: (run["state"], {(job[1], job[2]): tuple(job)[3:] for job in jobs if job["run"] == run["id"]})
        for run in runs
    }


def picture(run: Run) -> tuple[str, dict[tuple[str, str], tuple[Any, ...]]]:
    return run.state, {
        name: (
            job.state,
            job.attempt,
            job.failures,
            job.crashes,
            job.deaths,
            job.delayed and job.state == "ready",
            None if job.state != "skipped" else "NEED_FAILED" if job.failed_need else "NOT_WANTED",
        )
        for name, job in run.jobs.items()
    }


def outcome_of(
    claim: Claim, run: Run, how: str, items: int, delayed: bool, handover: str | None
) -> tuple[list[Result], list[SetBack]]:
    if how == "succeeded":
        fan_out = {str(number): "1" for number in range(items)} if run.is_source(claim.step) else None
        return [Result(claim, "[]", fan_out)], []
    if handover is not None:
        return [], [SetBack(claim, "parked", error=handover)]
    if how == "too_many":
        return [], [SetBack(claim, "wait", delay=PAUSE, code="RATE_LIMITED")]
    code = {"skipped": "NOT_WANTED"}.get(how, "ERROR")
    return [], [SetBack(claim, how, delay=timedelta(minutes=1 if delayed else 0), code=code)]  # type: ignore[arg-type]


async def two_sweepers(database: Database) -> list[tuple[int, int]]:
    first, second = await asyncio.gather(workers.sweep(database, SILENCE), workers.sweep(database, SILENCE))
    return [*first, *second]


@pytest.fixture
def machine() -> Iterator[type[Engine]]:
    loop = asyncio.new_event_loop()
    opened = fresh_database()
    Engine.loop, Engine.database = loop, loop.run_until_complete(opened.__aenter__())
    yield Engine
    loop.run_until_complete(opened.__aexit__(None, None, None))
    loop.close()


def test_the_engine_does_what_the_model_says(machine: type[Engine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
