from __future__ import annotations

import tempfile
import threading
import zipfile
from io import BytesIO
from typing import Any

import pytest

from retoma_apps.classifier.models import MOST_DOCUMENTS
from retoma_apps.classifier.operations import uploads
from retoma_apps.classifier.operations.uploads import Upload, clean_name, number_documents
from retoma_apps.classifier.steps.reading import Limits
from tests.apps.classifier.classifier_app import TEXTS, ClassifierApp, check_refusal
from tests.apps.classifier.documents import docx, locked_zip, zipped


async def test_a_document_is_stored_under_its_name(classifier_app: ClassifierApp) -> None:
    (sent,) = await classifier_app.send("pasta/ofício nº 1.txt", "abc")
    assert sent == {
        "nome": "pasta/ofício nº 1.txt",
        "arquivo": {
            "file": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "name": "pasta/ofício nº 1.txt",
            "size": 3,
            "media_type": "text/plain",
        },
    }


async def test_a_large_file_is_written_outside_the_event_loop(
    classifier_app: ClassifierApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = set[int]()

    class Spool(tempfile.SpooledTemporaryFile[bytes]):
        def write(self, data: Any) -> int:
            writers.add(threading.get_ident())
            return super().write(data)

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", Spool)
    await classifier_app.send("a.txt", "a" * 1000)
    assert writers == {threading.get_ident()}
    await classifier_app.send("b.txt", "b" * (1 << 21))
    assert len(writers) > 1


async def test_the_files_in_the_folders_of_a_zip_are_extracted(classifier_app: ClassifierApp) -> None:
    zipped_files = zipped(
        {"lote/": b"", "lote/a.txt": b"1", "lote/b/c.txt": b"2", "__MACOSX/a.txt": b"3", "lote/.DS_Store": b"4"}
    )
    assert [each["nome"] for each in await classifier_app.send("lote.zip", zipped_files)] == [
        "lote/a.txt",
        "lote/b/c.txt",
    ]


async def test_a_word_document_is_not_treated_as_a_zip_of_documents(classifier_app: ClassifierApp) -> None:
    for name in ("ofício.docx", "sem ending"):
        (sent,) = await classifier_app.send(name, docx(["Ofício"]))
        assert sent["nome"] == name


async def test_office_files_are_one_document_wherever_their_marker_is(
    classifier_app: ClassifierApp,
) -> None:
    late = {"word/media/a.png": bytes(range(256)) * 40, "[Content_Types].xml": b"<Types/>"}
    text = {"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": b"<office/>"}
    for name, data in {"sem ending": zipped(late), "tabela.xlsx": zipped(late), "ata.odt": zipped(text)}.items():
        (sent,) = await classifier_app.send(name, data)
        assert sent["nome"] == name


async def test_a_zip_of_word_documents_is_a_batch_even_if_they_are_uncompressed(classifier_app: ClassifierApp) -> None:
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in ("a.docx", "b.docx"):
            archive.writestr(name, docx([name]))
    assert [each["nome"] for each in await classifier_app.send("lote.zip", made.getvalue())] == ["a.docx", "b.docx"]


async def test_a_zip_with_the_maximum_number_of_files_may_also_have_folders(classifier_app: ClassifierApp) -> None:
    most = {"lote/": b"", **{f"lote/{number}.txt": b"1" for number in range(MOST_DOCUMENTS)}}
    sent = await classifier_app.send("lote.zip", zipped(most))
    assert [each["nome"] for each in sent] == list(most)[1:]
    answer = await classifier_app.upload("lote.zip", zipped({**most, "one more.txt": b"1"}))
    assert "more than 2,000 files" in check_refusal(answer, 422, "FILE_TOO_LARGE")


async def test_a_missing_file_is_named_wherever_it_is_in_the_batch(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project()
    (sent,) = await classifier_app.send("a.txt", "abc")
    absent = {"nome": "z.txt", "arquivo": sent["arquivo"] | {"file": "0" * 64}}
    answer = await classifier_app.start(project, [*[sent] * 40, absent])
    assert "'z.txt' was not found" in answer.json()["detail_en"]
    assert (await classifier_app.start(project, [sent] * 40)).status_code == 202


async def test_an_encrypted_member_is_rejected_alone(classifier_app: ClassifierApp) -> None:
    locked, good = locked_zip({"a.txt": b"segredo"}), zipped({"b.txt": b"aberto"})
    (sent,) = await classifier_app.send("locked.zip", locked)
    assert sent["recusa"]["codigo"] == "FILE_ENCRYPTED"
    assert sent["recusa"]["mensagem"] == "O arquivo está protegido por senha. Envie-o sem senha."
    assert "without one" in sent["recusa"]["detalhe"]
    (sent,) = await classifier_app.send("good.zip", good)
    execution = await classifier_app.begin(await classifier_app.project(), {"locked.zip": locked, "good.zip": good})
    await classifier_app.work()
    found = await classifier_app.documents(execution)
    assert {code: each["status"] for code, each in found.items()} == {"a.txt": "ERRO", "b.txt": "CONCLUIDO"}
    assert (found["a.txt"]["erro_codigo"], found["a.txt"]["tentativas"]) == ("FILE_ENCRYPTED", 1)


async def test_a_bomb_in_a_zip_is_rejected_alone(classifier_app: ClassifierApp) -> None:
    bomb, good = await classifier_app.send("a.zip", zipped({"bomb.txt": b"0" * 3_000_000, "b.txt": b"good"}))
    assert (bomb["recusa"]["codigo"], "recusa" in good) == ("FILE_TOO_LARGE", False)


async def test_a_zip_that_is_too_large_as_a_whole_is_rejected(
    classifier_app: ClassifierApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "ZIP_LIMITS", Limits(unpacked=1_000, members=3))
    many = {f"{number}.txt": b"1" for number in range(4)}
    assert "more than 3 files" in check_refusal(
        await classifier_app.upload("a.zip", zipped(many)), 422, "FILE_TOO_LARGE"
    )
    large = zipped({"a.txt": b"0" * 900, "b.txt": b"1" * 900})
    assert "1,000 bytes" in check_refusal(await classifier_app.upload("a.zip", large), 422, "FILE_TOO_LARGE")


async def test_an_empty_or_truncated_zip_is_rejected(classifier_app: ClassifierApp) -> None:
    assert "the zip contains no files" in check_refusal(
        await classifier_app.upload("a.zip", zipped({"folder/": b""})), 422, "FILE_EMPTY"
    )
    check_refusal(await classifier_app.upload("a.zip", zipped(dict.fromkeys("abc", b"1"))[:60]), 422, "FILE_DAMAGED")


async def test_two_files_with_the_same_name_in_a_zip_are_two_documents(classifier_app: ClassifierApp) -> None:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a.txt", "SENTENÇA um")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.txt", "SENTENÇA dois")
    execution = await classifier_app.begin(await classifier_app.project(), {"lote.zip": made.getvalue()})
    assert list(await classifier_app.documents(execution)) == []  # no jobs yet
    await classifier_app.work()
    assert list(await classifier_app.documents(execution)) == ["a.txt", "a (2).txt"]


async def test_a_document_that_is_too_large_is_rejected_alone(classifier_app: ClassifierApp) -> None:
    large = b"%PDF-" + b"0" * 60_000_000
    execution = await classifier_app.run_execution({"a.txt": TEXTS["a.txt"], "": large})
    found = await classifier_app.documents(execution)
    assert {code: each["status"] for code, each in found.items()} == {"a.txt": "CONCLUIDO", "documento": "ERRO"}
    assert found["documento"]["erro_codigo"] == "FILE_TOO_LARGE"
    assert "60,000,005 bytes, over the limit of 50,000,000" in found["documento"]["erro_detalhe"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "etc/passwd"),
        ("..\\..\\windows\\a.txt", "windows/a.txt"),
        ("/abs/a.txt", "abs/a.txt"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("a\x00\x1b[31m\n.txt", "a[31m.txt"),
        ("\u200b", "documento"),
        ("", "documento"),
        ("..", "documento"),
        ("x" * 500 + ".pdf", "x" * 166 + ".pdf"),
        ("\ud800.txt", ".txt"),
        ("ofi\u0301cio.txt", "ofício.txt"),
        ("<script>.txt", "<script>.txt"),
    ],
)
def test_invisible_characters_are_removed_from_a_name(name: str, shown: str) -> None:
    assert clean_name(name) == shown


