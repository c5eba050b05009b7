from __future__ import annotations

import asyncio
import pickle
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import minutes
from retoma.identifiers import new_run_id
from retoma_apps.classifier import batches, pipeline
from retoma_apps.classifier.pages.words import Words
from tests.apps.classifier.conftest import OpenOffice
from tests.apps.classifier.office import KEY, SPOILT, TEXTS, Office, a_project, refused

BAD = TEXTS | {"b.txt": f"OFÍCIO {SPOILT}.", "vazio.txt": ""}


async def test_documents_get_labels_of_the_taxonomy_from_openrouter(office: Office) -> None:
    execution = await office.done(modelo="casa/modelo")
    found = await office.documents(execution)
    assert {code: each["rotulo"] for code, each in found.items()} == {
        "a.txt": "sentença",
        "b.txt": "ofício",
        "c.txt": "parecer",
    }
    assert {request["model"] for request in office.standin.requests} == {"casa/modelo"}
    assert (await office.status(execution))["status"] == "CONCLUIDO"
    totals = await office.client.charge_totals(by=("provider", "what"))
    assert [(total.provider, total.what, total.micros) for total in totals] == [
        ("openrouter", "casa/modelo", office.standin.cost)
    ]


async def test_without_a_key_the_projects_examples_are_the_model(open_office: OpenOffice) -> None:
    async with open_office(offline=True) as office:
        execution = await office.done()
        found = await office.documents(execution)
        assert {code: each["rotulo"] for code, each in found.items()} == {
            "a.txt": "sentença",
            "b.txt": "ofício",
            "c.txt": "parecer",
        }
        assert {each["modelo"] for each in found.values()} == {"offline/tf-idf"}
        assert office.standin.requests == []


async def test_without_a_key_and_without_examples_nothing_is_begun(open_office: OpenOffice) -> None:
    async with open_office(offline=True) as office:
        project = await office.project(exemplos=[])
        answer = await office.start(project, await office.send("a.txt", "x"))
        assert "OPENROUTER_API_KEY" in refused(answer, 422, "SEM_EXEMPLOS")
        assert await office.client.runs() == []


async def test_an_execution_is_shown_by_the_names_of_the_seed(office: Office) -> None:
    project = await office.project()
    documents = [each for name, text in TEXTS.items() for each in await office.send(name, text)]
    body = {"projeto": project, "nome": "Lote de março", "documentos": documents}
    answer = await office.api.post("/execucoes", json=body)
    execution = answer.json()["id"]
    assert answer.headers["Location"] == f"/execucoes/{execution}"
    started = {
        "id": execution,
        "projeto": "pecas-processuais",
        "nome": "Lote de março",
        "status": "PENDENTE",
        "rodada": 1,
        "total": 3,
        "processados": 0,
        "contagem": {"PENDENTE": 3, "PROCESSANDO": 0, "CONCLUIDO": 0, "ERRO": 0, "PULADO": 0},
        "criado_em": "2030-01-01T12:00:00+00:00",
        "terminado_em": None,
        "rota": "/classificador/",
    }
    assert (answer.status_code, answer.json()) == (202, started)
    shown = await office.status(execution)
    assert shown.pop("esperando")
    assert shown == started | {
        "ultimo_heartbeat": None,
        "ultimo_codigo_processado": None,
        "tentativas_retry": 0,
        "max_retries": 3,
        "max_retries_documento": 2,
        "erros": [],
        "travamento": None,
    }
    assert (await office.api.get(f"/execucoes/{execution}")).json()["id"] == execution


async def test_what_is_kept_of_an_execution_is_small(office: Office) -> None:
    execution = await office.begin(await office.project(prompt="Classifique. " * 600))
    kept = await batches.execution(office.client, await office.client.show(UUID(execution)))
    assert (kept.total, kept.counts["PENDENTE"]) == (3, 3)
    assert len(pickle.dumps(vars(kept))) < 3_000


async def test_each_processed_document_is_a_heartbeat(office: Office) -> None:
    execution = await office.begin(await office.project())
    await first_steps(office)
    assert (await office.status(execution))["status"] == "PENDENTE"
    texts = await office.hands.claim(3)
    assert (await office.status(execution))["status"] == "EM_ANDAMENTO"
    assert (await office.status(execution))["contagem"]["PROCESSANDO"] == 3
    labels = await office.hands.give_back(await office.hands.attempt(texts), room=3)
    assert (await office.status(execution))["ultimo_heartbeat"] is None
    seen = []
    for claim in sorted(labels, key=lambda each: each.item):
        await office.watch(minutes(1))
        await office.hands.give_back(await office.hands.attempt([claim]))
        shown = await office.status(execution)
        seen.append((shown["ultimo_codigo_processado"], shown["ultimo_heartbeat"], shown["processados"]))
    assert seen == [
        ("a.txt", "2030-01-01T12:01:00+00:00", 1),
        ("b.txt", "2030-01-01T12:02:00+00:00", 2),
        ("c.txt", "2030-01-01T12:03:00+00:00", 3),
    ]


