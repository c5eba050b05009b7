"""The part of the machine that knows pools, effects and work outside; its clients hold stale looks, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import wraps
from hashlib import sha256
from itertools import count
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import rule

from retoma.define.outside import Handover
from retoma.engine.exchange import Claim
from retoma.store import outside
from retoma.store.database import Database
from retoma.store.outside import Look, Part
from retoma.testing import Sandbox
from retoma.worker.catalog import Catalog
from tests.model.model import Job, Run
from tests.model.outside import EVERY, LEASE, QUEUED, RUNNING, TOTAL, Clock, Effect, Outside, Pool
from tests.model.shapes import GPU

Answer = TypeVar("Answer")
FOR_EVER = timedelta(days=30)
NUMBER = st.integers(0, 999)


def only_if(holds: Callable[[Any], bool]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The rule does nothing otherwise. As a precondition it would have to hold in every replay of the same draws, and
    what a worker is given depends on more than those."""

    def guarded(rule_of: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule_of)
        def apply(self: Any, **drawn: Any) -> None:
            if holds(self):
                rule_of(self, **drawn)

        return apply

    return guarded


def chosen(some: list[Answer], number: int) -> Answer:
    """By a number that does not depend on how many there are, as which jobs a claim gets may differ."""
    return some[number % len(some)]


