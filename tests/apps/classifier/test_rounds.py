from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.apps.classifier.office import Office, refused
from tests.apps.classifier.test_executions import BAD


async def test_only_the_documents_in_error_are_made_again_with_all_their_attempts(office: Office) -> None:
    execution = await office.done(BAD)
    before, asked = await office.documents(execution), len(office.standin.requests)
    answer = await office.act(execution, "reprocessar-erros")
    assert (answer.status_code, answer.json()["documentos"], answer.json()["rodada"]) == (200, 2, 2)
    await office.work()
    after = await office.documents(execution)
    assert after["b.txt"]["tentativas"] == 3
    assert {code: after[code] for code in ("a.txt", "c.txt")} == {code: before[code] for code in ("a.txt", "c.txt")}
    assert len(office.standin.requests) == asked + 3 * 2

    office.mend()
    await office.act(execution, "reprocessar-erros")
    await office.work()
    found = await office.documents(execution)
    assert (found["b.txt"]["status"], found["b.txt"]["tentativas"], found["b.txt"]["rotulo"]) == (
        "CONCLUIDO",
        1,
        "ofício",
    )
    assert (await office.status(execution))["status"] == "CONCLUIDO_COM_ERROS"  # the empty one
    assert office.asked_about("Julgo") == 1
    summary = (await office.api.get(f"/execucoes/{execution}/resultados")).json()["resumo"]
    assert summary["rotulos"] == {"sentença": 1, "ofício": 1, "parecer": 1}


async def test_errors_of_an_execution_at_work_are_not_made_again(office: Office) -> None:
    execution = await office.begin(await office.project(), BAD)
    await office.work(until_later=False)
    assert (await office.status(execution))["contagem"]["ERRO"] == 1
    said = refused(await office.act(execution, "reprocessar-erros"), 409, "AT_WORK")
    assert "running" in said
    assert (await office.status(execution))["rodada"] == 1


async def test_many_who_ask_for_the_errors_again_get_one_round(office: Office) -> None:
    execution = await office.done(BAD)
    answers = await asyncio.gather(*(office.act(execution, "reprocessar-erros") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["rodada"] for answer in answers} == {2}


async def test_an_execution_without_errors_stays_as_it_is(office: Office) -> None:
    execution = await office.done()
    answer = await office.act(execution, "reprocessar-erros")
    assert (answer.status_code, answer.json()["documentos"], answer.json()["status"]) == (200, 0, "CONCLUIDO")


async def test_an_act_keeps_its_time_zone(office: Office) -> None:
    execution = await office.done()
    assert datetime.fromisoformat((await office.status(execution))["terminado_em"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize("documents", [BAD, None], ids=["with errors", "with nothing to do"])
async def test_a_round_repeated_with_its_key_gets_its_first_answer(
    office: Office, documents: dict[str, str] | None
) -> None:
    execution = await office.done(documents) if documents else await office.done()
    key = {"headers": {"Idempotency-Key": "k"}}
    first = (await office.act(execution, "reprocessar-erros", **key)).json()
    assert (await office.act(execution, "reprocessar-erros", **key)).json() == first  # while it is under way
    await office.work()
    assert (await office.act(execution, "reprocessar-erros", **key)).json() == first  # after it changed
    await office.act(execution, "cancelar")
    answer = await office.act(execution, "reprocessar-erros", **key)
    assert (answer.status_code, answer.json()) == (200, first)
    assert (await office.status(execution))["rodada"] == first["rodada"]
