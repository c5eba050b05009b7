"""Calls whose answer is lost: resending them changes nothing, and the sender learns their outcome."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from bench.chaos.proxy import Proxy
from retoma import GiveUp, Items, Pipeline, Retry
from retoma.client import Client
from retoma.engine import outcomes
from retoma.engine.claim_protocol import ClaimRequest, ClaimResponse, WorkerLink
from retoma.engine.outcomes import AttemptError, Outcome, Success
from retoma.engine.reviews import Decision
from retoma.errors import KeyReused
from retoma.records import Revision
from retoma.settings import Settings
from retoma.store.database import Database, DedicatedConnection, Row
from retoma.store.statements import Statement
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import RawChannel, kinds, name, names, open_channel, open_links, state, states, value
from tests.faults.testbed import get_server_address, url_by
from tests.wait_timeout import WAIT_TIMEOUT

_ACTION = re.compile(r"retoma\.(rerun_steps|rerun_failed|edit_result|skip_items|fork_run|decide_review_as)\(")


async def test_a_claim_whose_answer_is_lost_is_made_once_and_the_worker_learns_its_jobs(
    open_sandbox: OpenSandbox,
) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start_many(pipeline, [None] * 5)
        channel = await open_channel(sandbox)
        lose_answers(channel.link, sandbox.database)
        answer = await exchange(channel, limit=3)
        assert (answer.replayed, answer.claimed, answer.successors) == (True, [], [])
        held = await channel.link.list_held()
        assert names(held) == ["first"] * 3
        assert {claim.attempt for claim in held} == {1}
        assert await value(sandbox, "select count(*) from retoma.jobs where state = 'ready'") == 2


async def test_held_jobs_are_returned_with_all_their_inputs(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        channel = await open_channel(sandbox)
        (claim,) = await channel.call(limit=1)
        lose_answers(channel.link, sandbox.database)
        answer = await exchange(channel, Success(claim, "41"), limit=1)
        assert answer.replayed
        (kept,) = await channel.link.list_held()
        assert (kept.step, kept.results, kept.fence, kept.attempt) == ("second", ["41"], 1, 1)


async def test_a_finish_whose_answer_is_lost_is_recorded_once(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        channel = await open_channel(sandbox)
        (claim,) = await channel.call(limit=1)
        lose_answers(channel.link, sandbox.database, times=3)
        answer = await exchange(channel, Success(claim, "1"))
        assert (answer.replayed, answer.rejected) == (True, 0)
        assert await kinds(sandbox, run) == ["start", "result first"]
        assert await states(sandbox, run) == {"first": "succeeded", "second": "ready"}


async def test_a_failed_outcome_whose_answer_is_lost_counts_once(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        channel = await open_channel(sandbox)
        (claim,) = await channel.call(limit=1)
        lose_answers(channel.link, sandbox.database)
        await exchange(channel, outcomes.Retried(claim, AttemptError("ERROR")))
        assert await value(sandbox, "select failures from retoma.jobs where run = $1", run) == 1


async def test_a_call_that_never_arrived_takes_effect_when_it_is_resent(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        channel = await open_channel(sandbox)
        lose_answers(channel.link, sandbox.database, times=2, commit=False)
        answer = await exchange(channel, limit=1)
        assert (answer.replayed, names(answer.claimed)) == (False, ["first"])


async def test_calls_after_a_lost_answer_proceed_as_usual(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        channel = await open_channel(sandbox)
        lose_answers(channel.link, sandbox.database)
        await exchange(channel, limit=1)
        (claim,) = await channel.link.list_held()
        (kept,) = await channel.call([Success(claim, "1")], limit=1)
        await channel.call([Success(kept, "2")])
        assert await state(sandbox, run) == "completed"
        assert await channel.link.list_held() == []


async def test_a_request_for_held_jobs_is_repeated_when_it_is_interrupted(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        await sandbox.client.start(pipeline)
        channel = await open_channel(sandbox)
        await channel.call(limit=1)
        lose_answers(channel.link, sandbox.database, times=2)
        assert names(await channel.link.list_held()) == ["first"]


async def test_one_call_sent_over_two_connections_at_once_takes_effect_once(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        channel = await open_channel(sandbox)
        twin = RawChannel(sandbox, channel.worker, WorkerLink(sandbox.database, channel.worker, 1), channel.served)
        open_links.append(twin.link)
        for _ in range(20):
            await sandbox.client.start_many(pipeline, [None] * 2)
            answers = await asyncio.gather(exchange(channel, limit=1), exchange(twin, limit=1))
            assert sorted(answer.replayed for answer in answers) == [False, True]
            assert sorted(len(answer.claimed) for answer in answers) == [0, 1]
        assert len(await channel.link.list_held()) == 20


async def test_a_socket_cut_between_commit_and_answer_loses_nothing(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        channel = await open_channel(sandbox)
        (claim,) = await channel.call(limit=1)
        async with sandbox.database.connection() as blocker:
            async with blocker.transaction():
                # The call reaches the server and waits there, so that its connection can be cut under it.
                await blocker.fetch("select from retoma.worker_links where worker = $1 for update", channel.worker)
                call = asyncio.create_task(exchange(channel, Success(claim, "1"), limit=1))
                await wait_until(lambda: waiting_calls(sandbox, 1))
                get_connection(channel.link).terminate()
                await wait_until(lambda: waiting_calls(sandbox, 2))
            answer = await call
        # Behind a pooler the commit is a message of its own, which the cut kept from being sent.
        assert answer.replayed or sandbox.database.pooled
        assert [name(held) for held in await channel.link.list_held()] == ["second"]
        assert await kinds(sandbox, run) == ["start", "result first"]


async def test_a_worker_that_loses_an_answer_still_gets_its_jobs(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start_many(pipeline, [None] * 2)
        (first,) = await worker.claim(1)
        lose_answers(worker._link, sandbox.database)
        (second,) = await worker.claim(1)
        assert first.run != second.run


Action = Callable[[Client, UUID, str | None], Awaitable[Revision]]
ACTIONS: dict[str, Action] = {
    "rerun": lambda client, run, key: client.runs.rerun(run, "drawn", items=["a"], key=key),
    "rerun_failed": lambda client, run, key: client.runs.rerun_failed(run, key=key),
    "edit": lambda client, run, key: client.runs.edit(run, "drawn", "by hand", item="bad", key=key),
    "skip": lambda client, run, key: client.runs.skip(run, "drawn", ["bad"], key=key),
}


@pytest.mark.parametrize("act", ACTIONS)
async def test_an_action_whose_answer_is_lost_takes_effect_once_and_is_answered(
    open_sandbox: OpenSandbox, act: str
) -> None:
    async with open_sandbox(make_comic()) as sandbox, open_lossy_client(sandbox) as client:
        run = (await sandbox.run("comic")).id
        assert await ACTIONS[act](client, run, None) == Revision(2, 1)
        assert (await sandbox.client.runs.get(run)).revision == 2
        assert len(await sandbox.client.runs.list_events(run, kinds=["action"])) == 1


async def test_a_fork_whose_answer_is_lost_is_one_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_comic()) as sandbox, open_lossy_client(sandbox) as client:
        run = (await sandbox.run("comic")).id
        forked = await client.runs.fork(run)
        assert forked.created
        assert {each.id for each in await sandbox.client.runs.list()} == {run, forked.id}


@pytest.mark.parametrize("act", ACTIONS)
async def test_an_action_repeated_with_its_key_gets_its_first_answer(open_sandbox: OpenSandbox, act: str) -> None:
    """Also while its work is under way, when another would be refused, and after it."""
    async with open_sandbox(make_comic()) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.run("comic")).id
        made = await ACTIONS[act](sandbox.client, run, "order 1")
        claims = await worker.claim(1)
        assert await ACTIONS[act](sandbox.client, run, "order 1") == made
        await worker.record_outcomes(await worker.attempt(claims))
        await sandbox.work()
        assert await ACTIONS[act](sandbox.client, run, "order 1") == made
        assert (await sandbox.client.runs.get(run)).revision == 2


async def test_a_fork_repeated_with_its_key_is_the_same_run(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(make_comic()) as sandbox:
        run = (await sandbox.run("comic")).id
        first = await sandbox.client.runs.fork(run, key="order 1")
        again = await sandbox.client.runs.fork(run, key="order 1")
        assert (again.id, first.created, again.created) == (first.id, True, False)
        with pytest.raises(KeyReused, match="order 1"):
            await sandbox.client.runs.fork(first.id, key="order 1")
        with pytest.raises(KeyReused, match="order 1"):
            await sandbox.client.start("comic", key="order 1")


@pytest.mark.parametrize("act", ACTIONS)
async def test_a_key_of_one_action_is_not_accepted_for_another(open_sandbox: OpenSandbox, act: str) -> None:
    async with open_sandbox(make_comic()) as sandbox:
        run = (await sandbox.run("comic")).id
        await ACTIONS[act](sandbox.client, run, "order 1")
        with pytest.raises(KeyReused, match="order 1"):
            await sandbox.client.runs.rerun(run, "strip", key="order 1")


async def test_a_decision_whose_answer_is_lost_still_belongs_to_its_author(open_sandbox: OpenSandbox) -> None:
    pipeline = make_chain()
    pipeline.review("approval", of="second")
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await sandbox.work()
        (review,) = await sandbox.client.reviews.list(run=run)
        async with open_lossy_client(sandbox) as client:
            decided = await client.reviews.decide(review.id, Decision("reject", by="ana", notes="not this"))
        assert (decided.state, decided.decided_by) == ("rejected", "ana")
        assert await state(sandbox, run) == "rejected"


@asynccontextmanager
async def open_lossy_client(sandbox: Sandbox) -> AsyncIterator[Client]:
    """A client whose first act is committed, and whose connection is then cut."""
    async with (
        Proxy(get_server_address(sandbox.database)) as proxy,
        await Database.open(Settings(database_url=url_by(sandbox.database, proxy.port))) as through,
    ):
        proxy.loses_answer = lambda call: bool(_ACTION.search(call.sql)) and proxy.lost_answers == 0
        client = Client(sandbox.app, through)
        yield client
        await client.close()
        assert proxy.lost_answers == 1


class LossyLink(DedicatedConnection):
    """Loses the answers of its first calls, after the database has committed them or before it has seen them."""

    def __init__(self, database: Database, times: int, commit: bool) -> None:
        super().__init__(database)
        self._times = times
        self._commit = commit

    async def fetch(self, statement: Statement, arguments: list[Any], *options: Any, **named: Any) -> list[Row]:
        lost = self._times > 0
        self._times -= 1
        if lost and not self._commit:
            raise ConnectionResetError("cut before the call")
        rows = await super().fetch(statement, arguments, *options, **named)
        if lost:
            self.drop()
            raise ConnectionResetError("cut before the answer")
        return rows


def lose_answers(link: WorkerLink, database: Database, times: int = 1, *, commit: bool = True) -> None:
    link._link.drop()
    link._link = LossyLink(database, times, commit)


def get_connection(link: WorkerLink) -> asyncpg.Connection:
    connection = link._link._connection
    assert connection is not None
    return connection


async def exchange(channel: RawChannel, *outcomes: Outcome, limit: int = 0) -> ClaimResponse:
    return await channel.link.finish_and_claim(
        outcomes, ClaimRequest(channel.queues, channel.served, after_tenant=0, limit=limit, allow_suspect=True)
    )


async def waiting_calls(sandbox: Sandbox, count: int) -> bool:
    waiting = await value(
        sandbox,
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' "
        "and query like '%retoma.finish_and_claim%'",
    )
    return bool(waiting == count)


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT):
        while not await holds():  # noqa: ASYNC110  (it happens in the server)
            await asyncio.sleep(0.005)


def make_chain() -> Pipeline:
    pipeline = Pipeline("chain")

    @pipeline.step
    async def first() -> int:
        return 1

    @pipeline.step
    async def second(first: int) -> int:
        return first + 1

    return pipeline


def make_comic() -> Pipeline:
    pipeline = Pipeline("comic", retry=Retry(0))

    @pipeline.step
    def scenes() -> list[str]:
        return ["a", "bad"]

    @pipeline.each(scenes, on_failure="continue")
    def drawn(scene: str) -> str:
        if scene == "bad":
            raise GiveUp("no")
        return scene

    @pipeline.step
    def strip(drawn: Items[str]) -> int:
        return len(drawn)

    return pipeline
