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

from retoma.define.external_work import ParkRequest
from retoma.engine.claim_protocol import Claim
from retoma.store import external_work
from retoma.store.database import Database
from retoma.store.external_work import DuePoll, LeasedEffect
from retoma.testing import Sandbox
from retoma.worker.served_versions import ServedVersions
from tests.model.external_work import EVERY, LEASE, QUEUED, RUNNING, TOTAL, Clock, Effect, ExternalWork, Pool
from tests.model.model import Job, Run
from tests.model.shapes import GPU

Answer = TypeVar("Answer")
FOR_EVER = timedelta(days=30)
NUMBER = st.integers(0, 999)


def require(holds: Callable[[Any], bool]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The rule does nothing otherwise. As a precondition it would have to hold in every replay of the same draws, and
    what a worker is given depends on more than those."""

    def guarded(rule_of: Callable[..., None]) -> Callable[..., None]:
        @wraps(rule_of)
        def apply(self: Any, **drawn: Any) -> None:
            if holds(self):
                rule_of(self, **drawn)

        return apply

    return guarded


def choose(some: list[Answer], number: int) -> Answer:
    """By a number that does not depend on how many there are, as which jobs a claim gets may differ."""
    return some[number % len(some)]


class ExternalWorkRules:
    database: ClassVar[Database]
    sandbox: Sandbox
    catalog: ServedVersions
    runs: dict[UUID, Run]
    workers: list[Any]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.pool = Pool(GPU.capacity)
        self.looks: list[DuePoll] = []  # never forgotten, however stale
        self.tokens: dict[bytes, tuple[Job, str]] = {}  # those that were given out, and what who calls is answered
        self.numbers = count()
        self.parking: set[str] = set()  # steps of which a job was parked before

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        raise NotImplementedError

    def advance(self, by: timedelta) -> None:
        self.wait(self.sandbox.clock.advance(by))
        self.clock.now += by

    def job(self, of: Claim | DuePoll) -> Job:
        return self.runs[of.run].jobs[of.step, of.item]

    @property
    def count_used_slots(self) -> int:
        jobs = (job for run in self.runs.values() for job in run.jobs.values())
        return sum(job.resources.slots for job in jobs if job.holds_slots)

    def check_claim(self, job: Job) -> None:
        """A claim must find room in the pool."""
        if job.resources.pool is not None:
            assert not self.pool.is_paused(self.clock.now)
            assert self.count_used_slots + job.resources.slots <= self.pool.capacity
            job.resources.held = job.resources.pool

    def check_unclaimed(self, room: int) -> None:
        """A claim that had room for more leaves nothing that could begin; one that waits may hold up others."""
        ready = [
            job for run in self.runs.values() for job in run.jobs.values() if job.state == "ready" and not job.delayed
        ]
        free = self.pool.capacity - self.count_used_slots
        pooled = [job for job in ready if job.resources.pool is not None]
        could = [job for job in ready if job.resources.pool is None]
        if not self.pool.is_paused(self.clock.now) and all(job.resources.slots <= free for job in pooled):
            could += pooled
        # Of the suspects only one begins at a time.
        assert room <= 0 or all(job.deaths for job in could)

    @rule(capacity=st.integers(0, 5))
    def change_pool(self, capacity: int) -> None:
        self.wait(self.sandbox.client.pools.update(GPU.name, capacity=capacity))
        self.pool.capacity = capacity

    @rule(which=NUMBER, handle=NUMBER, name=st.sampled_from(["submit", "pay"]))
    @require(lambda self: any(hand.claims for hand in self.workers))
    def begin_effect(self, which: int, handle: int, name: str) -> None:
        hand = choose([hand for hand in self.workers if hand.claims], which)
        claim = choose(hand.claims, handle)
        job, token = self.job(claim), sha256(repr(claim.key).encode()).digest()
        begun = self.wait(
            external_work.begin_effect(self.database, hand.link.worker, part(claim, name), token, FOR_EVER)
        )
        assert begun == self.expected_beginning(job, claim, hand.link.worker, name)
        if begun[0] != "lost":
            self.tokens.setdefault(token, (job, "taken"))

    def expected_beginning(self, job: Job, claim: Claim, worker: int, name: str) -> tuple[str, str | None]:
        if not (job.state == "running" and job.holder == worker and job.fence == claim.fence):
            return "lost", None
        known = job.resources.effects.get(name)
        if known is None:
            job.resources.effects[name] = Effect(claim.fence)
            return "new", None
        if known.value is None:
            known.fence = claim.fence
            return "begun", None
        return "done", known.value

    @rule(which=NUMBER, handle=NUMBER, name=st.sampled_from(["submit", "pay"]), happened=st.booleans())
    @require(lambda self: any(hand.claims for hand in self.workers))
    def end_effect(self, which: int, handle: int, name: str, happened: bool) -> None:
        """By any attempt that ever was; what came of it is written down once."""
        hand = choose([hand for hand in self.workers if hand.claims], which)
        claim = choose(hand.claims, handle)
        effects = self.job(claim).resources.effects
        mine = effects.get(name) if name in effects and effects[name].fence == claim.fence else None
        if not happened:
            self.wait(external_work.undo_effect(self.database, part(claim, name)))
            if mine is not None and mine.value is None:
                del effects[name]
            return
        value = str(next(self.numbers))
        assert self.wait(external_work.end_effect(self.database, part(claim, name), value)) == (mine is not None)
        if mine is not None:
            mine.value = mine.value or value

    def make_external_work(self, job: Job) -> str:
        """As the step would hand over its work: under the handle of what it submitted, if it did."""
        submitted = job.resources.effects.get("submit")
        handle = submitted.value if submitted is not None and submitted.value is not None else str(next(self.numbers))
        return ParkRequest(int(handle), "nobody.asks", "nobody.cancels", EVERY, QUEUED, RUNNING, TOTAL).to_json()

    def park(self, run: Run, name: str, job: Job, external_work: str) -> None:
        now = self.clock.now
        due_at = now if run.final_state is not None or job.resources.has_callback else now + EVERY
        job.resources.external_work = ExternalWork(str(json.loads(external_work)["external_id"]), now, due_at)
        job.state, job.holder = "parked", None
        self.parking.add(name)

    def release_or_keep_slots(self, run: Run, name: tuple[str, str], how: str) -> None:
        """A job that may have submitted external work keeps its slots; any other needs new ones."""
        job = run.jobs[name]
        job.state, job.holder = "ready", None
        if job.resources.external_work is None:
            waits = how in ("wait", "too_many")
            keeps = bool(job.resources.effects) and not waits and (how == "died" or name[0] in self.parking)
            job.resources.pool = None if keeps else run.shape(name[0]).pool
            job.resources.held = job.resources.held if keeps else None

    @rule(after=st.sampled_from([0, 1, 60, 60, 90, 180, 300, 540]))
    @require(lambda self: any(job.state == "parked" for run in self.runs.values() for job in run.jobs.values()))
    def poll_due(self, after: int) -> None:
        self.claim_polls(after)

    @rule(state=st.sampled_from(["running", "succeeded", "failed", "failed", "cancelled", "lost"]))
    @require(lambda self: any(job.state == "parked" for run in self.runs.values() for job in run.jobs.values()))
    def poll_and_record(self, state: str) -> None:
        for look in self.claim_polls(60):
            self.record_poll(look, state)

    def claim_polls(self, after: int) -> list[DuePoll]:
        """All that is due is given out, each to be looked at once more."""
        self.advance(timedelta(seconds=after))
        self.send_heartbeats()
        now = self.clock.now
        found = self.wait(external_work.poll_due(self.database, self.catalog.version_numbers, 100, LEASE))
        assert {(look.run, look.step, look.item) for look in found} == {
            (number, *name)
            for number, run in self.runs.items()
            for name, job in run.jobs.items()
            if (known := job.resources.external_work) is not None and known.is_open and known.due_at <= now
        }
        for look in found:
            self.check_poll(look)
        self.looks += found
        return found

    def check_poll(self, poll: DuePoll) -> None:
        now, job = self.clock.now, self.job(poll)
        known = job.resources.external_work
        assert known is not None
        ending = self.runs[poll.run].final_state is not None
        known.poll(now)
        assert (poll.polls, poll.state, poll.callback_received) == (
            known.polls,
            known.state,
            job.resources.has_callback,
        )
        assert (poll.stop, poll.given_up) == (known.why_stop(now, stopping=ending), known.is_given_up(now))

    @rule(which=NUMBER, state=st.sampled_from(["queued", "running", "succeeded", "failed", "cancelled", "lost"]))
    @require(lambda self: bool(self.looks))
    def record_any_poll(self, which: int, state: str) -> None:
        """Any look that ever was."""
        self.record_poll(choose(self.looks, which), state)

    def record_poll(self, poll: DuePoll, state: str) -> None:
        """Only the last look counts, and only while the work goes on."""
        job, run = self.job(poll), self.runs[poll.run]
        known, stops = job.resources.external_work, poll.stop is not None
        counts = known is not None and known.is_open and known.polls == poll.polls
        taken = self.wait(
            external_work.record_poll(
                self.database, poll, state=state, result="1" if state == "succeeded" else None, stopping=stops
            )
        )
        assert taken == counts
        if known is not None and counts:
            known.record_poll(state, self.clock.now, asked_to_stop=stops, stopping=run.final_state is not None)
            if not known.is_open:
                self.return_job(run, poll, job)

    def return_job(self, run: Run, poll: DuePoll, job: Job) -> None:
        job.resources.pool = job.resources.held = None
        if run.final_state is not None:
            run.end((poll.step, poll.item), "cancelled")
        else:
            job.state = "ready"

    @rule(which=NUMBER)
    @require(lambda self: bool(self.tokens))
    def send_callback(self, which: int) -> None:
        token = choose(list(self.tokens), which)
        job, answer = self.tokens[token]
        assert self.wait(external_work.record_callback(self.database, token, "{}")) == answer
        if answer == "taken":
            self.tokens[token] = job, "repeated"
            job.resources.has_callback = True
            known = job.resources.external_work
            if known is not None and known.is_open:
                known.due_at = self.clock.now

    def forget_calls(self, job: Job) -> None:
        """Whoever calls about work that is submitted anew is unknown."""
        job.resources.has_callback = False
        self.tokens = {token: (of, "unknown" if of is job else answer) for token, (of, answer) in self.tokens.items()}

    def send_heartbeats(self) -> None:
        raise NotImplementedError


def part(claim: Claim, name: str) -> LeasedEffect:
    return LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, name)


async def read_resources(database: Database) -> dict[str, Any]:
    """Slots, effects and outside work, as the database has them."""
    async with database.connection() as connection:
        held = await connection.fetch("select run, step, item, pool, slots from retoma.holdings")
        effects = await connection.fetch("select run, step, item, name, fence, value::text from retoma.effects")
        works = await connection.fetch(
            "select run, step, item, state, polls, next_at, external_id::text from retoma.external_work"
        )
        waiting = await connection.fetch(
            "select run, step, item, pool from retoma.jobs where state in ('ready', 'running', 'parked')"
        )
    return {
        "slots": {tuple(row) for row in held},
        "effects": {tuple(row) for row in effects},
        "outside": {
            (*row[:5], row["next_at"] if row["state"] in ("queued", "running") else None, row["external_id"])
            for row in works
        },
        "pools": {tuple(row) for row in waiting},
    }


def get_resources(runs: dict[UUID, Run]) -> dict[str, Any]:
    jobs = [((number, *name), job) for number, run in runs.items() for name, job in run.jobs.items()]
    return {
        "slots": {(*key, job.resources.held, job.resources.slots) for key, job in jobs if job.holds_slots},
        "effects": {
            (*key, name, effect.fence, effect.value)
            for key, job in jobs
            for name, effect in job.resources.effects.items()
        },
        "outside": {
            (*key, known.state, known.polls, known.due_at if known.is_open else None, known.external_id)
            for key, job in jobs
            if (known := job.resources.external_work) is not None
        },
        "pools": {(*key, job.resources.pool) for key, job in jobs if job.state in ("ready", "running", "parked")},
    }
