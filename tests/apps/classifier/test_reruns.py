from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.apps.classifier.classifier_app import ClassifierApp, check_refusal
from tests.apps.classifier.test_executions import BAD


async def test_only_failed_documents_rerun_with_all_their_attempts(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(BAD)
    before, requested = await classifier_app.documents(execution), len(classifier_app.standin.requests)
    answer = await classifier_app.post_action(execution, "reprocessar-erros")
    assert (answer.status_code, answer.json()["documentos"], answer.json()["rodada"]) == (200, 2, 2)
    await classifier_app.work()
    after = await classifier_app.documents(execution)
    assert after["b.txt"]["tentativas"] == 3
    assert {code: after[code] for code in ("a.txt", "c.txt")} == {code: before[code] for code in ("a.txt", "c.txt")}
    assert len(classifier_app.standin.requests) == requested + 3 * 2

    classifier_app.fix_model()
    await classifier_app.post_action(execution, "reprocessar-erros")
    await classifier_app.work()
    found = await classifier_app.documents(execution)
    assert (found["b.txt"]["status"], found["b.txt"]["tentativas"], found["b.txt"]["rotulo"]) == (
        "CONCLUIDO",
        1,
        "ofício",
    )
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO_COM_ERROS"  # the empty one fails
    assert classifier_app.count_calls_about("Julgo") == 1
    summary = (await classifier_app.api.get(f"/execucoes/{execution}/resultados")).json()["resumo"]
    assert summary["rotulos"] == {"sentença": 1, "ofício": 1, "parecer": 1}


async def test_errors_of_a_running_execution_are_not_rerun(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project(), BAD)
    await classifier_app.work(advance_clock=False)
    assert (await classifier_app.status(execution))["contagem"]["ERRO"] == 1
    message = check_refusal(await classifier_app.post_action(execution, "reprocessar-erros"), 409, "RUN_BUSY")
    assert "running" in message
    assert (await classifier_app.status(execution))["rodada"] == 1


async def test_concurrent_reruns_of_errors_create_one_round(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(BAD)
    answers = await asyncio.gather(*(classifier_app.post_action(execution, "reprocessar-erros") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["rodada"] for answer in answers} == {2}


async def test_an_execution_without_errors_stays_unchanged(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution()
    answer = await classifier_app.post_action(execution, "reprocessar-erros")
    assert (answer.status_code, answer.json()["documentos"], answer.json()["status"]) == (200, 0, "CONCLUIDO")


async def test_an_action_keeps_its_time_zone(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution()
    assert datetime.fromisoformat((await classifier_app.status(execution))["terminado_em"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize("documents", [BAD, None], ids=["with errors", "with nothing to do"])
async def test_a_rerun_repeated_with_its_key_gets_its_first_answer(
    classifier_app: ClassifierApp, documents: dict[str, str] | None
) -> None:
    execution = await classifier_app.run_execution(documents) if documents else await classifier_app.run_execution()
    key = {"headers": {"Idempotency-Key": "k"}}
    first = (await classifier_app.post_action(execution, "reprocessar-erros", **key)).json()
    assert (
        await classifier_app.post_action(execution, "reprocessar-erros", **key)
    ).json() == first  # while it is running
    await classifier_app.work()
    assert (await classifier_app.post_action(execution, "reprocessar-erros", **key)).json() == first  # after it changed
    await classifier_app.post_action(execution, "cancelar")
    answer = await classifier_app.post_action(execution, "reprocessar-erros", **key)
    assert (answer.status_code, answer.json()) == (200, first)
    assert (await classifier_app.status(execution))["rodada"] == first["rodada"]
