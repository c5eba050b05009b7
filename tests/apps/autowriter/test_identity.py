from __future__ import annotations

import json
import unicodedata
from hashlib import sha256

import pytest

from tests.apps.autowriter.samples import REQUEST, make_request


def test_the_key_is_the_digest_of_canonical_json_with_tenant_and_version() -> None:
    canonical = {**REQUEST, "tenant": "saude", "version": 1}
    text = json.dumps(canonical, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert make_request().identity == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("field", REQUEST)
def test_each_of_the_five_fields_is_part_of_the_key(field: str) -> None:
    other = {"language": "en", "word_count": 401}.get(field, "outro")
    assert make_request(**{field: other}).identity != make_request().identity


def test_text_that_moves_to_the_next_field_is_another_article() -> None:
    first = make_request(theme="café e", objective="cafeína")
    assert first.identity != make_request(theme="café", objective="e cafeína").identity


def test_a_number_and_its_text_are_the_same_once_they_are_typed() -> None:
    assert make_request(word_count="400").identity == make_request().identity


def test_composed_and_decomposed_letters_are_the_same_article() -> None:
    decomposed = unicodedata.normalize("NFD", str(REQUEST["theme"]))
    assert make_request(theme=f"  {decomposed} ").identity == make_request().identity


@pytest.mark.parametrize("name", ["pt", "pt-br", "PT_BR", " pt "])
def test_a_language_has_one_name(name: str) -> None:
    assert make_request(language=name).identity == make_request().identity


def test_optional_fields_are_compared_but_do_not_identify() -> None:
    other = make_request(keyword="café", tone="leve")
    assert other.identity == make_request().identity
    assert other != make_request()
