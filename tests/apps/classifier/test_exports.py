from __future__ import annotations

import csv
import io

from tests.apps.classifier.classifier_app import TEXTS, ClassifierApp, check_refusal
from tests.apps.classifier.test_executions import BAD

HOSTILE = {"=cmd|' /C calc'!A0.txt": "OFÍCIO 1", "+1.txt": "OFÍCIO 2", "@SUM(A1).txt": "OFÍCIO 3", "-2.txt": "OFÍCIO 4"}
HOSTILE |= {"x;=1+1;y.txt": "OFÍCIO 7"}
HOSTILE |= {"\u3000=1+1.txt": "OFÍCIO 5", "\uff1d1+1.txt": "OFÍCIO 6"}


async def test_all_results_are_exported_as_csv_without_formula_injection(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(BAD | HOSTILE)
    answer = await classifier_app.api.get(f"/execucoes/{execution}/exportar")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment; filename*=UTF-8''classificacao-")
    assert answer.content.startswith("\ufeff".encode())
    rows = {row["codigo"]: row for row in csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig")))}
    named = [name.replace(";=", ";'=") if name.startswith("x") else f"'{name}" for name in HOSTILE]
    assert list(rows) == [*BAD, *named]
    brazilian = csv.reader(io.StringIO(answer.content.decode("utf-8-sig")), delimiter=";")
    assert not [cell for row in brazilian for cell in row if cell.startswith(("=", "+", "-", "@"))]
    assert (rows["a.txt"]["rotulo"], rows["a.txt"]["rever"], rows["a.txt"]["tentativas"]) == ("sentença", "não", "1")
    assert (rows["b.txt"]["status"], rows["b.txt"]["erro_codigo"]) == ("ERRO", "LLM_INVALID_JSON")


async def test_all_results_are_exported_as_json(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(BAD)
    answer = await classifier_app.api.get(f"/execucoes/{execution}/exportar", params={"formato": "json"})
    rows = answer.json()
    assert [row["codigo"] for row in rows] == list(BAD)
    assert (rows[0]["rotulo"], rows[0]["corrigido"], rows[1]["erro_codigo"]) == ("sentença", False, "LLM_INVALID_JSON")
    check_refusal(await classifier_app.api.get(f"/execucoes/{execution}/exportar?formato=xls"), 422, "INVALID_REQUEST")


async def test_an_execution_without_results_exports_no_rows(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project())
    assert (await classifier_app.api.get(f"/execucoes/{execution}/exportar?formato=json")).json() == []
    assert (await classifier_app.api.get(f"/execucoes/{execution}/exportar")).text.count("\r\n") == 1


async def test_a_document_is_downloaded_as_uploaded_and_never_rendered_as_a_page(classifier_app: ClassifierApp) -> None:
    page = "<script>alert(1)</script> OFÍCIO"
    execution = await classifier_app.begin(await classifier_app.project(), {"pasta/página.html": page} | TEXTS)
    answer = await classifier_app.api.get(f"/execucoes/{execution}/arquivo", params={"codigo": "pasta/página.html"})
    assert answer.text == page
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''p%C3%A1gina.html"
    assert answer.headers["Content-Security-Policy"] == "sandbox; default-src 'none'"
    missing = await classifier_app.api.get(f"/execucoes/{execution}/arquivo", params={"codigo": "../a.txt"})
    assert "no such document" in check_refusal(missing, 404, "NOT_FOUND")
