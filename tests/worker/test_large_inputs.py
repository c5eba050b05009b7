from __future__ import annotations

from uuid import UUID

import pytest

from retoma.store import runs
from retoma.store.database import Database
from retoma.worker import step_runner
from tests.conftest import OpenSandbox
from tests.engine.builders import run_next
from tests.worker.large_steps import book

MUCH = "".join(f"{number} " for number in range(40_000))  # no repetition that could be packed away


@pytest.mark.parametrize("text", ["short", MUCH], ids=["small", "large"])
async def test_an_input_reaches_every_step_that_takes_it(open_sandbox: OpenSandbox, text: str) -> None:
    """In a chain that stays with its worker, in a child, in an item, and after a retry."""
    async with open_sandbox(book) as sandbox:
        run = await sandbox.run(book, {"text": text, "title": "Os Sertões"})
    assert run.state == "completed"
    assert run.results["tail"] == f"Os Sertões {len(text) * 3}"
    assert run.results["index"] == ["Os Sertões", f"{text[:3]} of {len(text)}", f"{text[3:5]} of {len(text)}"]


async def test_a_large_input_does_not_travel_with_claims_and_is_kept_once_fetched(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[UUID] = []
    fetch = runs.get_input

    async def counted(database: Database, run: UUID) -> str:
        requests.append(run)
        return await fetch(database, run)

    monkeypatch.setattr(runs, "get_input", counted)
    async with open_sandbox(book) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(book, {"text": MUCH})).id
        claims = await worker.claim(100)
        assert {claim.run_input for claim in claims} == {None}
        await worker.record_outcomes(await worker.attempt(claims))
        assert set(requests) == {run}
        requests.clear()
        await run_next(worker)
        assert requests == []


async def test_only_so_many_inputs_are_kept(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(book) as sandbox:
        inputs = step_runner.InputCache(sandbox.database)
        runs = [
            (await sandbox.client.start(book, {"text": f"{number}"})).id
            for number in range(step_runner.INPUTS_KEPT + 2)
        ]
        body = [await inputs.get(run) for run in (*runs, runs[0])]
        assert '"text":"0"' in body[0] == body[-1]
        assert len(inputs._kept) == step_runner.INPUTS_KEPT
