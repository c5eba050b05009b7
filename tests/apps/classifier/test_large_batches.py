from __future__ import annotations

import json
from pathlib import Path

import pytest

from retoma import File
from retoma.store.database import Database
from retoma_apps.classifier.models import Document, ExplainedRefusal
from retoma_apps.classifier.operations.uploads import Upload, number_documents
from tests.apps.classifier.classifier_app import TEXTS, ClassifierApp, running_classifier_app
from tests.apps.classifier.documents import zipped

LARGEST_RESULT = 1_000_000


@pytest.mark.parametrize("letter", ["a", "ç", "文", "💩", '"', "\\"])
def test_the_longest_names_leave_room_for_two_thousand_documents(letter: str) -> None:
    file = File(file="0" * 64, size=50_000_000, name="x" * 500, media_type="y" * 100)
    made = number_documents([Upload(nome=f"{letter * 500}.txt", arquivo=file) for _ in range(12)])
    assert len({each.codigo for each in made}) == 12
    widest = max(len(each.model_dump_json().encode()) for each in made) + len("00")  # 12 of 2,000
    assert (widest + len(",")) * 2_000 < LARGEST_RESULT


def test_the_longest_rejection_leaves_room_for_two_thousand_documents() -> None:
    refusal = ExplainedRefusal(codigo="FILE_UNSUPPORTED", mensagem="ç" * 300, detalhe="x" * 200)
    (made,) = number_documents([Upload(nome="ç" * 500, recusa=refusal)])
    assert (len(made.model_dump_json().encode()) + 10) * 2_000 < LARGEST_RESULT


async def test_a_batch_of_two_thousand_documents_completes(database: Database, tmp_path: Path) -> None:
    texts = {f"{number}.txt": f"SENTENÇA {number}. Julgo procedente o pedido.".encode() for number in range(2_000)}
    async with running_classifier_app(database, tmp_path, offline=True) as classifier_app:
        sent = await classifier_app.send("lote.zip", zipped(texts))
        answer = await classifier_app.start(await classifier_app.project(), sent)
        await classifier_app.work()
        shown = await classifier_app.status(answer.json()["id"])
    assert (shown["status"], shown["total"], shown["processados"]) == ("CONCLUIDO", 2_000, 2_000)
    assert shown["contagem"] == {"PENDENTE": 0, "PROCESSANDO": 0, "CONCLUIDO": 2_000, "ERRO": 0, "PULADO": 0}


async def test_a_batch_of_two_thousand_copies_is_read_once(classifier_app: ClassifierApp) -> None:
    (sent,) = await classifier_app.send("a.txt", TEXTS["a.txt"])
    answer = await classifier_app.start(
        await classifier_app.project(), [sent | {"nome": f"{'ç' * 500}.txt"} for _ in range(2_000)]
    )
    await classifier_app.work()
    shown = await classifier_app.status(answer.json()["id"])
    assert shown["contagem"] == {"PENDENTE": 0, "PROCESSANDO": 0, "CONCLUIDO": 1, "ERRO": 0, "PULADO": 1_999}


def test_a_document_is_deserialised_from_its_short_json() -> None:
    refusal = ExplainedRefusal(codigo="FILE_EMPTY", mensagem="Está vazio.", detalhe="it is empty")
    (made,) = number_documents([Upload(nome="a.txt", recusa=refusal)])
    short = json.loads(made.model_dump_json())
    assert short == {"codigo": "a.txt", "recusa": {"codigo": "FILE_EMPTY", "detalhe": "it is empty"}}
    assert Document.model_validate(short) == made
