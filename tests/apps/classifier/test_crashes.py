from __future__ import annotations

import pytest

from retoma import Context, seconds
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Outcome
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.store import workers
from retoma.worker.attempt import Crashed, build_crash_outcome
from retoma.worker.step_call import StepCall
from tests.apps.classifier.classifier_app import TEXTS, ClassifierApp, InProcessIsolation
from tests.apps.classifier.test_executions import first_steps
from tests.engine.builders import send_heartbeat


class Crashing(InProcessIsolation):
    """The child process crashes on `b.txt`, as native code does on a bad PDF."""

    async def run_attempt(self, child: None, plan: StepCall, claim: Claim, context: Context | None) -> Outcome:
        if claim.item == "b.txt":
            return build_crash_outcome(plan, claim, Crashed("its child process died by SIGSEGV"), 0.1)
        return await super().run_attempt(child, plan, claim, context)


async def test_a_document_that_crashed_its_process_three_times_is_quarantined_alone(
    classifier_app: ClassifierApp,
) -> None:
    classifier_app.worker._runner.process_pool = Crashing(classifier_app.worker)  # type: ignore[assignment]
    execution = await classifier_app.run_execution(max_retries_documento=9)
    found = await classifier_app.documents(execution)
    assert {code: each["status"] for code, each in found.items()} == {
        "a.txt": "CONCLUIDO",
        "b.txt": "ERRO",
        "c.txt": "CONCLUIDO",
    }
    assert (found["b.txt"]["erro_codigo"], found["b.txt"]["tentativas"]) == ("QUARANTINED", 3)
    assert "died by SIGSEGV" in found["b.txt"]["erro_detalhe"]
    errors = (await classifier_app.api.get(f"/execucoes/{execution}/erros")).json()["erros"]
    assert [each["codigo"] for each in errors] == ["b.txt"]


@pytest.mark.parametrize(("allowed", "attempts", "code"), [(0, 1, "CRASHED"), (2, 3, "QUARANTINED")])
async def test_a_crash_counts_as_an_attempt(
    classifier_app: ClassifierApp, allowed: int, attempts: int, code: str
) -> None:
    classifier_app.worker._runner.process_pool = Crashing(classifier_app.worker)  # type: ignore[assignment]
    execution = await classifier_app.run_execution({"b.txt": TEXTS["b.txt"]}, max_retries_documento=allowed)
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["tentativas"], found["erro_codigo"]) == ("ERRO", attempts, code)


async def test_a_document_that_killed_three_workers_is_quarantined_and_can_be_rerun(
    classifier_app: ClassifierApp,
) -> None:
    execution = await classifier_app.begin(await classifier_app.project(), {"a.txt": TEXTS["a.txt"]})
    await first_steps(classifier_app)
    for _ in range(3):
        async with classifier_app.another_worker() as doomed:
            assert len(await doomed.claim(1)) == 1
            await classifier_app.api.sandbox.clock.advance(HEARTBEAT_TIMEOUT + seconds(1))
            await send_heartbeat(classifier_app.api.sandbox.database, classifier_app.worker.worker)
            await workers.reap_dead_workers(classifier_app.api.sandbox.database, HEARTBEAT_TIMEOUT)
    await classifier_app.work()
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["erro_codigo"], found["tentativas"]) == ("ERRO", "QUARANTINED", 3)
    await classifier_app.post_action(execution, "reprocessar-erros")
    await classifier_app.work()
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