class OutsideRules:
    database: ClassVar[Database]
    sandbox: Sandbox
    catalog: Catalog
    runs: dict[UUID, Run]
    hands: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.pool = Pool(GPU.capacity)
        self.looks: list[Look] = []  # never forgotten, however stale
        self.tokens: dict[bytes, tuple[Job, str]] = {}  # those that were given out, and what who calls is answered
        self.numbers = count()
        self.parking: set[str] = set()  # steps of which a job was parked before

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        raise NotImplementedError

    def advance(self, by: timedelta) -> None:
        self.wait(self.sandbox.clock.advance(by))
        self.clock.now += by

    def job(self, of: Claim | Look) -> Job:
        return self.runs[of.run].jobs[of.step, of.item]

    @property
    def used(self) -> int:
        jobs = (job for run in self.runs.values() for job in run.jobs.values())
        return sum(job.beside.slots for job in jobs if job.holds_slots)

    def takes(self, job: Job) -> None:
        """A claim must find room in the pool."""
        if job.beside.pool is not None:
            assert not self.pool.is_paused(self.clock.now)
            assert self.used + job.beside.slots <= self.pool.capacity
            job.beside.held = job.beside.pool

    def leaves(self, room: int) -> None:
        """A claim that had room for more leaves nothing that could begin; one that waits may hold up others."""
        ready = [
            job for run in self.runs.values() for job in run.jobs.values() if job.state == "ready" and not job.delayed
        ]
        free = self.pool.capacity - self.used
        pooled = [job for job in ready if job.beside.pool is not None]
        could = [job for job in ready if job.beside.pool is None]
        if not self.pool.is_paused(self.clock.now) and all(job.beside.slots <= free for job in pooled):
            could += pooled
        # Of the suspects only one begins at a time.
        assert room <= 0 or all(job.deaths for job in could)

    @rule(capacity=st.integers(0, 5))
    def somebody_changes_the_pool(self, capacity: int) -> None:
        self.wait(self.sandbox.client.set_pool(GPU.name, capacity=capacity))
        self.pool.capacity = capacity

    @rule(which=NUMBER, handle=NUMBER, name=st.sampled_from(["submit", "pay"]))
    @only_if(lambda self: any(hand.claims for hand in self.hands))
    def an_effect_begins(self, which: int, handle: int, name: str) -> None:
        hand = chosen([hand for hand in self.hands if hand.claims], which)
        claim = chosen(hand.claims, handle)
        job, token = self.job(claim), sha256(repr(claim.handle).encode()).digest()
        begun = self.wait(outside.begin(self.database, hand.lane.worker, part(claim, name), token, FOR_EVER))
        assert begun == self.expected_beginning(job, claim, hand.lane.worker, name)
        if begun[0] != "lost":
            self.tokens.setdefault(token, (job, "taken"))

    def expected_beginning(self, job: Job, claim: Claim, worker: int, name: str) -> tuple[str, str | None]:
        if not (job.state == "running" and job.holder == worker and job.fence == claim.fence):
            return "lost", None
        known = job.beside.effects.get(name)
        if known is None:
            job.beside.effects[name] = Effect(claim.fence)
            return "new", None
        if known.value is None:
            known.fence = claim.fence
            return "begun", None
        return "done", known.value

    @rule(which=NUMBER, handle=NUMBER, name=st.sampled_from(["submit", "pay"]), happened=st.booleans())
    @only_if(lambda self: any(hand.claims for hand in self.hands))
    def an_effect_ends(self, which: int, handle: int, name: str, happened: bool) -> None:
        """By any attempt that ever was; what came of it is written down once."""
        hand = chosen([hand for hand in self.hands if hand.claims], which)
        claim = chosen(hand.claims, handle)
        effects = self.job(claim).beside.effects
        mine = effects.get(name) if name in effects and effects[name].fence == claim.fence else None
        if not happened:
            self.wait(outside.undo(self.database, part(claim, name)))
            if mine is not None and mine.value is None:
                del effects[name]
            return
        value = str(next(self.numbers))
        assert self.wait(outside.end(self.database, part(claim, name), value)) == (mine is not None)
        if mine is not None:
            mine.value = mine.value or value

    def handover(self, job: Job) -> str:
        """As the step would hand over its work: under the handle of what it submitted, if it did."""
        submitted = job.beside.effects.get("submit")
        handle = submitted.value if submitted is not None and submitted.value is not None else str(next(self.numbers))
        return Handover(int(handle), "nobody.asks", "nobody.cancels", EVERY, QUEUED, RUNNING, TOTAL).to_json()

    def park(self, run: Run, name: str, job: Job, handover: str) -> None:
        now = self.clock.now
        due_at = now if run.ends_as is not None or job.beside.called else now + EVERY
        job.beside.outside = Outside(str(json.loads(handover)["handle"]), now, due_at)
        job.state, job.holder = "parked", None
        self.parking.add(name)

    def goes_back(self, run: Run, name: tuple[str, str], how: str) -> None:
        """A job that may have submitted external work keeps its slots; any other needs new ones."""
        job = run.jobs[name]
        job.state, job.holder = "ready", None
        if job.beside.outside is None:
            waits = how in ("wait", "too_many")
            keeps = bool(job.beside.effects) and not waits and (how == "died" or name[0] in self.parking)
            job.beside.pool = None if keeps else run.shape(name[0]).pool
            job.beside.held = job.beside.held if keeps else None

    @rule(after=st.sampled_from([0, 1, 60, 60, 90, 180, 300, 540]))
    @only_if(lambda self: any(job.state == "parked" for run in self.runs.values() for job in run.jobs.values()))
    def somebody_looks(self, after: int) -> None:
        self.look(after)

    @rule(state=st.sampled_from(["running", "succeeded", "failed", "failed", "cancelled", "lost"]))
    @only_if(lambda self: any(job.state == "parked" for run in self.runs.values() for job in run.jobs.values()))
    def somebody_looks_and_reports(self, state: str) -> None:
        for look in self.look(60):
            self.report(look, state)

    def look(self, after: int) -> list[Look]:
        """All that is due is given out, each to be looked at once more."""
        self.advance(timedelta(seconds=after))
        self.everyone_beats()
        now = self.clock.now
        found = self.wait(outside.due(self.database, self.catalog.served, 100, LEASE))
        assert {(look.run, look.step, look.item) for look in found} == {
            (number, *name)
            for number, run in self.runs.items()
            for name, job in run.jobs.items()
            if (known := job.beside.outside) is not None and known.is_open and known.due_at <= now
        }
        for look in found:
            self.check_look(look)
        self.looks += found
        return found

    def check_look(self, look: Look) -> None:
        now, job = self.clock.now, self.job(look)
        known = job.beside.outside
        assert known is not None
        ending = self.runs[look.run].ends_as is not None
        known.look(now)
        assert (look.looks, look.state, look.called) == (known.looks, known.state, job.beside.called)
        assert (look.stop, look.given_up) == (known.why_stop(now, ending=ending), known.is_given_up(now))

    @rule(which=NUMBER, state=st.sampled_from(["queued", "running", "succeeded", "failed", "cancelled", "lost"]))
    @only_if(lambda self: bool(self.looks))
    def a_look_is_reported(self, which: int, state: str) -> None:
        """Any look that ever was."""
        self.report(chosen(self.looks, which), state)

    def report(self, look: Look, state: str) -> None:
        """Only the last look counts, and only while the work goes on."""
        job, run = self.job(look), self.runs[look.run]
        known, stops = job.beside.outside, look.stop is not None
        counts = known is not None and known.is_open and known.looks == look.looks
        taken = self.wait(
            outside.record(
                self.database, look, state=state, result="1" if state == "succeeded" else None, stopping=stops
            )
        )
        assert taken == counts
        if known is not None and counts:
            known.report(state, self.clock.now, asked_to_stop=stops, ending=run.ends_as is not None)
            if not known.is_open:
                self.take_back(run, look, job)

    def take_back(self, run: Run, look: Look, job: Job) -> None:
        job.beside.pool = job.beside.held = None
        if run.ends_as is not None:
            run.end((look.step, look.item), "cancelled")
        else:
            job.state = "ready"

    @rule(which=NUMBER)
    @only_if(lambda self: bool(self.tokens))
    def the_outside_calls(self, which: int) -> None:
        token = chosen(list(self.tokens), which)
        job, answer = self.tokens[token]
        assert self.wait(outside.call_back(self.database, token, "{}")) == answer
        if answer == "taken":
            self.tokens[token] = job, "repeated"
            job.beside.called = True
            known = job.beside.outside
            if known is not None and known.is_open:
                known.due_at = self.clock.now

    def forget_calls(self, job: Job) -> None:
        """Whoever calls about work that is submitted anew is unknown."""
        job.beside.called = False
        self.tokens = {token: (of, "unknown" if of is job else answer) for token, (of, answer) in self.tokens.items()}

    def everyone_beats(self) -> None:
        raise NotImplementedError


