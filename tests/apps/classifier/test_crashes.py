from __future__ import annotations

from collections.abc import Callable

import pytest

from retoma import Context, seconds
from retoma.engine.exchange import Claim, Result, SetBack
from retoma.settings import SILENCE
from retoma.store import workers
from retoma.worker.attempt import Crashed, crashed
from retoma.worker.plan import Plan
from tests.apps.classifier.office import TEXTS, InThisProcess, Office
from tests.apps.classifier.test_executions import first_steps


class Crashing(InThisProcess):
    """A child process dies with `b.txt`, as native code does that meets a bad PDF."""

    async def attempt(
        self, plan: Plan, claim: Claim, context: Context | None, on_body: Callable[[Claim], None]
    ) -> Result | SetBack:
        if claim.item == "b.txt":
            return crashed(plan, claim, Crashed("its child process died by SIGSEGV"), 0.1)
        return await super().attempt(plan, claim, context, on_body)


async def test_a_document_that_crashed_its_process_three_times_is_quarantined_alone(office: Office) -> None:
    office.hands._runner._children = Crashing(office.hands)  # type: ignore[assignment]
    execution = await office.done(max_retries_documento=9)
    found = await office.documents(execution)
    assert {code: each["status"] for code, each in found.items()} == {
        "a.txt": "CONCLUIDO",
        "b.txt": "ERRO",
        "c.txt": "CONCLUIDO",
    }
    assert (found["b.txt"]["erro_codigo"], found["b.txt"]["tentativas"]) == ("QUARANTINED", 3)
    assert "died by SIGSEGV" in found["b.txt"]["erro_detalhe"]
    errors = (await office.api.get(f"/execucoes/{execution}/erros")).json()["erros"]
    assert [each["codigo"] for each in errors] == ["b.txt"]


@pytest.mark.parametrize(("allowed", "attempts", "code"), [(0, 1, "CRASHED"), (2, 3, "QUARANTINED")])
async def test_a_crash_is_an_attempt(office: Office, allowed: int, attempts: int, code: str) -> None:
    office.hands._runner._children = Crashing(office.hands)  # type: ignore[assignment]
    execution = await office.done({"b.txt": TEXTS["b.txt"]}, max_retries_documento=allowed)
    (found,) = (await office.documents(execution)).values()
    assert (found["status"], found["tentativas"], found["erro_codigo"]) == ("ERRO", attempts, code)


async def test_a_document_with_which_three_workers_died_is_quarantined_and_can_be_made_again(office: Office) -> None:
    execution = await office.begin(await office.project(), {"a.txt": TEXTS["a.txt"]})
    await first_steps(office)
    for _ in range(3):
        async with office.another_worker() as doomed:
            assert len(await doomed.claim(1)) == 1
            await office.api.sandbox.clock.advance(SILENCE + seconds(1))
            await workers.beat(office.api.sandbox.database, office.hands.worker)
            await workers.sweep(office.api.sandbox.database, SILENCE)
    await office.work()
    (found,) = (await office.documents(execution)).values()
    assert (found["status"], found["erro_codigo"], found["tentativas"]) == ("ERRO", "QUARANTINED", 3)
    await office.act(execution, "reprocessar-erros")
    await office.work()
    assert (await office.status(execution))["status"] == "CONCLUIDO"
