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
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim, ClaimRequest, WorkerLink
from retoma.engine.outcomes import AttemptError, Outcome, Success
from retoma.errors import WorkerGone
from retoma.store import workers
from retoma.store.database import Database
from retoma.testing import Sandbox, fresh_database, sandbox
from tests.conftest import empty_database, list_underived_states
from tests.engine.builders import make_served_versions, send_heartbeat
from tests.model.external_work import BAD_ENDS
from tests.model.external_work_rules import ExternalWorkRules, choose, get_resources, read_resources, require
from tests.model.model import Job, Run
from tests.model.shapes import GPU, SHAPES, studio

Answer = TypeVar("Answer")
HEARTBEAT_TIMEOUT = timedelta(seconds=6)
PAUSE = timedelta(minutes=1)
POOLED = {step.name for shape in SHAPES for step in shape.graph.steps if step.pool == GPU.name}
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "40"))
# Of a bug that is planted nobody wants the smallest example, which takes minutes.
PHASES = [phase for phase in Phase if phase is not Phase.shrink or "TEST_WAIT_TIMEOUT" not in os.environ]
APP = App("model", pipelines=SHAPES)


@dataclass
class ModelWorker:
    """A worker moved by the machine. It never forgets a handle, however stale."""

    link: WorkerLink
    is_dead: bool = False
    claims: list[Claim] = field(default_factory=list)