def part(claim: Claim, name: str) -> Part:
    return Part(claim.run, claim.step, claim.item, claim.revision, claim.fence, name)


async def beside_in(database: Database) -> dict[str, Any]:
    """Slots, effects and outside work, as the database has them."""
    async with database.connection() as connection:
        held = await connection.fetch("select run, step, item, pool, slots from retoma.holdings")
        effects = await connection.fetch("select run, step, item, name, fence, value::text from retoma.effects")
        works = await connection.fetch(
            "select run, step, item, state, looks, next_at, handle::text from retoma.outside"
        )
        waiting = await connection.fetch(
            "select run, step, item, pool from retoma.jobs where state in ('ready', 'running', 'parked')"
        )
    return {
        "slots": {tuple(row) for row in held},
        "effects": {tuple(row) for row in effects},
        "outside": {
            (*row[:5], row["next_at"] if row["state"] in ("queued", "running") else None, row["handle"])
            for row in works
        },
        "pools": {tuple(row) for row in waiting},
    }


def beside_of(runs: dict[UUID, Run]) -> dict[str, Any]:
    jobs = [((number, *name), job) for number, run in runs.items() for name, job in run.jobs.items()]
    return {
        "slots": {(*key, job.beside.held, job.beside.slots) for key, job in jobs if job.holds_slots},
        "effects": {
            (*key, name, effect.fence, effect.value) for key, job in jobs for name, effect in job.beside.effects.items()
        },
        "outside": {
            (*key, known.state, known.looks, known.due_at if known.is_open else None, known.handle)
            for key, job in jobs
            if (known := job.beside.outside) is not None
        },
        "pools": {(*key, job.beside.pool) for key, job in jobs if job.state in ("ready", "running", "parked")},
    }