async def test_what_fails_fails_alone_and_says_why(office: Office) -> None:
    execution = await office.done(BAD)
    shown = await office.status(execution)
    assert shown["status"] == "CONCLUIDO_COM_ERROS"
    assert shown["contagem"] == {"PENDENTE": 0, "PROCESSANDO": 0, "CONCLUIDO": 2, "ERRO": 2, "PULADO": 0}
    answer = (await office.api.get(f"/execucoes/{execution}/erros")).json()
    assert answer["total"] == 2
    assert answer["erros"] == [each | {"rever": False} for each in shown["erros"]]
    spoilt, blank = answer["erros"]
    assert (spoilt["codigo"], spoilt["status"], spoilt["tentativas"]) == ("b.txt", "ERRO", 3)
    assert spoilt["erro_codigo"] == "LLM_INVALID_JSON"
    assert "the model's answer is no JSON" in spoilt["erro_detalhe"]
    assert spoilt["erro_mensagem"] == Words("pt").code("LLM_INVALID_JSON")
    assert "labelling.py" in spoilt["erro_stack"]
    assert datetime.fromisoformat(spoilt["ultimo_erro_em"]).utcoffset() is not None
    assert (blank["codigo"], blank["tentativas"], blank["erro_codigo"]) == ("vazio.txt", 1, "FILE_EMPTY")
    assert blank["rotulo"] is None


async def test_an_error_shows_a_tenant_none_of_the_servers_folders(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "read_path", lambda path: Path(path).with_name("gone").read_bytes())
    project = await office.project()
    execution = await office.begin(project, {"a.txt": TEXTS["a.txt"]})
    await office.work()
    key = await office.key(project)
    answer = await office.api.get(f"/execucoes/{execution}/erros", headers={"X-API-Key": key})
    (error,) = answer.json()["erros"]
    assert "[RETOMA_HOME]/files/" in error["erro_detalhe"]
    assert "[RETOMA_HOME]/files/" in error["erro_stack"].splitlines()[-1]
    assert 'File "retoma_apps/' in error["erro_stack"]
    folders = {str(tmp_path), str(Path(batches.__file__).parents[2]), sys.prefix}
    assert [folder for folder in folders if folder in answer.text] == []


async def test_documents_are_listed_page_by_page_by_status_and_by_a_part_of_their_code(office: Office) -> None:
    execution = await office.done({"0.txt": "", "1.txt": "OFÍCIO 1", "2.txt": "OFÍCIO 1", "x.txt": "OFÍCIO"})
    first = (await office.api.get(f"/execucoes/{execution}/documentos", params={"limite": 3})).json()
    assert [each["codigo"] for each in first["documentos"]] == ["0.txt", "1.txt", "2.txt"]
    rest = await office.documents(execution, apos=first["proximo"])
    assert list(rest) == ["x.txt"]
    assert list(await office.documents(execution, status="ERRO")) == ["0.txt"]
    assert list(await office.documents(execution, busca="X.T")) == ["x.txt"]
    assert list(await office.documents(execution, status="PULADO")) == ["2.txt"]


async def test_a_document_with_the_content_of_another_is_left_out(office: Office) -> None:
    execution = await office.done({"a.txt": TEXTS["a.txt"], "cópia.txt": TEXTS["a.txt"]})
    copy = (await office.documents(execution))["cópia.txt"]
    assert (copy["status"], copy["duplicado_de"], copy["tentativas"]) == ("PULADO", "a.txt", 0)
    assert office.asked_about("Julgo") == 1
    assert (await office.status(execution))["status"] == "CONCLUIDO"


async def test_the_same_key_and_body_give_the_same_execution(office: Office) -> None:
    project = await office.project()
    documents = await office.send("a.txt", TEXTS["a.txt"])
    headers = {"Idempotency-Key": "lote-1"}
    answers = await asyncio.gather(*(office.start(project, documents, headers=headers) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == len(await office.client.runs()) == 1
    other = await office.start(project, await office.send("b.txt", TEXTS["b.txt"]), headers=headers)
    refused(other, 422, "IDEMPOTENCY_KEY_REUSED")


async def test_the_same_key_is_another_request_once_the_project_has_changed(office: Office) -> None:
    project = await office.project()
    documents = await office.send("a.txt", TEXTS["a.txt"])
    headers = {"Idempotency-Key": "lote-1"}
    assert (await office.start(project, documents, headers=headers)).status_code == 202
    assert (await office.api.call("PUT", f"/projetos/{project}", json=a_project(prompt="Outro."))).status_code == 200
    refused(await office.start(project, documents, headers=headers), 422, "IDEMPOTENCY_KEY_REUSED")


async def test_more_documents_than_the_limit_are_refused_with_its_number(office: Office) -> None:
    project = await office.project()
    (document,) = await office.send("a.txt", "x")
    answer = await office.start(project, [document] * 2_001)
    assert "1 to 2,000 documents; given: 2,001" in refused(answer, 422, "INVALID_INPUT")
    refused(await office.start(project, []), 422, "INVALID_REQUEST")
    assert await office.client.runs() == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"arquivo": {"file": "0" * 64, "size": 1}}, "INVALID_INPUT"),
        ({}, "INVALID_INPUT"),
        ({"arquivo": {"file": "../../etc/passwd"}}, "INVALID_REQUEST"),
        ({"recusa": {"codigo": "MADE_UP", "mensagem": "x"}}, "INVALID_REQUEST"),
    ],
    ids=["a file that was never sent", "neither file nor refusal", "a path", "a code that is none"],
)
async def test_only_what_was_sent_before_is_classified(office: Office, wrong: dict[str, Any], code: str) -> None:
    refused(await office.start(await office.project(), [{"nome": "a.txt", **wrong}]), 422, code)
    assert await office.client.runs() == []