class Engine(ExternalWorkRules, RuleBasedStateMachine):
    loop: ClassVar[asyncio.AbstractEventLoop]
    database: ClassVar[Database]

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[UUID, Run] = {}
        self.workers: list[ModelWorker] = []
        self.stack = ExitStack()

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(work)

    @initialize(shape=st.sampled_from(SHAPES), frames=st.integers(1, 3))
    def open(self, shape: Any, frames: int) -> None:
        self.wait(empty_database(self.database))
        opened = sandbox(APP, self.database)
        self.sandbox: Sandbox = self.wait(opened.__aenter__())
        self.stack.callback(lambda: self.wait(opened.__aexit__(None, None, None)))
        self.clock.now = self.wait(self.sandbox.clock.now())
        self.catalog = make_served_versions(self.sandbox)
        self.wait(self.catalog.register_and_load(self.database))
        for _ in range(3):
            self.new_worker()
        self.start(shape, later=False)
        self.begin_studio(frames)

    def begin_studio(self, frames: int) -> None:
        """A run whose items wait for the pool, in parallel to a step that needs all of it."""
        self.start(studio, later=False)
        model_worker = self.workers[0]
        self.finish_and_claim(model_worker, [], 10)
        for claim in self.held_claims(model_worker):
            if claim.step == "frames":
                self.apply(claim, self.job(claim), "succeeded", [str(number) for number in range(frames)], False)
                succeeded = outcome_of(claim, self.runs[claim.run], "succeeded", frames, False)
                self.finish_and_claim(model_worker, [succeeded], 0)

    def teardown(self) -> None:
        for model_worker in self.workers:
            self.wait(model_worker.link.close())
        self.stack.close()

    def new_worker(self) -> None:
        worker = self.wait(workers.register_worker(self.database, "hand", APP.queues, 1, 1))
        self.workers.append(ModelWorker(WorkerLink(self.database, worker, 1)))

    def finish_and_claim(self, model_worker: ModelWorker, reported: list[Outcome], limit: int) -> int:
        """Make one call; return how many outcomes were rejected, and check that the claimed jobs were ready."""
        request = ClaimRequest(
            APP.queues, self.catalog.version_numbers, after_tenant=0, limit=limit, allow_suspect=True
        )
        answer = self.wait(model_worker.link.finish_and_claim(reported, request))
        for claim in (*answer.successors, *answer.claimed):
            job = self.runs[claim.run].jobs[claim.step, claim.item]
            assert job.state == "ready"
            assert not job.delayed
            self.check_claim(job)
            job.state, job.holder = "running", model_worker.link.worker
            job.attempt += 1
            job.fence = claim.fence
            counts = claim.attempt, claim.failures, claim.child_crashes, claim.worker_deaths
            assert counts == (job.attempt, job.failures, job.crashes, job.deaths)
            model_worker.claims.append(claim)
        self.check_unclaimed(limit - len(answer.claimed) - len(answer.successors))
        return answer.rejected

    @rule(shape=st.sampled_from([*SHAPES, studio]), later=st.booleans())
    def start(self, shape: Any, later: bool) -> None:
        at = self.wait(self.sandbox.clock.now()) + timedelta(minutes=1) if later else None
        started = self.wait(self.sandbox.client.start(shape, run_at=at))
        run = Run(shape.graph, self.clock, pending=later)
        run.grow()
        for job in run.jobs.values():
            job.delayed = later and job.state == "ready"
        self.runs[started.id] = run

    @rule(which=st.integers(0, 999), limit=st.integers(1, 4))
    def claim(self, which: int, limit: int) -> None:
        model_worker = choose(self.workers, which)
        if model_worker.is_dead:
            with pytest.raises(WorkerGone):
                self.finish_and_claim(model_worker, [], limit)
        else:
            self.finish_and_claim(model_worker, [], limit)

    @rule(which=st.integers(0, 999), limit=st.integers(1, 4))
    def lose_answer(self, which: int, limit: int) -> None:
        """Resend the call under its number: it claims nothing more, and the worker learns which jobs it holds."""
        model_worker = choose([model_worker for model_worker in self.workers if not model_worker.is_dead], which)
        self.finish_and_claim(model_worker, [], limit)
        model_worker.link._call -= 1
        request = ClaimRequest(
            APP.queues, self.catalog.version_numbers, after_tenant=0, limit=limit, allow_suspect=True
        )
        again = self.wait(model_worker.link.finish_and_claim([], request))
        assert (again.replayed, again.claimed, again.successors) == (True, [], [])
        told = {(claim.run, claim.step, claim.item) for claim in self.wait(model_worker.link.list_held())}
        assert told == {(number, *name) for number, _, name in self.held_by(model_worker)}

    def held_by(self, model_worker: ModelWorker) -> list[tuple[UUID, Run, tuple[str, str]]]:
        return [
            (number, run, name)
            for number, run in self.runs.items()
            for name, job in sorted(run.jobs.items())
            if job.holder == model_worker.link.worker
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
                "quarantined",
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
        limit=st.integers(0, 3),
        stale=st.sampled_from([True, False, False]),
    )
    @require(lambda self: any(model_worker.claims for model_worker in self.workers))
    def finish(self, which: int, handle: int, how: str, items: int, delayed: bool, limit: int, stale: bool) -> None:
        """Finish with any handle that was ever held: it counts only if it is still held."""
        model_worker, claim = self.any_handle(which, handle, stale)
        if how == "parked" and self.job(claim).resources.external_work is not None:
            how = "succeeded"  # its external work has ended, so its step continues
        if how == "parked":
            self.submit(model_worker, claim)
        if how == "crashed" and claim.child_crashes >= 2:
            how = "quarantined"  # as workers decide
        outcome = outcome_of(claim, self.runs[claim.run], how, items, delayed)
        if model_worker.is_dead:
            with pytest.raises(WorkerGone):
                self.finish_and_claim(model_worker, [outcome], limit)
            return
        job = self.runs[claim.run].jobs[claim.step, claim.item]
        valid = claim in self.held_claims(model_worker)
        if valid and how == "parked":
            self.park(job)
        elif valid:
            self.apply(claim, job, how, [str(number) for number in range(items)], delayed)
        if how == "too_many" and claim.step in POOLED:
            self.pool.paused_until = max(self.pool.paused_until or self.clock.now, self.clock.now + PAUSE)
        assert self.finish_and_claim(model_worker, [outcome], limit) == (0 if valid else 1)

    def any_handle(self, which: int, handle: int, stale: bool) -> tuple[ModelWorker, Claim]:
        """Return a stale handle of a rerunning job, if there is one: only its fence can tell."""
        if stale and (overtaken := self.find_stale_handles()):
            return choose(overtaken, handle)
        model_worker = choose([model_worker for model_worker in self.workers if model_worker.claims], which)
        return model_worker, choose(
            model_worker.claims if stale else self.held_claims(model_worker) or model_worker.claims, handle
        )

    def find_stale_handles(self) -> list[tuple[ModelWorker, Claim]]:
        return [
            (model_worker, claim)
            for model_worker in self.workers
            if not model_worker.is_dead
            for claim in model_worker.claims
            if self.job(claim).state == "running" and claim not in self.held_claims(model_worker)
        ]

    def held_claims(self, model_worker: ModelWorker) -> list[Claim]:
        """Those that still count."""
        return [
            claim
            for claim in model_worker.claims
            if (job := self.job(claim)).state == "running"
            and job.holder == model_worker.link.worker
            and job.fence == claim.fence
        ]

    @rule(which=st.integers(0, 999), limit=st.integers(1, 3))
    def park_all(self, which: int, limit: int) -> None:
        """A worker claims, and hands over to the outside all that it holds, in one call."""
        model_worker = choose([model_worker for model_worker in self.workers if not model_worker.is_dead], which)
        self.finish_and_claim(model_worker, [], limit)
        claims = [claim for claim in self.held_claims(model_worker) if self.job(claim).resources.external_work is None]
        for claim in claims:
            self.submit(model_worker, claim)
            self.park(self.job(claim))
        assert self.finish_and_claim(model_worker, [outcomes.Parked(claim, "external") for claim in claims], 0) == 0

    def apply(self, claim: Claim, job: Job, how: str, items: list[str], delayed: bool) -> None:
        run, name = self.runs[claim.run], (claim.step, claim.item)
        job.failures += how in ("retry", "crashed", "quarantined")
        job.crashes += how in ("crashed", "quarantined")
        job.attempt -= how in ("back", "wait", "too_many")
        if how in ("succeeded", "failed", "quarantined", "skipped"):
            run.end(name, how, items if run.is_source(claim.step) else None)
        elif run.final_state is not None:
            run.stop_job(name)
        else:
            self.release_or_keep_slots(run, name)
            job.delayed = (delayed and how != "interrupted") or how == "too_many"
            if how in ("retry", "crashed", "wait", "too_many"):
                self.try_again(run, name, job)

    def try_again(self, run: Run, name: tuple[str, str], job: Job) -> None:
        """Failed external work is discarded and takes its slots again."""
        if job.resources.external_work is not None and job.resources.external_work.state in BAD_ENDS:
            job.resources.pool = run.shape(name[0]).pool
            self.forget_calls(job)
        job.resources.forget_failed()

    @rule(which=st.integers(0, 999))
    @require(lambda self: any(not model_worker.is_dead for model_worker in self.workers))
    def kill_worker(self, which: int) -> None:
        """One worker stops its heartbeats while the others send theirs; two maintenance loops notice."""
        model_worker = choose([model_worker for model_worker in self.workers if not model_worker.is_dead], which)
        self.advance(HEARTBEAT_TIMEOUT * 2)
        for other in self.workers:
            if other is not model_worker and not other.is_dead:
                assert self.wait(send_heartbeat(self.database, other.link.worker))
        held = self.held_by(model_worker)
        swept = self.wait(reap_twice_at_once(self.database))
        assert [row for row in swept if row[0] == model_worker.link.worker] == [(model_worker.link.worker, len(held))]
        model_worker.is_dead = True
        for _, run, name in held:
            self.lose_job(run, name)
        self.new_worker()

    @rule(which=st.integers(0, 999))
    def stop_worker(self, which: int) -> None:
        """Stop a worker gracefully: its jobs are returned unharmed."""
        model_worker = choose([model_worker for model_worker in self.workers if not model_worker.is_dead], which)
        held = self.held_by(model_worker)
        assert self.wait(workers.deregister_worker(self.database, model_worker.link.worker)) == len(held)
        model_worker.is_dead = True
        for _, run, name in held:
            if run.final_state is not None:
                run.stop_job(name)
            else:
                self.release_or_keep_slots(run, name)
        self.new_worker()

    def lose_job(self, run: Run, name: tuple[str, str]) -> None:
        job = run.jobs[name]
        job.deaths += 1
        if run.final_state is not None:
            run.stop_job(name)
        elif job.deaths >= 3:
            run.end(name, "quarantined")
        else:
            self.release_or_keep_slots(run, name)

    @rule()
    def advance_time(self) -> None:
        self.advance(timedelta(minutes=2))
        self.send_heartbeats()
        self.wait(workers.release_due_jobs(self.database, 1_000))
        if not self.pool.is_paused(self.clock.now):
            self.pool.paused_until = None
        for run in self.runs.values():
            run.pending = False
            for job in run.jobs.values():
                job.delayed = False

    def send_heartbeats(self) -> None:
        for model_worker in self.workers:
            if not model_worker.is_dead:
                self.wait(send_heartbeat(self.database, model_worker.link.worker))

    @rule(which=st.integers(0, 999))
    @require(lambda self: bool(self.runs))
    def cancel(self, which: int) -> None:
        number = choose(list(self.runs), which)
        run = self.runs[number]
        if not run.is_over and run.final_state != "cancelled":
            run.stop("cancelled")
        assert self.wait(self.sandbox.client.runs.cancel(number)) == run.state

    @invariant()
    def compare_with_database(self) -> None:
        if not self.runs:
            return
        found = self.wait(describe_database(self.database))
        assert found == {number: describe_run(run) for number, run in self.runs.items()}
        assert self.wait(read_resources(self.database)) == get_resources(self.runs)
        assert self.wait(list_underived_states(self.database)) == []


