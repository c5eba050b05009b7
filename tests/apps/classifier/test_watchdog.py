from __future__ import annotations

import asyncio

import pytest

from retoma import minutes, seconds
from retoma.outgoing import Guard
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.store import workers
from tests.apps.classifier.classifier_app import SPOILT, ClassifierApp
from tests.apps.classifier.test_executions import first_steps
from tests.engine.builders import send_heartbeat
from tests.receiver import receiver
from tests.server.test_live import open_watchers


async def begin_held_execution(classifier_app: ClassifierApp, webhook_url: str | None = None, **changed: int) -> str:
    """Start an execution of three documents: `a.txt` is done, and a live worker holds the others."""
    also = {} if webhook_url is None else {"webhook_url": webhook_url}
    execution = await classifier_app.begin(await classifier_app.project(**changed), also=also)
    await first_steps(classifier_app)
    claims = await classifier_app.worker.claim(100)
    (first,) = (claim for claim in claims if claim.item == "a.txt")
    await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([first]))
    (then,) = await classifier_app.worker.claim(100)
    await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([then]))
    return execution


async def claim_documents(classifier_app: ClassifierApp) -> None:
    assert len(await classifier_app.worker.claim(100)) == 2


async def test_an_execution_without_progress_for_five_minutes_is_stuck_and_reports_why(
    classifier_app: ClassifierApp,
) -> None:
    execution = await begin_held_execution(classifier_app)
    await classifier_app.run_watchdog(minutes(5) - seconds(1))
    assert (await classifier_app.status(execution))["status"] == "EM_ANDAMENTO"
    await classifier_app.run_watchdog(seconds(1))
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["ultimo_codigo_processado"]) == ("TRAVADO", "a.txt")
    stuck = shown["travamento"]
    assert (stuck["causa"], stuck["desde"]) == ("no_progress", "2030-01-01T12:05:00+00:00")
    assert stuck["detalhes"]["last_item"] == "a.txt"
    assert stuck["motivo"] == "no document has finished within the time limit: text of b.txt is running past its limit"
    assert [each["id"] for each in (await classifier_app.api.get("/execucoes?status=TRAVADO")).json()["execucoes"]] == [
        execution
    ]


async def test_a_webhook_reports_a_stuck_execution_and_its_end(classifier_app: ClassifierApp) -> None:
    async with receiver() as listener:
        execution = await begin_held_execution(classifier_app, listener.url)
        await classifier_app.run_watchdog(minutes(5))
        shown = await classifier_app.status(execution)
        await classifier_app.api.sandbox.send_webhooks()
        await classifier_app.run_watchdog(seconds(5))
        await classifier_app.work()
        await classifier_app.api.sandbox.send_webhooks()
        ended = await classifier_app.status(execution)
    stuck, end = [got.json for got in listener.requests]
    assert (stuck["evento"], stuck["id"], stuck["status"]) == ("run.stuck", execution, "TRAVADO")
    assert stuck["travamento"] == shown["travamento"]
    assert (end["evento"], end["status"], end["contagem"]) == ("run.completed", "CONCLUIDO", ended["contagem"])
    assert set(stuck) == set(end) == {*shown} & {*end} | {"evento", "travamento"}


async def test_a_webhook_of_an_execution_cannot_reach_a_private_address(classifier_app: ClassifierApp) -> None:
    classifier_app.api.client._core.guard = Guard()
    also = {"webhook_url": "http://169.254.169.254/latest"}
    answer = await classifier_app.start(
        await classifier_app.project(), await classifier_app.send("a.txt", "Julgo."), also=also
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "UNSAFE_URL")
    assert (await classifier_app.api.get("/execucoes")).json()["execucoes"] == []


async def test_an_execution_resumes_automatically_after_5_10_and_20_seconds_and_then_fails(
    classifier_app: ClassifierApp,
) -> None:
    execution = await begin_held_execution(classifier_app)
    await classifier_app.run_watchdog(minutes(5))
    for number, pause in enumerate((5, 10, 20), 1):
        await classifier_app.run_watchdog(seconds(pause - 0.1))
        assert (await classifier_app.status(execution))["status"] == "TRAVADO"
        await classifier_app.run_watchdog(seconds(0.1))
        shown = await classifier_app.status(execution)
        assert (shown["status"], shown["tentativas_retry"]) == ("EM_ANDAMENTO", number)
        await claim_documents(classifier_app)
        await classifier_app.run_watchdog(minutes(5))
        assert (await classifier_app.status(execution))["status"] == "TRAVADO"
    await classifier_app.run_watchdog(minutes(1))
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["tentativas_retry"], shown["max_retries"]) == ("ERRO", 3, 3)
    assert (await classifier_app.get_event_kinds(execution)).count("stuck") == 4

    answer = await classifier_app.post_action(execution, "retomar")
    assert (answer.status_code, answer.json()["status"]) == (200, "EM_ANDAMENTO")
    await classifier_app.work()
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
    assert classifier_app.count_calls_about("Julgo") == 1


async def test_the_project_sets_how_often_an_execution_resumes(classifier_app: ClassifierApp) -> None:
    execution = await begin_held_execution(classifier_app, max_retries_execucao=0)
    await classifier_app.run_watchdog(minutes(5))
    await classifier_app.run_watchdog(minutes(1))
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["max_retries"]) == ("ERRO", 0)
    assert (shown["travamento"]["causa"], shown["contagem"]["PULADO"]) == ("no_progress", 0)
    left = shown["contagem"]["PENDENTE"]

    key = {"headers": {"Idempotency-Key": "k"}}
    answer = await classifier_app.post_action(
        execution, "reprocessar-erros", **key
    )  # resumes all jobs that its failure stopped
    assert (answer.status_code, answer.json()["documentos"]) == (200, left)
    assert (await classifier_app.post_action(execution, "reprocessar-erros", **key)).json() == answer.json()
    await classifier_app.work()
    assert (await classifier_app.post_action(execution, "reprocessar-erros", **key)).json() == answer.json()
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"


