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
from retoma_apps.classifier import pipeline
from retoma_apps.classifier.operations import executions
from retoma_apps.classifier.pages.messages import create_translator, describe_error_code
from retoma_apps.providers.llm.openrouter import OpenRouter
from tests.apps.classifier.classifier_app import KEY, SPOILT, TEXTS, ClassifierApp, check_refusal, make_project
from tests.apps.classifier.conftest import OpenClassifierApp

BAD = TEXTS | {"b.txt": f"OFÍCIO {SPOILT}.", "vazio.txt": ""}


async def test_documents_get_taxonomy_labels_from_openrouter(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(modelo="casa/modelo")
    found = await classifier_app.documents(execution)
    assert {code: each["rotulo"] for code, each in found.items()} == {
        "a.txt": "sentença",
        "b.txt": "ofício",
        "c.txt": "parecer",
    }
    assert {request["model"] for request in classifier_app.standin.requests} == {"casa/modelo"}
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"
    totals = await classifier_app.client.costs.get_totals(by=("provider", "resource"))
    assert [(total.provider, total.resource, total.micros) for total in totals] == [
        ("openrouter", "casa/modelo", classifier_app.standin.cost)
    ]


class SecondProvider(OpenRouter):
    name = "second"


async def test_charges_carry_the_name_of_the_provider_that_answered(open_classifier_app: OpenClassifierApp) -> None:
    async with open_classifier_app(provider=SecondProvider) as classifier_app:
        await classifier_app.run_execution(modelo="casa/modelo")
        totals = await classifier_app.client.costs.get_totals(by=("provider", "resource"))
    assert [(total.provider, total.resource) for total in totals] == [("second", "casa/modelo")]


async def test_without_a_key_the_model_is_trained_on_the_projects_examples(
    open_classifier_app: OpenClassifierApp,
) -> None:
    async with open_classifier_app(offline=True) as classifier_app:
        execution = await classifier_app.run_execution()
        found = await classifier_app.documents(execution)
        assert {code: each["rotulo"] for code, each in found.items()} == {
            "a.txt": "sentença",
            "b.txt": "ofício",
            "c.txt": "parecer",
        }
        assert {each["modelo"] for each in found.values()} == {"offline/tf-idf"}
        assert classifier_app.standin.requests == []


async def test_without_a_key_and_without_examples_nothing_starts(open_classifier_app: OpenClassifierApp) -> None:
    async with open_classifier_app(offline=True) as classifier_app:
        project = await classifier_app.project(exemplos=[])
        answer = await classifier_app.start(project, await classifier_app.send("a.txt", "x"))
        assert "OPENROUTER_API_KEY" in check_refusal(answer, 422, "NO_EXAMPLES")
        assert await classifier_app.client.runs.list() == []


async def test_an_execution_has_the_field_names_of_the_specification(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    documents = [each for name, text in TEXTS.items() for each in await classifier_app.send(name, text)]
    body = {"projeto": project, "nome": "Lote de março", "documentos": documents}
    answer = await classifier_app.api.post("/execucoes", json=body)
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
    shown = await classifier_app.status(execution)
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
    assert (await classifier_app.api.get(f"/execucoes/{execution}")).json()["id"] == execution


async def test_the_stored_data_of_an_execution_is_small(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project(prompt="Classifique. " * 600))
    kept = await executions.get_execution(classifier_app.client, await classifier_app.client.runs.get(UUID(execution)))
    assert (kept.total, kept.counts["PENDENTE"]) == (3, 3)
    assert len(pickle.dumps(vars(kept))) < 3_000


async def test_each_processed_document_is_a_heartbeat(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    await first_steps(classifier_app)
    assert (await classifier_app.status(execution))["status"] == "PENDENTE"
    texts = await classifier_app.worker.claim(3)
    assert (await classifier_app.status(execution))["status"] == "EM_ANDAMENTO"
    assert (await classifier_app.status(execution))["contagem"]["PROCESSANDO"] == 3
    labels = await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt(texts), limit=3)
    assert (await classifier_app.status(execution))["ultimo_heartbeat"] is None
    seen = []
    for claim in sorted(labels, key=lambda each: each.item):
        await classifier_app.run_watchdog(minutes(1))
        await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt([claim]))
        shown = await classifier_app.status(execution)
        seen.append((shown["ultimo_codigo_processado"], shown["ultimo_heartbeat"], shown["processados"]))
    assert seen == [
        ("a.txt", "2030-01-01T12:01:00+00:00", 1),
        ("b.txt", "2030-01-01T12:02:00+00:00", 2),
        ("c.txt", "2030-01-01T12:03:00+00:00", 3),
    ]


async def test_a_failing_document_fails_alone_and_reports_why(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(BAD)
    shown = await classifier_app.status(execution)
    assert shown["status"] == "CONCLUIDO_COM_ERROS"
    assert shown["contagem"] == {"PENDENTE": 0, "PROCESSANDO": 0, "CONCLUIDO": 2, "ERRO": 2, "PULADO": 0}
    answer = (await classifier_app.api.get(f"/execucoes/{execution}/erros")).json()
    assert answer["total"] == 2
    assert answer["erros"] == [each | {"rever": False} for each in shown["erros"]]
    spoilt, blank = answer["erros"]
    assert (spoilt["codigo"], spoilt["status"], spoilt["tentativas"]) == ("b.txt", "ERRO", 3)
    assert spoilt["erro_codigo"] == "LLM_INVALID_JSON"
    assert "the model's answer is not JSON" in spoilt["erro_detalhe"]
    assert spoilt["erro_mensagem"] == describe_error_code(create_translator("pt"), "LLM_INVALID_JSON")
    assert "labelling.py" in spoilt["erro_stack"]
    assert datetime.fromisoformat(spoilt["ultimo_erro_em"]).utcoffset() is not None
    assert (blank["codigo"], blank["tentativas"], blank["erro_codigo"]) == ("vazio.txt", 1, "FILE_EMPTY")
    assert blank["rotulo"] is None


async def test_an_error_shows_a_tenant_no_server_folders(
    classifier_app: ClassifierApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "read_path", lambda path: Path(path).with_name("gone").read_bytes())
    project = await classifier_app.project()
    execution = await classifier_app.begin(project, {"a.txt": TEXTS["a.txt"]})
    await classifier_app.work()
    key = await classifier_app.key(project)
    answer = await classifier_app.api.get(f"/execucoes/{execution}/erros", headers={"X-API-Key": key})
    (error,) = answer.json()["erros"]
    assert "[RETOMA_HOME]/files/" in error["erro_detalhe"]
    assert "[RETOMA_HOME]/files/" in error["erro_stack"].splitlines()[-1]
    assert 'File "retoma_apps/' in error["erro_stack"]
    folders = {str(tmp_path), str(Path(executions.__file__).parents[2]), sys.prefix}
    assert [folder for folder in folders if folder in answer.text] == []


async def test_documents_are_listed_by_page_by_status_and_by_part_of_their_code(
    classifier_app: ClassifierApp,
) -> None:
    execution = await classifier_app.run_execution(
        {"0.txt": "", "1.txt": "OFÍCIO 1", "2.txt": "OFÍCIO 1", "x.txt": "OFÍCIO"}
    )
    first = (await classifier_app.api.get(f"/execucoes/{execution}/documentos", params={"limite": 3})).json()
    assert [each["codigo"] for each in first["documentos"]] == ["0.txt", "1.txt", "2.txt"]
    rest = await classifier_app.documents(execution, apos=first["proximo"])
    assert list(rest) == ["x.txt"]
    assert list(await classifier_app.documents(execution, status="ERRO")) == ["0.txt"]
    assert list(await classifier_app.documents(execution, busca="X.T")) == ["x.txt"]
    assert list(await classifier_app.documents(execution, status="PULADO")) == ["2.txt"]


async def test_a_document_with_duplicate_content_is_skipped(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution({"a.txt": TEXTS["a.txt"], "cópia.txt": TEXTS["a.txt"]})
    copy = (await classifier_app.documents(execution))["cópia.txt"]
    assert (copy["status"], copy["duplicado_de"], copy["tentativas"]) == ("PULADO", "a.txt", 0)
    assert classifier_app.count_calls_about("Julgo") == 1
    assert (await classifier_app.status(execution))["status"] == "CONCLUIDO"


async def test_the_same_key_and_body_return_the_same_execution(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    documents = await classifier_app.send("a.txt", TEXTS["a.txt"])
    headers = {"Idempotency-Key": "lote-1"}
    answers = await asyncio.gather(*(classifier_app.start(project, documents, headers=headers) for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == len(await classifier_app.client.runs.list()) == 1
    other = await classifier_app.start(project, await classifier_app.send("b.txt", TEXTS["b.txt"]), headers=headers)
    check_refusal(other, 422, "IDEMPOTENCY_KEY_REUSED")


async def test_the_same_key_is_a_different_request_once_the_project_has_changed(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    documents = await classifier_app.send("a.txt", TEXTS["a.txt"])
    headers = {"Idempotency-Key": "lote-1"}
    assert (await classifier_app.start(project, documents, headers=headers)).status_code == 202
    assert (
        await classifier_app.api.call("PUT", f"/projetos/{project}", json=make_project(prompt="Outro."))
    ).status_code == 200
    check_refusal(await classifier_app.start(project, documents, headers=headers), 422, "IDEMPOTENCY_KEY_REUSED")


async def test_more_documents_than_the_limit_are_rejected_and_the_error_names_the_limit(
    classifier_app: ClassifierApp,
) -> None:
    project = await classifier_app.project()
    (document,) = await classifier_app.send("a.txt", "x")
    answer = await classifier_app.start(project, [document] * 2_001)
    assert "1 to 2000 documents, not 2001" in check_refusal(answer, 422, "INVALID_INPUT")
    check_refusal(await classifier_app.start(project, []), 422, "INVALID_REQUEST")
    assert await classifier_app.client.runs.list() == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"arquivo": {"file": "0" * 64, "size": 1}}, "INVALID_INPUT"),
        ({}, "INVALID_INPUT"),
        ({"arquivo": {"file": "../../etc/passwd"}}, "INVALID_REQUEST"),
        ({"recusa": {"codigo": "MADE_UP", "mensagem": "x", "detalhe": "x"}}, "INVALID_REQUEST"),
    ],
    ids=["a file that was never sent", "neither file nor refusal", "a path", "a code that is none"],
)
async def test_only_uploaded_files_can_be_classified(
    classifier_app: ClassifierApp, wrong: dict[str, Any], code: str
) -> None:
    check_refusal(await classifier_app.start(await classifier_app.project(), [{"nome": "a.txt", **wrong}]), 422, code)
    assert await classifier_app.client.runs.list() == []


async def test_a_file_reference_with_a_wrong_size_is_rejected(classifier_app: ClassifierApp) -> None:
    (document,) = await classifier_app.send("a.txt", "abc")
    document["arquivo"]["size"] = 4
    answer = await classifier_app.start(await classifier_app.project(), [document])
    assert "send it to /arquivos first" in check_refusal(answer, 422, "INVALID_INPUT")


async def test_executions_are_listed_newest_first_and_by_status(classifier_app: ClassifierApp) -> None:
    first, second, third = (
        await classifier_app.run_execution(),
        await classifier_app.run_execution(BAD),
        await classifier_app.begin("pecas-processuais"),
    )

    async def list_found(**query: Any) -> list[str]:
        return [each["id"] for each in (await classifier_app.api.get("/execucoes", params=query)).json()["execucoes"]]

    assert await list_found() == [third, second, first]
    assert await list_found(status="CONCLUIDO") == [first]
    assert await list_found(status="CONCLUIDO_COM_ERROS") == [second]
    assert await list_found(status="PENDENTE") == [third]
    assert await list_found(status="EM_ANDAMENTO") == []
    assert await list_found(projeto="nenhum") == []
    page = (await classifier_app.api.get("/execucoes", params={"limite": 2})).json()
    assert page["proximo"] == second
    assert await list_found(antes=second) == [first]


async def test_a_cancelled_execution_starts_no_further_document(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    await first_steps(classifier_app)
    held = await classifier_app.worker.claim(1)
    answer = await classifier_app.post_action(execution, "cancelar")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELADO")
    await classifier_app.worker.record_outcomes(await classifier_app.worker.attempt(held))
    await classifier_app.work()
    assert classifier_app.standin.requests == []
    shown = await classifier_app.status(execution)
    assert (shown["status"], shown["contagem"]["PENDENTE"], shown["ultimo_codigo_processado"]) == ("CANCELADO", 3, None)
    for act in ("retomar", "reprocessar-erros"):
        check_refusal(await classifier_app.post_action(execution, act), 409, "RUN_BUSY")


async def test_a_missing_execution_is_not_found_on_every_route(classifier_app: ClassifierApp) -> None:
    for execution in (str(new_run_id()), "00000000-0000-0000-0000-000000000000"):
        for path in ("", "/status-detalhado", "/erros", "/documentos", "/resultados", "/exportar", "/arquivo?codigo=a"):
            assert "there is no" in check_refusal(
                await classifier_app.api.get(f"/execucoes/{execution}{path}"), 404, "NOT_FOUND"
            )
        for act in ("retomar", "reprocessar-erros", "cancelar"):
            assert "there is no" in check_refusal(await classifier_app.post_action(execution, act), 404, "NOT_FOUND")
        correction = {"codigo": "a", "rotulo": "b"}
        check_refusal(await classifier_app.post_action(execution, "correcoes", json=correction), 404, "NOT_FOUND")
        check_refusal(await classifier_app.post_action(execution, "pular", json={"codigos": ["a"]}), 404, "NOT_FOUND")
    check_refusal(await classifier_app.api.get("/execucoes/nenhuma/erros"), 422, "INVALID_REQUEST")


async def test_the_progress_of_an_execution_is_not_stored_in_a_file(
    classifier_app: ClassifierApp, tmp_path: Path
) -> None:
    execution = await classifier_app.run_execution(BAD)
    before = await classifier_app.status(execution), await classifier_app.documents(execution)
    shutil.rmtree(tmp_path)
    assert (await classifier_app.status(execution), await classifier_app.documents(execution)) == before


async def test_a_code_may_be_long(classifier_app: ClassifierApp) -> None:
    code = f"pasta/{'ação ' * 20}ofício.txt"
    execution = await classifier_app.run_execution({code: "OFÍCIO"})
    assert len(code) > 100
    assert (await classifier_app.status(execution))["ultimo_codigo_processado"] == code


async def test_no_response_contains_the_providers_key(classifier_app: ClassifierApp) -> None:
    classifier_app.standin._key = f"another {KEY}"
    execution = await classifier_app.begin(await classifier_app.project())
    await classifier_app.work(advance_clock=False)
    shown = await classifier_app.status(execution)
    assert shown["status"] == "EM_ANDAMENTO"
    assert "rejected our credentials: check the API key" in shown["esperando"][0]
    for path in ("status-detalhado", "documentos", "erros"):
        assert "CANARY" not in (await classifier_app.api.get(f"/execucoes/{execution}/{path}")).text


async def first_steps(classifier_app: ClassifierApp) -> None:
    """Create the jobs of the documents without starting any."""
    await classifier_app.worker.record_outcomes(
        await classifier_app.worker.attempt(await classifier_app.worker.claim(2))
    )
