from __future__ import annotations

import asyncio

import pytest

from retoma import minutes, seconds
from retoma.outgoing import Guard
from retoma.settings import SILENCE
from retoma.store import workers
from tests.apps.classifier.office import SPOILT, Office
from tests.apps.classifier.test_executions import first_steps
from tests.receiver import receiver
from tests.server.test_live import watching


async def held(office: Office, webhook_url: str | None = None, **changed: int) -> str:
    """An execution of three with `a.txt` done, and the others held by a worker that lives."""
    also = {} if webhook_url is None else {"webhook_url": webhook_url}
    execution = await office.begin(await office.project(**changed), also=also)
    await first_steps(office)
    claims = await office.hands.claim(100)
    (first,) = (claim for claim in claims if claim.item == "a.txt")
    await office.hands.give_back(await office.hands.attempt([first]))
    (then,) = await office.hands.claim(100)
    await office.hands.give_back(await office.hands.attempt([then]))
    return execution


async def hold(office: Office) -> None:
    assert len(await office.hands.claim(100)) == 2


async def test_five_minutes_without_progress_make_an_execution_stuck_and_say_why(office: Office) -> None:
    execution = await held(office)
    await office.watch(minutes(5) - seconds(1))
    assert (await office.status(execution))["status"] == "EM_ANDAMENTO"
    await office.watch(seconds(1))
    shown = await office.status(execution)
    assert (shown["status"], shown["ultimo_codigo_processado"]) == ("TRAVADO", "a.txt")
    stuck = shown["travamento"]
    assert (stuck["causa"], stuck["desde"]) == ("no_progress", "2030-01-01T12:05:00+00:00")
    assert stuck["detalhes"]["last_item"] == "a.txt"
    assert (
        stuck["motivo"]
        == "no document was done with for longer than it may take: text of b.txt goes on beyond its time"
    )
    assert [each["id"] for each in (await office.api.get("/execucoes?status=TRAVADO")).json()["execucoes"]] == [
        execution
    ]


async def test_a_webhook_tells_of_an_execution_that_is_stuck_and_of_its_end(office: Office) -> None:
    async with receiver() as there:
        execution = await held(office, there.url)
        await office.watch(minutes(5))
        shown = await office.status(execution)
        await office.api.sandbox.send_webhooks()
        await office.watch(seconds(5))
        await office.work()
        await office.api.sandbox.send_webhooks()
        ended = await office.status(execution)
    stuck, end = [got.json for got in there.got]
    assert (stuck["evento"], stuck["id"], stuck["status"]) == ("run.stuck", execution, "TRAVADO")
    assert stuck["travamento"] == shown["travamento"]
    assert (end["evento"], end["status"], end["contagem"]) == ("run.completed", "CONCLUIDO", ended["contagem"])
    assert set(stuck) == set(end) == {*shown} & {*end} | {"evento", "travamento"}


async def test_a_webhook_of_an_execution_reaches_no_private_address(office: Office) -> None:
    office.api.client.guard = Guard()
    also = {"webhook_url": "http://169.254.169.254/latest"}
    answer = await office.start(await office.project(), await office.send("a.txt", "Julgo."), also=also)
    assert (answer.status_code, answer.json()["code"]) == (422, "UNSAFE_URL")
    assert (await office.api.get("/execucoes")).json()["execucoes"] == []


async def test_it_resumes_by_itself_after_5_10_and_20_seconds_and_then_ends_in_error(office: Office) -> None:
    execution = await held(office)
    await office.watch(minutes(5))
    for number, pause in enumerate((5, 10, 20), 1):
        await office.watch(seconds(pause - 0.1))
        assert (await office.status(execution))["status"] == "TRAVADO"
        await office.watch(seconds(0.1))
        shown = await office.status(execution)
        assert (shown["status"], shown["tentativas_retry"]) == ("EM_ANDAMENTO", number)
        await hold(office)
        await office.watch(minutes(5))
        assert (await office.status(execution))["status"] == "TRAVADO"
    await office.watch(minutes(1))
    shown = await office.status(execution)
    assert (shown["status"], shown["tentativas_retry"], shown["max_retries"]) == ("ERRO", 3, 3)
    assert (await office.kinds(execution)).count("stuck") == 4

    answer = await office.act(execution, "retomar")
    assert (answer.status_code, answer.json()["status"]) == (200, "EM_ANDAMENTO")
    await office.work()
    assert (await office.status(execution))["status"] == "CONCLUIDO"
    assert office.asked_about("Julgo") == 1


async def test_the_project_says_how_often_an_execution_resumes(office: Office) -> None:
    execution = await held(office, max_retries_execucao=0)
    await office.watch(minutes(5))
    await office.watch(minutes(1))
    shown = await office.status(execution)
    assert (shown["status"], shown["max_retries"]) == ("ERRO", 0)
    assert (shown["travamento"]["causa"], shown["contagem"]["PULADO"]) == ("no_progress", 0)
    left = shown["contagem"]["PENDENTE"]

    key = {"headers": {"Idempotency-Key": "k"}}
    answer = await office.act(execution, "reprocessar-erros", **key)  # goes on with all that its end kept from running
    assert (answer.status_code, answer.json()["documentos"]) == (200, left)
    assert (await office.act(execution, "reprocessar-erros", **key)).json() == answer.json()
    await office.work()
    assert (await office.act(execution, "reprocessar-erros", **key)).json() == answer.json()
    assert (await office.status(execution))["status"] == "CONCLUIDO"


