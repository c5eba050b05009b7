"""Titles of executions."""

from __future__ import annotations

import pytest

from retoma_apps.classifier.models import Batch, Criteria, Document
from retoma_apps.classifier.pipeline import classification


@pytest.mark.parametrize(
    ("name", "codes", "title"),
    [
        ("Março", ["a.pdf", "b.pdf"], "Março (2 documentos)"),
        ("Março", ["a.pdf"], "Março"),
        ("", ["a.pdf", "b.pdf"], "a.pdf (2 documentos)"),
        ("", ["a.pdf"], "a.pdf"),
    ],
)
def test_the_title_of_an_execution_is_its_name_or_first_document(name: str, codes: list[str], title: str) -> None:
    documents = [Document(codigo=code) for code in codes]
    batch = Batch.model_construct(nome=name, criterios=Criteria.model_construct(taxonomia=[]), documentos=documents)
    assert classification.format_title(batch) == title
