"""The rules of the state machine for pools, effects and external work; its clients also hold stale polls."""

from __future__ import annotations

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
from retoma.store import effects, external_work
from retoma.store.database import Database
from retoma.store.effects import DueLook, EffectFunctions, LeasedEffect, Resolution
from retoma.store.external_work import DuePoll, DueRequest
from retoma.testing import Sandbox
from retoma.worker.served_versions import ServedVersions
from tests.model.external_work import (
    EVERY,
    LEASE,
    ORDER,
    PAYMENT,
    QUEUED,
    RUNNING,
    SUBMISSION,
    TOTAL,
    Clock,
    Effect,
    ExternalWork,
    Pool,
)
from tests.model.model import Job, Run
from tests.model.shapes import GPU

Answer = TypeVar("Answer")
FOR_EVER = timedelta(days=30)
NUMBER = st.integers(0, 999)
NAMES = st.sampled_from([SUBMISSION, ORDER, PAYMENT])
FUNCTIONS = {
    SUBMISSION: EffectFunctions(
        "nobody.finds", "key", "nobody.cancels", ParkRequest("nobody.asks", EVERY, QUEUED, RUNNING, TOTAL).to_json()
    ),
    ORDER: EffectFunctions("nobody.finds", "key", "nobody.cancels"),
    PAYMENT: EffectFunctions(),
}


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
        self.polls: list[DuePoll] = []  # never forgotten, however stale
        self.looks: list[DueLook] = []
        self.tokens: dict[bytes, tuple[Job, str]] = {}  # those that were given out, and what who calls is answered
        self.numbers = count()

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        raise NotImplementedError

    def advance(self, by: timedelta) -> None:
        self.wait(self.sandbox.clock.advance(by))
        self.clock.now += by

    def job(self, of: Claim | DuePoll | DueLook) -> Job:
        return self.runs[of.run].jobs[of.step, of.item]

    @property
    def count_used_slots(self) -> int:
        jobs = (job for run in self.runs.values() for job in run.jobs.values())
        return sum(job.resources.slots for job in jobs if job.holds_slots)

    def check_claim(self, job: Job) -> None:
        """A claim must fit into the pool."""
        if job.resources.pool is not None:
            assert not self.pool.is_paused(self.clock.now)
            assert job.holds_slots or self.count_used_slots + job.resources.slots <= self.pool.capacity
            job.resources.held = job.resources.pool

    def check_unclaimed(self, spare: int) -> None:
        """A claim that could have taken more leaves nothing that could begin; one that waits may hold up others."""
        ready = [
            job for run in self.runs.values() for job in run.jobs.values() if job.state == "ready" and not job.delayed
        ]
        free = self.pool.capacity - self.count_used_slots
        could = [job for job in ready if job.resources.pool is None]
        if not self.pool.is_paused(self.clock.now):
            could += [job for job in ready if job.resources.pool is not None and job.holds_slots]
            pooled = [job for job in ready if job.resources.pool is not None and not job.holds_slots]
            could += pooled if all(job.resources.slots <= free for job in pooled) else []
        # Of the suspects only one begins at a time.
        assert spare <= 0 or all(job.deaths for job in could)

    @rule(capacity=st.integers(0, 5))
    def change_pool(self, capacity: int) -> None:
        self.wait(self.sandbox.client.pools.update(GPU.name, capacity=capacity))
        self.pool.capacity = capacity

    @rule(which=NUMBER, handle=NUMBER, name=NAMES)
    @require(lambda self: any(model_worker.claims for model_worker in self.workers))
    def begin_effect(self, which: int, handle: int, name: str) -> None:
        model_worker = choose([model_worker for model_worker in self.workers if model_worker.claims], which)
        self.begin(model_worker, choose(model_worker.claims, handle), name)

    def begin(self, hand: Any, claim: Claim, name: str) -> None:
        job, token = self.job(claim), sha256(repr(claim.key).encode()).digest()
        begun = self.wait(
            effects.begin_effect(self.database, hand.link.worker, part(claim, name), FUNCTIONS[name], token, FOR_EVER)
        )
        assert begun == self.expected_beginning(job, claim, hand.link.worker, name)
        if begun[0] != "lost":
            self.tokens.setdefault(token, (job, "taken"))

    def expected_beginning(self, job: Job, claim: Claim, worker: int, name: str) -> tuple[str, str | None]:
        if not (job.state == "running" and job.holder == worker and job.fence == claim.fence):
            return "lost", None
        known = job.resources.effects.get(name)
        if known is None:
            job.resources.effects[name] = Effect(name, claim.fence)
            return "new", None
        known.fence = claim.fence
        return "begun" if known.value is None else "done", known.value

    @rule(which=NUMBER, handle=NUMBER, name=NAMES, happened=st.booleans())
    @require(lambda self: any(model_worker.claims for model_worker in self.workers))
    def end_effect(self, which: int, handle: int, name: str, happened: bool) -> None:
        """By any attempt that ever existed; its outcome is recorded once."""
        model_worker = choose([model_worker for model_worker in self.workers if model_worker.claims], which)
        self.end(choose(model_worker.claims, handle), name, happened=happened)

    def end(self, claim: Claim, name: str, *, happened: bool) -> None:
        known = self.job(claim).resources.effects
        mine = known[name] if name in known and known[name].fence == claim.fence else None
        if not happened:
            self.wait(effects.undo_effect(self.database, part(claim, name)))
            if mine is not None and mine.value is None and mine.look_at is None and mine.resolution is None:
                del known[name]
            return
        value = str(next(self.numbers))
        assert self.wait(effects.end_effect(self.database, part(claim, name), value)) == (mine is not None)
        if mine is not None:
            mine.end(value, self.clock.now)

    def submit(self, hand: Any, claim: Claim) -> None:
        """As a step does before it parks."""
        self.begin(hand, claim, SUBMISSION)
        self.end(claim, SUBMISSION, happened=True)

    def park(self, job: Job) -> None:
        job.attempt -= 1
        job.state, job.holder = "parked", None
        self.record_external_work(job)

    def record_external_work(self, job: Job) -> None:
        now = self.clock.now
        due_at = now if job.stopping or job.is_final or job.resources.has_callback else now + EVERY
        external_id = job.resources.effects[SUBMISSION].value
        assert external_id is not None
        job.resources.external_work = ExternalWork(external_id, now, due_at)

    def release_or_keep_slots(self, run: Run, name: tuple[str, str]) -> None:
        """A job that may have submitted external work keeps its slots; any other must wait for free ones."""
        job = run.jobs[name]
        job.state, job.holder = "ready", None
        if job.resources.external_work is None:
            job.resources.pool = run.shape(name[0]).pool
            job.resources.held = job.resources.held if job.resources.may_have_submitted else None

    def has_external_work(self) -> bool:
        jobs = (job for run in self.runs.values() for job in run.jobs.values())
        return any(job.resources.external_work is not None and job.resources.external_work.is_open for job in jobs)

    @rule(after=st.sampled_from([0, 1, 60, 60, 90, 180, 300, 540]))
    @require(has_external_work)
    def poll_due(self, after: int) -> None:
        self.claim_polls(after)

    @rule(state=st.sampled_from(["running", "succeeded", "failed", "failed", "cancelled", "lost"]))
    @require(has_external_work)
    def poll_and_record(self, state: str) -> None:
        for poll in self.claim_polls(60):
            self.record_poll(poll, state)

    def claim_polls(self, after: int) -> list[DuePoll]:
        """All due polls are claimed, each to be polled once more."""
        self.advance(timedelta(seconds=after))
        self.send_heartbeats()
        now = self.clock.now
        found = self.wait(external_work.poll_due(self.database, DueRequest(self.catalog.version_numbers, 100, LEASE)))
        assert {(probe.run, probe.step, probe.item) for probe in found} == {
            (number, *name)
            for number, run in self.runs.items()
            for name, job in run.jobs.items()
            if (known := job.resources.external_work) is not None and known.is_open and known.due_at <= now
        }
        for probe in found:
            self.check_poll(probe)
        self.polls += found
        return found

    def check_poll(self, poll: DuePoll) -> None:
        now, job = self.clock.now, self.job(poll)
        known = job.resources.external_work
        assert known is not None
        known.poll(now)
        assert (poll.polls, poll.state, poll.callback_received) == (
            known.polls,
            known.state,
            job.resources.has_callback,
        )
        stop = known.why_stop(now, stopping=job.stopping, ended=job.is_final)
        assert (poll.stop, poll.given_up) == (stop, known.is_given_up(now))

    @rule(which=NUMBER, state=st.sampled_from(["queued", "running", "succeeded", "failed", "cancelled", "lost"]))
    @require(lambda self: bool(self.polls))
    def record_any_poll(self, which: int, state: str) -> None:
        """Any poll that ever was."""
        self.record_poll(choose(self.polls, which), state)

    def record_poll(self, poll: DuePoll, state: str) -> None:
        """Only the last poll counts, and only while the work is running."""
        job, run = self.job(poll), self.runs[poll.run]
        known, stops = job.resources.external_work, poll.stop is not None
        counts = known is not None and known.is_open and known.polls == poll.polls
        is_unconfirmed = stops and state == "lost"
        taken = self.wait(
            external_work.record_poll(
                self.database,
                poll,
                state=state,
                result="1" if state == "succeeded" else None,
                failed=is_unconfirmed,
                stopping=stops,
            )
        )
        assert taken == counts
        if known is not None and counts:
            known.record_poll(state, self.clock.now, asked_to_stop=stops, stopping=job.stopping)
            if is_unconfirmed:
                job.resources.orphan_external_work()
            if not known.is_open:
                self.return_job(run, poll, job)

    def return_job(self, run: Run, poll: DuePoll, job: Job) -> None:
        if job.state != "parked":
            return
        if job.stopping:
            run.end_parked((poll.step, poll.item))
        else:
            job.resources.pool = job.resources.held = None
            job.state = "ready"

    def is_looking(self) -> bool:
        return any(job.resources.is_looked_for for run in self.runs.values() for job in run.jobs.values())

    @rule(after=st.sampled_from([0, 0, 1, 90]), found=st.sampled_from(["lost", "nothing", "it", "failed"]))
    @require(is_looking)
    def look(self, after: int, found: str) -> None:
        """Workers look for all that is due, each once; at times what they found is lost."""
        self.advance(timedelta(seconds=after))
        self.send_heartbeats()
        now = self.clock.now
        looks = self.wait(effects.claim_looks(self.database, DueRequest(self.catalog.version_numbers, 100, LEASE)))
        assert {(look.run, look.step, look.item, look.name) for look in looks} == {
            (number, *name, effect.name)
            for number, run in self.runs.items()
            for name, job in run.jobs.items()
            for effect in job.resources.effects.values()
            if effect.look_at is not None and effect.look_at <= now
        }
        for look in looks:
            known = self.job(look).resources.effects[look.name]
            known.look(now)
            assert (look.looks, look.value) == (known.looks, known.value)
        self.looks += looks
        for look in looks if found != "lost" else []:
            self.record_look(look, found)

    @rule(which=NUMBER, found=st.sampled_from(["nothing", "it", "failed"]))
    @require(lambda self: bool(self.looks))
    def record_any_look(self, which: int, found: str) -> None:
        self.record_look(choose(self.looks, which), found)

    def record_look(self, look: DueLook, found: str) -> None:
        """Only the last look counts, and only while the effect is looked for."""
        job, run = self.job(look), self.runs[look.run]
        known = job.resources.effects.get(look.name)
        counts = known is not None and known.look_at is not None and known.looks == look.looks
        value = look.value or (str(next(self.numbers)) if found == "it" else None)
        resolution: Resolution | None = (
            None if found == "failed" else "not_submitted" if value is None else what_becomes_of(look)
        )
        assert self.wait(effects.record_look(self.database, look, resolution, value=value)) == counts
        if known is None or not counts:
            return
        known.record_look(resolution, value, self.clock.now)
        if resolution == "external_work":
            self.record_external_work(job)
        elif resolution is not None and job.state == "parked" and job.stopping:
            run.end_parked((look.step, look.item))

    @rule(which=NUMBER)
    @require(lambda self: bool(self.tokens))
    def send_callback(self, which: int) -> None:
        token = choose(list(self.tokens), which)
        job, answer = self.tokens[token]
        assert self.wait(external_work.record_callback(self.database, token, "{}")).answer == answer
        if answer == "taken":
            self.tokens[token] = job, "repeated"
            job.resources.has_callback = True
            known = job.resources.external_work
            if known is not None and known.is_open:
                known.due_at = self.clock.now

    def forget_calls(self, job: Job) -> None:
        """Callbacks for work that was resubmitted are unknown."""
        job.resources.has_callback = False
        self.tokens = {token: (of, "unknown" if of is job else answer) for token, (of, answer) in self.tokens.items()}

    def send_heartbeats(self) -> None:
        raise NotImplementedError


def what_becomes_of(look: DueLook) -> Resolution:
    return "external_work" if look.is_submission else "cancelled" if look.cancel else "done"


def part(claim: Claim, name: str) -> LeasedEffect:
    return LeasedEffect(claim.run, claim.step, claim.item, claim.revision, claim.fence, name)


async def read_resources(database: Database) -> dict[str, Any]:
    """Slots, effects and external work, as the database has them."""
    async with database.connection() as connection:
        held = await connection.fetch("select run, step, item, pool, slots from retoma.holdings")
        recorded = await connection.fetch(
            "select run, step, item, name, fence, value::text, next_at, orphaned_at is not null, resolution "
            "from retoma.effects"
        )
        works = await connection.fetch(
            "select run, step, item, state, polls, next_at, external_id::text from retoma.external_work"
        )
        waiting = await connection.fetch(
            "select run, step, item, pool from retoma.jobs where state in ('ready', 'running', 'parked')"
        )
    return {
        "slots": {tuple(row) for row in held},
        "effects": {tuple(row) for row in recorded},
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
            (*key, name, effect.fence, effect.value, effect.look_at, effect.is_orphan, effect.resolution)
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