async def describe_database(database: Database) -> dict[UUID, Any]:
    """Each run's state, and of its jobs that are made: waiting ones are the engine's own way of counting."""
    async with database.connection() as connection:
        runs = await connection.fetch("select id, state::text from retoma.runs")
        jobs = await connection.fetch(
            "select run, step, item, state::text, attempt, failures, child_crashes, worker_deaths, "
            "ready_at is not null, "
            "case when state = 'skipped' then code end "
            "from retoma.jobs where state <> 'waiting' and not (state = 'cancelled' and waiting_on > 0)"
        )
    return {
        run["id"]: (run["state"], {(job[1], job[2]): tuple(job)[3:] for job in jobs if job["run"] == run["id"]})
        for run in runs
    }


def describe_run(run: Run) -> tuple[str, dict[tuple[str, str], tuple[Any, ...]]]:
    return run.state, {
        name: (
            job.state,
            job.attempt,
            job.failures,
            job.crashes,
            job.deaths,
            job.delayed and job.state == "ready",
            None if job.state != "skipped" else "DEPENDENCY_FAILED" if job.failed_dependency else "SKIPPED",
        )
        for name, job in run.jobs.items()
    }


def outcome_of(claim: Claim, run: Run, how: str, items: int, delayed: bool) -> Outcome:
    if how == "succeeded":
        fan_out = {str(number): "1" for number in range(items)} if run.is_source(claim.step) else None
        return Success(claim, "[]", fan_out)
    if how == "parked":
        return outcomes.Parked(claim, "external")
    if how == "too_many":
        return outcomes.Postponed(claim, AttemptError("RATE_LIMITED"), PAUSE)
    error, delay = AttemptError("ERROR"), timedelta(minutes=1 if delayed else 0)
    others: dict[str, Outcome] = {
        "failed": outcomes.Failure(claim, error),
        "quarantined": outcomes.Failure(claim, error, is_quarantined=True),
        "skipped": outcomes.Skip(claim, "SKIPPED"),
        "retry": outcomes.Retried(claim, error, delay),
        "crashed": outcomes.Retried(claim, error, delay, is_crash=True),
        "wait": outcomes.Postponed(claim, error, delay),
        "back": outcomes.Returned(claim, delay),
        "interrupted": outcomes.Interrupted(claim),
    }
    return others[how]


async def reap_twice_at_once(database: Database) -> list[tuple[int, int]]:
    first, second = await asyncio.gather(
        workers.reap_dead_workers(database, HEARTBEAT_TIMEOUT), workers.reap_dead_workers(database, HEARTBEAT_TIMEOUT)
    )
    return [*first, *second]


@pytest.fixture
def machine() -> Iterator[type[Engine]]:
    loop = asyncio.new_event_loop()
    opened = fresh_database()
    Engine.loop, Engine.database = loop, loop.run_until_complete(opened.__aenter__())
    yield Engine
    loop.run_until_complete(opened.__aexit__(None, None, None))
    loop.close()


def test_the_engine_behaves_like_the_model(machine: type[Engine]) -> None:
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
