"""The state of a run follows from its facts: what the hot path and the actions write is what the rules derive."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from uuid import UUID

from retoma import GiveUp, NeedsReview, Pipeline, Retry, minutes
from retoma.engine import watchdog
from retoma.reviews import Decision
from retoma.states import RunState
from retoma.store import workers
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox, list_underived_states
from tests.engine.builders import HEARTBEAT_TIMEOUT, run_next, state, value


class Look:
    """Looks at a run, and remembers every state that it had."""

    def __init__(self, sandbox: Sandbox, run: UUID) -> None:
        self.sandbox, self.run, self.seen = sandbox, run, list[str]()

    async def __call__(self) -> None:
        assert await list_underived_states(self.sandbox.database) == []
        self.seen.append(await state(self.sandbox, self.run))


def letter() -> Pipeline:
    """A draft that asks for help, a review of it, and a footnote that cannot be written."""
    pipeline = Pipeline("letter", retry=Retry(0))

    @pipeline.step
    def topic() -> str:
        return "tea"

    @pipeline.step
    def draft(topic: str) -> str:
        raise NeedsReview("which tea?", value="green tea")

    pipeline.review("approved", of=draft)

    @pipeline.step(on_failure="continue")
    def footnote(approved: str) -> str:
        raise GiveUp("no source")

    return pipeline


async def approve(sandbox: Sandbox, run: UUID) -> None:
    (review,) = await sandbox.client.reviews.list(run=run)
    await sandbox.client.reviews.decide(review.id, Decision("approve", by="ana"))


async def get_stuck(sandbox: Sandbox) -> None:
    await sandbox.clock.advance(minutes(6))
    await watchdog.check_due_runs(sandbox.database, HEARTBEAT_TIMEOUT)


async def test_every_state_on_the_way_of_a_run_is_the_one_that_is_derived(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letter()) as sandbox:
        run = (await sandbox.client.start("letter", run_at=await sandbox.clock.now() + minutes(1))).id
        look = Look(sandbox, run)
        await look()
        await sandbox.clock.advance(minutes(2))
        await workers.release_due_jobs(sandbox.database, 100)
        await look()
        await get_stuck(sandbox)
        await look()
        await sandbox.client.runs.resume(run, by="ana")
        await look()
        async with sandbox.manual_worker() as worker:
            await walk_through_reviews(sandbox, worker, look)
    assert look.seen == [
        *("pending", "running", "stuck", "running", "running", "needs_review", "running", "paused", "running"),
        *("completed_with_errors", "completed", "paused", "cancelled"),
    ]


async def walk_through_reviews(sandbox: Sandbox, worker: ManualWorker, look: Look) -> None:
    await run_next(worker, "topic")
    await look()
    await run_next(worker, "draft")
    await look()
    await approve(sandbox, look.run)
    await look()
    await run_next(worker, "draft")
    await look()
    await approve(sandbox, look.run)
    await look()
    await sandbox.work()
    await look()
    await sandbox.client.runs.edit(look.run, "footnote", "none", downstream=False, by="ana")
    await look()
    await sandbox.client.runs.rerun(look.run, "approved", by="ana")
    await look()
    await sandbox.client.runs.cancel(look.run)
    await look()


async def test_a_run_that_stops_while_a_job_runs_ends_with_that_job(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letter()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start("letter")).id
        look = Look(sandbox, run)
        claims = await worker.claim(1)
        await sandbox.client.runs.cancel(run)
        await look()
        await worker.record_outcomes(await worker.attempt(claims))
        await look()
    assert look.seen == ["cancelling", "cancelled"]


async def test_a_rejected_run_has_ended_whatever_the_watchdog_had_noted(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letter()) as sandbox:
        run = (await sandbox.client.start("letter")).id
        look = Look(sandbox, run)
        await get_stuck(sandbox)
        await look()
        await sandbox.work()
        await look()
        await approve(sandbox, run)
        await sandbox.work()
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, Decision("reject", by="ana", notes="no"))
        await look()
    assert look.seen == ["stuck", "stuck", "rejected"]  # it progressed, but the watchdog has not looked again


async def test_a_paused_run_is_not_pending_when_the_clock_is_set_back(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letter()) as sandbox:
        run = (await sandbox.client.start("letter")).id
        await sandbox.work(advance_clock=False)
        await sandbox.clock.advance(-minutes(5))
        await value(sandbox, "select retoma.refresh_run_state(retoma.now(), array[$1::uuid])", run)
        assert await state(sandbox, run) == RunState.NEEDS_REVIEW


async def test_a_fork_that_reruns_nothing_ends_at_once(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("tea")

    @pipeline.step
    def leaves() -> str:
        return "green"

    async with open_sandbox(pipeline) as sandbox:
        fork = (await sandbox.client.runs.fork((await sandbox.run("tea")).id)).id
        assert await state(sandbox, fork) == RunState.COMPLETED
        assert [event.kind for event in await sandbox.client.runs.list_events(fork)] == ["start", "action", "end"]


WRITERS = {
    "functions/start_runs.sql": "a start is 'pending' or 'running'",
    "functions/propagate_job_ends.sql": "the end of the last sink completes a run",
    "functions/run_state.sql": "everything else derives the state",
}
_INSERT = re.compile(r"insert\s+into\s+retoma\.runs\b[^(]*\(([^)]*)\)", re.IGNORECASE)
_UPDATE = re.compile(r"update\s+retoma\.runs\b.*?\bset\b(.*?)(?:\bwhere\b|;)", re.IGNORECASE | re.DOTALL)


def list_state_writers() -> Iterator[str]:
    folder = files("retoma.store") / "sql"
    for prefix, place in (("", folder), ("functions/", folder / "functions")):
        for file in place.iterdir():
            if file.name.endswith(".sql"):
                text = file.read_text()
                inserts = any(re.search(r"\bstate\b", columns) for columns in _INSERT.findall(text))
                updates = any(re.search(r"(?<![\w.])state\s*=", values) for values in _UPDATE.findall(text))
                if inserts or updates or re.search(r"\bbefore\b[\w ]+\bon retoma\.runs\b", text):
                    yield prefix + file.name


def test_the_state_of_a_run_is_written_in_three_places() -> None:
    assert set(list_state_writers()) == set(WRITERS), "let another function change facts and call refresh_run_state"