async def test_progress_restores_the_full_number_of_resumes(classifier_app: ClassifierApp) -> None:
    execution = await begin_held_execution(classifier_app)
    await classifier_app.run_watchdog(minutes(5))
    await classifier_app.run_watchdog(seconds(5))
    assert (await classifier_app.status(execution))["tentativas_retry"] == 1
    first, _ = await classifier_app.worker.claim(100)
    await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([first]))
    (then,) = await classifier_app.worker.claim(100)
    await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([then]))
    await classifier_app.run_watchdog(minutes(5))
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["tentativas_retry"]) == ("TRAVADO", 0)


async def test_a_slow_execution_that_makes_progress_is_never_stuck(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    await first_steps(classifier_app)
    for _ in range(6):
        (claim,) = await classifier_app.worker.claim(1)
        await classifier_app.run_watchdog(minutes(4.9))
        assert (await classifier_app.status(execution))["status"] == "EM_ANDAMENTO"
        await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([claim]))
    assert "stuck" not in await classifier_app.get_event_kinds(execution)


async def test_a_slow_document_with_all_its_retries_is_never_stuck(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project(), {"a.txt": f"OFÍCIO {SPOILT}"})
    await first_steps(classifier_app)
    await classifier_app.worker.record_outcomes(
        await classifier_app.worker.attempt(await classifier_app.worker.claim(1))
    )
    for _ in range(3):
        (claim,) = await classifier_app.worker.claim(1)
        await classifier_app.run_watchdog(minutes(2))
        assert (await classifier_app.status(execution))["status"] == "EM_ANDAMENTO"
        await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([claim]))
        await classifier_app.run_watchdog(seconds(11))
        await workers.release_due_jobs(classifier_app.api.sandbox.database, limit=1)
    assert (await classifier_app.documents(execution))["a.txt"]["status"] == "ERRO"
    assert "stuck" not in await classifier_app.get_event_kinds(execution)


async def test_fifty_concurrent_resumes_have_one_effect_and_get_the_same_answer(classifier_app: ClassifierApp) -> None:
    execution = await begin_held_execution(classifier_app)
    await classifier_app.run_watchdog(minutes(5))
    answers = await asyncio.gather(*(classifier_app.post_action(execution, "retomar") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["status"] == "EM_ANDAMENTO"
    assert (await classifier_app.get_event_kinds(execution)).count("resume") == 1


async def test_a_worker_from_before_the_resume_cannot_change_anything(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    await first_steps(classifier_app)
    late = await classifier_app.worker.attempt(await classifier_app.worker.claim(3))
    await classifier_app.run_watchdog(minutes(5))
    await classifier_app.post_action(execution, "retomar")
    await classifier_app.worker.record_outcomes(late)
    assert classifier_app.worker.rejected_outcomes == 3
    await classifier_app.work()
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"


async def test_resuming_a_running_or_completed_execution_changes_nothing(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    for expected in ("PENDENTE", "CONCLUIDO", "CONCLUIDO"):
        answer = await classifier_app.post_action(execution, "retomar")
        assert (answer.status_code, answer.json()["status"]) == (200, expected)
        await classifier_app.work()
    assert "resume" not in await classifier_app.get_event_kinds(execution)


async def test_a_document_of_a_dead_worker_is_claimed_again(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    await first_steps(classifier_app)
    await classifier_app.worker.claim(3)
    async with classifier_app.another_worker() as others:
        await classifier_app.api.sandbox.clock.advance(HEARTBEAT_TIMEOUT + seconds(1))
        await send_heartbeat(classifier_app.api.sandbox.database, others.worker)
        await workers.reap_dead_workers(classifier_app.api.sandbox.database, HEARTBEAT_TIMEOUT)
        await classifier_app.api.sandbox._work_until_idle(others, advance_clock=True)
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 3)
    assert {each["tentativas"] for each in (await classifier_app.documents(execution)).values()} == {2}


async def test_the_remaining_work_is_computed_from_the_documents(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    await first_steps(classifier_app)
    claims = await classifier_app.worker.claim(100)
    (last,) = (claim for claim in claims if claim.item == "c.txt")
    await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([last]))
    await classifier_app.worker.record_outcomes(
        await classifier_app.worker.attempt(await classifier_app.worker.claim(100))
    )
    await classifier_app.run_watchdog(minutes(5))
    assert (await classifier_app.status(execution))["ultimo_codigo_processado"] == "c.txt"
    await classifier_app.post_action(execution, "retomar")
    await classifier_app.work()
    assert [each["tentativas"] for each in (await classifier_app.documents(execution)).values()] == [2, 2, 1]
    assert len(classifier_app.standin.requests) == 3


@pytest.mark.parametrize(("act", "status"), [("", "CONCLUIDO"), ("cancelar", "CANCELADO")])
async def test_the_watchdog_ignores_ended_executions(classifier_app: ClassifierApp, act: str, status: str) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    if act:
        await classifier_app.post_action(execution, act)
    await classifier_app.work()
    await classifier_app.run_watchdog(minutes(60))
    assert (await classifier_app.status(execution))["status"] == status
    assert "stuck" not in await classifier_app.get_event_kinds(execution)


async def test_closing_the_browser_changes_nothing(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    async with open_watchers(classifier_app.api, f"/api/v1/runs/{execution}/live"):
        await first_steps(classifier_app)
    await classifier_app.work()
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
    assert {each["tentativas"] for each in (await classifier_app.documents(execution)).values()} == {1}
