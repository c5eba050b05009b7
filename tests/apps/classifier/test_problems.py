"""Errors of the classifier's routes, in the language of their names."""

from __future__ import annotations

from uuid import UUID

from retoma_apps.classifier.models import MOST_DOCUMENTS
from tests.apps.classifier.documents import zipped
from tests.apps.classifier.office import TEXTS, Office

NOBODY = UUID(int=7)


async def test_refusals_are_in_portuguese_with_the_english_beside(office: Office) -> None:
    project = await office.project()
    too_many = {f"{number}.txt": b"1" for number in range(MOST_DOCUMENTS + 1)}
    execution = await office.done()
    refusals = {
        f"não há execução {NOBODY}": await office.api.get(f"/execucoes/{NOBODY}"),
        "não há projeto 'nenhum'": await office.api.get("/projetos/nenhum"),
        "'bula' não está na taxonomia": await office.act(
            execution, "correcoes", json={"codigo": "a.txt", "rotulo": "bula"}
        ),
        "não há esse documento": await office.act(execution, "correcoes", json={"codigo": "z.txt", "rotulo": "ofício"}),
        "campos que não são aceitos: documentos": await office.start(project, []),
        "precisa do que /arquivos respondeu": await office.start(project, [{"nome": "a.txt"}]),
        "O arquivo é grande demais": await office.upload("lote.zip", zipped(too_many)),
    }
    for sentence, answer in refusals.items():
        told = answer.json()
        assert sentence in told["detail"], told
        assert told["detail_en"] != told["detail"], told


async def test_a_caller_who_prefers_english_is_answered_in_english(office: Office) -> None:
    answer = await office.api.get(f"/execucoes/{NOBODY}", headers={"Accept-Language": "en-GB,en;q=0.9"})
    assert answer.json()["detail"] == f"there is no execution {NOBODY}"


async def test_an_error_of_an_unknown_code_keeps_its_text(office: Office) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("too deep")

    office.api.sandbox.app.resources["labeller"].label = broken
    execution = await office.done({"a.txt": TEXTS["a.txt"]}, max_retries_documento=0)
    (found,) = (await office.documents(execution)).values()
    assert (found["erro_mensagem"], found["erro_detalhe"]) == ("too deep", "too deep")