async def test_progress_gives_back_the_full_number_of_resumes(office: Office) -> None:
    execution = await held(office)
    await office.watch(minutes(5))
    await office.watch(seconds(5))
    assert (await office.status(execution))["tentativas_retry"] == 1
    first, _ = await office.hands.claim(100)
    await office.hands.give_back(await office.hands.attempt([first]))
    (then,) = await office.hands.claim(100)
    await office.hands.give_back(await office.hands.attempt([then]))
    await office.watch(minutes(5))
    shown = await office.status(execution)
    assert (shown["status"], shown["tentativas_retry"]) == ("TRAVADO", 0)


async def test_a_slow_execution_that_advances_is_never_stuck(office: Office) -> None:
    execution = await office.begin(await office.project())
    await first_steps(office)
    for _ in range(6):
        (claim,) = await office.hands.claim(1)
        await office.watch(minutes(4.9))
        assert (await office.status(execution))["status"] == "EM_ANDAMENTO"
        await office.hands.give_back(await office.hands.attempt([claim]))
    assert "stuck" not in await office.kinds(execution)


async def test_a_slow_document_with_all_its_retries_is_never_stuck(office: Office) -> None:
    execution = await office.begin(await office.project(), {"a.txt": f"OFÍCIO {SPOILT}"})
    await first_steps(office)
    await office.hands.give_back(await office.hands.attempt(await office.hands.claim(1)))
    for _ in range(3):
        (claim,) = await office.hands.claim(1)
        await office.watch(minutes(2))
        assert (await office.status(execution))["status"] == "EM_ANDAMENTO"
        await office.hands.give_back(await office.hands.attempt([claim]))
        await office.watch(seconds(11))
        await workers.promote(office.api.sandbox.database, limit=1)
    assert (await office.documents(execution))["a.txt"]["status"] == "ERRO"
    assert "stuck" not in await office.kinds(execution)


async def test_fifty_people_resume_it_once_and_get_the_same_answer(office: Office) -> None:
    execution = await held(office)
    await office.watch(minutes(5))
    answers = await asyncio.gather(*(office.act(execution, "retomar") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert answers[0].json()["status"] == "EM_ANDAMENTO"
    assert (await office.kinds(execution)).count("resume") == 1


async def test_the_worker_from_before_the_resume_changes_nothing_any_more(office: Office) -> None:
    execution = await office.begin(await office.project())
    await first_steps(office)
    late = await office.hands.attempt(await office.hands.claim(3))
    await office.watch(minutes(5))
    await office.act(execution, "retomar")
    await office.hands.give_back(late)
    assert office.hands.refused == 3
    await office.work()
    assert (await office.status(execution))["status"] == "CONCLUIDO"


async def test_who_resumes_what_goes_on_or_has_ended_well_changes_nothing(office: Office) -> None:
    execution = await office.begin(await office.project())
    for expected in ("PENDENTE", "CONCLUIDO", "CONCLUIDO"):
        answer = await office.act(execution, "retomar")
        assert (answer.status_code, answer.json()["status"]) == (200, expected)
        await office.work()
    assert "resume" not in await office.kinds(execution)


async def test_a_document_left_by_a_dead_worker_is_taken_again(office: Office) -> None:
    execution = await office.begin(await office.project())
    await first_steps(office)
    await office.hands.claim(3)
    async with office.another_worker() as others:
        await office.api.sandbox.clock.advance(SILENCE + seconds(1))
        await workers.beat(office.api.sandbox.database, others.worker)
        await workers.sweep(office.api.sandbox.database, SILENCE)
        await office.api.sandbox._work(others, until_later=True)
    shown = await office.status(execution)
    assert (shown["status"], shown["contagem"]["CONCLUIDO"]) == ("CONCLUIDO", 3)
    assert {each["tentativas"] for each in (await office.documents(execution)).values()} == {2}


async def test_what_remains_is_found_from_the_documents_whichever_was_the_last(office: Office) -> None:
    execution = await office.begin(await office.project())
    await first_steps(office)
    claims = await office.hands.claim(100)
    (last,) = (claim for claim in claims if claim.item == "c.txt")
    await office.hands.give_back(await office.hands.attempt([last]))
    await office.hands.give_back(await office.hands.attempt(await office.hands.claim(100)))
    await office.watch(minutes(5))
    assert (await office.status(execution))["ultimo_codigo_processado"] == "c.txt"
    await office.act(execution, "retomar")
    await office.work()
    assert [each["tentativas"] for each in (await office.documents(execution)).values()] == [2, 2, 1]
    assert len(office.standin.requests) == 3


@pytest.mark.parametrize(("act", "status"), [("", "CONCLUIDO"), ("cancelar", "CANCELADO")])
async def test_an_execution_that_is_over_is_not_watched(office: Office, act: str, status: str) -> None:
    execution = await office.begin(await office.project())
    if act:
        await office.act(execution, act)
    await office.work()
    await office.watch(minutes(60))
    assert (await office.status(execution))["status"] == status
    assert "stuck" not in await office.kinds(execution)


async def test_that_a_browser_leaves_changes_nothing(office: Office) -> None:
    execution = await office.begin(await office.project())
    async with watching(office.api, f"/api/v1/runs/{execution}/live"):
        await first_steps(office)
    await office.work()
    assert (await office.status(execution))["status"] == "CONCLUIDO"
    assert {each["tentativas"] for each in (await office.documents(execution)).values()} == {1}