def test_codes_are_distinct_whatever_documents_are_called() -> None:
    names = ["a.txt", "a.txt", "a (2).txt", "a (2).txt", "b", "b", "../b", "x" * 500, "x" * 400]
    codes = [document.codigo for document in number_documents([Upload(nome=name) for name in names])]
    assert codes[:7] == ["a.txt", "a (2).txt", "a (2) (2).txt", "a (2) (3).txt", "b", "b (2)", "b (3)"]
    assert len(set(codes)) == len(codes)
    assert max(map(len, codes)) <= 180


@pytest.mark.parametrize("media_type", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded"])
async def test_a_multipart_form_is_rejected_and_its_envelope_never_stored(
    classifier_app: ClassifierApp, media_type: str
) -> None:
    envelope = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\n\r\nabc\r\n--x--\r\n'
    answer = await classifier_app.upload("a.txt", envelope, headers={"Content-Type": media_type})
    assert "--data-binary" in check_refusal(answer, 415, "UNSUPPORTED_MEDIA_TYPE")


async def test_empty_files_are_not_duplicates_of_each_other(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution({"a.txt": b"", "b.txt": b"", "c.txt": TEXTS["c.txt"]})
    found = await classifier_app.documents(execution)
    assert {code: (each["status"], each["duplicado_de"]) for code, each in found.items()} == {
        "a.txt": ("ERRO", None),
        "b.txt": ("ERRO", None),
        "c.txt": ("CONCLUIDO", None),
    }
    assert found["b.txt"]["erro_codigo"] == "FILE_EMPTY"