async def test_a_file_cannot_be_named_with_a_size_that_it_has_not(office: Office) -> None:
    (document,) = await office.send("a.txt", "abc")
    document["arquivo"]["size"] = 4
    answer = await office.start(await office.project(), [document])
    assert "send it first" in refused(answer, 422, "INVALID_INPUT")


async def test_executions_are_listed_newest_first_and_by_status(office: Office) -> None:
    first, second, third = await office.done(), await office.done(BAD), await office.begin("pecas-processuais")

    async def listed(**query: Any) -> list[str]:
        return [each["id"] for each in (await office.api.get("/execucoes", params=query)).json()["execucoes"]]

    assert await listed() == [third, second, first]
    assert await listed(status="CONCLUIDO") == [first]
    assert await listed(status="CONCLUIDO_COM_ERROS") == [second]
    assert await listed(status="PENDENTE") == [third]
    assert await listed(status="EM_ANDAMENTO") == []
    assert await listed(projeto="nenhum") == []
    page = (await office.api.get("/execucoes", params={"limite": 2})).json()
    assert page["proximo"] == second
    assert await listed(antes=second) == [first]


async def test_a_cancelled_execution_begins_no_further_document(office: Office) -> None:
    execution = await office.begin(await office.project())
    await first_steps(office)
    held = await office.hands.claim(1)
    answer = await office.act(execution, "cancelar")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELADO")
    await office.hands.give_back(await office.hands.attempt(held))
    await office.work()
    assert office.standin.requests == []
    shown = await office.status(execution)
    assert (shown["status"], shown["contagem"]["PENDENTE"], shown["ultimo_codigo_processado"]) == ("CANCELADO", 3, None)
    for act in ("retomar", "reprocessar-erros"):
        refused(await office.act(execution, act), 409, "AT_WORK")


async def test_an_execution_that_is_not_there_is_told_so_everywhere(office: Office) -> None:
    for execution in (str(new_run_id()), "00000000-0000-0000-0000-000000000000"):
        for path in ("", "/status-detalhado", "/erros", "/documentos", "/resultados", "/exportar", "/arquivo?codigo=a"):
            assert "there is no" in refused(await office.api.get(f"/execucoes/{execution}{path}"), 404, "NOT_FOUND")
        for act in ("retomar", "reprocessar-erros", "cancelar"):
            assert "there is no" in refused(await office.act(execution, act), 404, "NOT_FOUND")
        correction = {"codigo": "a", "rotulo": "b"}
        refused(await office.act(execution, "correcoes", json=correction), 404, "NOT_FOUND")
        refused(await office.act(execution, "pular", json={"codigos": ["a"]}), 404, "NOT_FOUND")
    refused(await office.api.get("/execucoes/nenhuma/erros"), 422, "INVALID_REQUEST")


async def test_the_progress_of_an_execution_is_in_no_file(office: Office, tmp_path: Path) -> None:
    execution = await office.done(BAD)
    before = await office.status(execution), await office.documents(execution)
    shutil.rmtree(tmp_path)
    assert (await office.status(execution), await office.documents(execution)) == before


async def test_a_code_may_be_long(office: Office) -> None:
    code = f"pasta/{'ação ' * 20}ofício.txt"
    execution = await office.done({code: "OFÍCIO"})
    assert len(code) > 100
    assert (await office.status(execution))["ultimo_codigo_processado"] == code


async def test_no_answer_holds_the_providers_key(office: Office) -> None:
    office.standin._key = f"another {KEY}"
    execution = await office.begin(await office.project())
    await office.work(until_later=False)
    shown = await office.status(execution)
    assert shown["status"] == "EM_ANDAMENTO"
    assert "refuses us: mend the key" in shown["esperando"][0]
    for path in ("status-detalhado", "documentos", "erros"):
        assert "CANARY" not in (await office.api.get(f"/execucoes/{execution}/{path}")).text


async def first_steps(office: Office) -> None:
    """The documents are laid out, and none has begun."""
    await office.hands.give_back(await office.hands.attempt(await office.hands.claim(2)))
