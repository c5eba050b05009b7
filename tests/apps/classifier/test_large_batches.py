from __future__ import annotations

import json
from pathlib import Path

import pytest

from retoma import File
from retoma.store.database import Database
from retoma_apps.classifier.models import Document, Refusal
from retoma_apps.classifier.uploads import Upload, number_documents
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


def test_the_longest_refusal_leaves_room_for_two_thousand_documents() -> None:
    refusal = Refusal(codigo="FILE_UNSUPPORTED", mensagem="x" * 200)
    (made,) = number_documents([Upload(nome="ç" * 500, recusa=refusal)])
    assert (len(made.model_dump_json().encode()) + 10) * 2_000 < LARGEST_RESULT


async def test_a_batch_of_two_thousand_comes_to_its_end(database: Database, tmp_path: Path) -> None:
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


def test_a_document_is_read_again_from_the_short_json_that_it_is() -> None:
    (made,) = number_documents([Upload(nome="a.txt", recusa=Refusal(codigo="FILE_EMPTY", mensagem="it is empty"))])
    short = json.loads(made.model_dump_json())
    assert short == {"codigo": "a.txt", "recusa": {"codigo": "FILE_EMPTY", "mensagem": "it is empty"}}
    assert Document.model_validate(short) == made
