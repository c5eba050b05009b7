"""An act repeated with its idempotency key gets its first answer, whatever has happened since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from retoma import Client, GiveUp, Items, Pipeline, Retry
from retoma.errors import InvalidInput, KeyReused, RunBusy
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import run_next, state


class FailureSwitch:
    fails = False


def letters(switch: FailureSwitch) -> Pipeline:
    pipeline = Pipeline("letters", retry=Retry(0))

    @pipeline.step
    def names() -> list[str]:
        return ["a", "b"]

    @pipeline.each(names)
    def letter(name: str) -> str:
        if switch.fails and name == "b":
            raise GiveUp("no paper")
        return name

    @pipeline.step
    def last(letter: Items[str]) -> int:
        return len(letter)

    return pipeline


Action = Callable[[Client, UUID, str | None], Awaitable[Any]]
ACTIONS: dict[str, Action] = {
    "rerun": lambda client, run, key: client.runs.rerun(run, "letter", key=key),
    "rerun of what is stale": lambda client, run, key: client.runs.rerun(run, stale=True, key=key),
    "rerun_failed": lambda client, run, key: client.runs.rerun_failed(run, key=key),
    "edit": lambda client, run, key: client.runs.edit(run, "letter", "z", item="a", key=key),
    "edit alone": lambda client, run, key: client.runs.edit(run, "letter", "z", item="a", downstream=False, key=key),
    "skip": lambda client, run, key: client.runs.skip(run, "letter", ["b"], key=key),
    "cancel": lambda client, run, key: client.runs.cancel(run, key=key),
}


@pytest.fixture(params=ACTIONS)
def action(request: pytest.FixtureRequest) -> Action:
    return ACTIONS[request.param]


async def run_to_end(sandbox: Sandbox, *, fails: bool, switch: FailureSwitch) -> UUID:
    switch.fails = fails
    run = (await sandbox.client.start("letters")).id
    await sandbox.work()
    switch.fails = False
    return run


@pytest.mark.parametrize("fails", [False, True], ids=["of a completed run", "of a run with errors"])
async def test_every_repetition_gets_the_first_answer(open_sandbox: OpenSandbox, action: Action, fails: bool) -> None:
    mood = FailureSwitch()
    async with open_sandbox(letters(mood)) as sandbox:
        run = await run_to_end(sandbox, fails=fails, switch=mood)
        first = await action(sandbox.client, run, "k")
        revisions = (await sandbox.client.runs.get(run)).revision
        assert await action(sandbox.client, run, "k") == first  # at once
        async with sandbox.manual_worker() as worker:
            await worker.claim(1)
            assert await action(sandbox.client, run, "k") == first  # while it is under way
        await sandbox.work()
        assert await action(sandbox.client, run, "k") == first  # when it has ended
        assert (await sandbox.client.runs.get(run)).revision == revisions
        await sandbox.client.runs.rerun(run, "names")
        assert await action(sandbox.client, run, "k") == first  # after another act, and while that is under way
        await sandbox.client.runs.cancel(run)
        assert await action(sandbox.client, run, "k") == first  # though it could not be done any more


async def test_a_key_with_another_request_is_rejected(open_sandbox: OpenSandbox, action: Action) -> None:
    mood = FailureSwitch()
    async with open_sandbox(letters(mood)) as sandbox:
        run = await run_to_end(sandbox, fails=False, switch=mood)
        await action(sandbox.client, run, "k")
        await sandbox.work()
        with pytest.raises(KeyReused):
            await sandbox.client.runs.rerun(run, "last", reason="another request", key="k")
        with pytest.raises(KeyReused):
            await sandbox.client.runs.resume(run, key="k")


async def test_a_caller_cannot_send_a_derived_key(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letters(FailureSwitch())) as sandbox:
        run = await run_to_end(sandbox, fails=False, switch=FailureSwitch())
        derived: list[str | None] = []

        async def act(key: str | None) -> dict[str, Any]:
            derived.append(key)
            return {"jobs": (await sandbox.client.runs.rerun(run, "letter", key=key)).jobs}

        first = await sandbox.client.runs.get_or_record_answer(run, "k", "again", act)
        assert await sandbox.client.runs.get_or_record_answer(run, "k", "again", act) == first
        (key,) = derived
        assert key is not None
        assert not key.isprintable()  # as an Idempotency-Key must be
        with pytest.raises(InvalidInput, match="key"):
            await sandbox.client.runs.rerun(run, "letter", key="\x1e" + key[1:])


async def test_an_action_without_effect_is_answered_too(open_sandbox: OpenSandbox) -> None:
    mood = FailureSwitch()
    async with open_sandbox(letters(mood)) as sandbox:
        run = await run_to_end(sandbox, fails=False, switch=mood)
        first = await sandbox.client.runs.rerun_failed(run, key="k")
        assert (first.number, first.jobs) == (1, 0)
        await sandbox.client.runs.rerun(run, "letter")
        assert await sandbox.client.runs.rerun_failed(run, key="k") == first
        mood.fails = True
        await sandbox.work()
        assert await sandbox.client.runs.rerun_failed(run, key="k") == first
        assert (await sandbox.client.runs.rerun_failed(run, key="another")).jobs > 0


async def test_a_slow_cancel_repeated_with_its_key_gets_its_first_answer(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letters(FailureSwitch())) as sandbox:
        run = (await sandbox.client.start("letters")).id
        async with sandbox.manual_worker() as worker:
            await worker.claim(1)
            assert await sandbox.client.runs.cancel(run, key="k") == "cancelling"
        assert await state(sandbox, run) == "cancelled"
        assert await sandbox.client.runs.cancel(run, key="k") == "cancelling"
        assert await sandbox.client.runs.cancel(run) == "cancelled"


def one_step(switch: FailureSwitch) -> Pipeline:
    pipeline = Pipeline("letters", retry=Retry(0))

    @pipeline.step
    def only() -> int:
        if switch.fails:
            raise GiveUp("no paper")
        return 1

    return pipeline


async def test_a_resume_is_done_once_for_each_key(open_sandbox: OpenSandbox) -> None:
    mood = FailureSwitch()
    async with open_sandbox(one_step(mood)) as sandbox:
        run = await run_to_end(sandbox, fails=True, switch=mood)
        assert await sandbox.client.runs.resume(run, key="k") == "running"
        mood.fails = True
        async with sandbox.manual_worker() as worker:
            await run_next(worker, "only")
        assert await state(sandbox, run) == "failed"
        assert await sandbox.client.runs.resume(run, key="k") == "running"
        assert await state(sandbox, run) == "failed"
        assert await sandbox.client.runs.resume(run, key="another") == "running"


async def test_a_rejected_action_may_be_retried_with_its_key(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(letters(FailureSwitch())) as sandbox:
        run = (await sandbox.client.start("letters")).id
        with pytest.raises(RunBusy):
            await sandbox.client.runs.skip(run, "letter", ["b"], key="k")
        await sandbox.work()
        assert (await sandbox.client.runs.skip(run, "letter", ["b"], key="k")).number == 2
