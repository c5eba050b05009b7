"""Errors of the classifier's routes in Portuguese."""

from __future__ import annotations

from uuid import UUID

from retoma_apps.classifier.models import MOST_DOCUMENTS
from retoma_apps.providers.chains import get_first_provider
from tests.apps.classifier.classifier_app import TEXTS, ClassifierApp, check_refusal
from tests.apps.classifier.documents import zipped

NOBODY = UUID(int=7)


async def test_errors_are_in_portuguese_with_the_english_message_too(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    too_many = {f"{number}.txt": b"1" for number in range(MOST_DOCUMENTS + 1)}
    execution = await classifier_app.run_execution()
    refusals = {
        f"a execução {NOBODY} não existe": await classifier_app.api.get(f"/execucoes/{NOBODY}"),
        "o projeto 'nenhum' não existe": await classifier_app.api.get("/projetos/nenhum"),
        "'bula' não está na taxonomia": await classifier_app.post_action(
            execution, "correcoes", json={"codigo": "a.txt", "rotulo": "bula"}
        ),
        "este documento não existe": await classifier_app.post_action(
            execution, "correcoes", json={"codigo": "z.txt", "rotulo": "ofício"}
        ),
        "campos inválidos: documentos": await classifier_app.start(project, []),
        "exatamente como /arquivos o retornou": await classifier_app.start(project, [{"nome": "a.txt"}]),
        "O arquivo é grande demais": await classifier_app.upload("lote.zip", zipped(too_many)),
    }
    for sentence, answer in refusals.items():
        body = answer.json()
        assert sentence in body["detail"], body
        assert body["detail_en"] != body["detail"], body


async def test_accept_language_english_returns_english_errors(classifier_app: ClassifierApp) -> None:
    answer = await classifier_app.api.get(f"/execucoes/{NOBODY}", headers={"Accept-Language": "en-GB,en;q=0.9"})
    assert answer.json()["detail"] == f"there is no execution {NOBODY}"


async def test_a_form_in_place_of_a_file_is_rejected_in_both_languages(classifier_app: ClassifierApp) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await classifier_app.api.post("/arquivos", content=b"a=1", headers=form)
    assert "o corpo é um formulário" in answer.json()["detail"]
    assert "the body is a form" in check_refusal(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    english = (await classifier_app.api.post("/arquivos", headers=form | {"Accept-Language": "en"})).json()
    assert ("the body is a form" in english["detail"], "detail_en" in english) == (True, False)


async def test_an_error_of_an_unknown_code_keeps_its_text(classifier_app: ClassifierApp) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("too deep")

    get_first_provider(classifier_app.api.sandbox.app.resources["labeller"]).label = broken
    execution = await classifier_app.run_execution({"a.txt": TEXTS["a.txt"]}, max_retries_documento=0)
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["erro_mensagem"], found["erro_detalhe"]) == ("too deep", "too deep")
