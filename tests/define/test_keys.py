from typing import Any
from uuid import UUID

import pytest

from retoma.define.keys import ItemSet, Key
from retoma.define.pipeline import Pipeline
from retoma.errors import DefinitionError

from .builders import Document


def keys(items: object, key: Key | None = None) -> tuple[str, ...]:
    return ItemSet("documents", ("documents",), (key,)).compute_keys(items)


def pair_keys(items: object, *pair: Key | None) -> tuple[str, ...]:
    return ItemSet("scenes*languages", ("scenes", "languages"), pair).compute_keys(items)


def test_strings_and_numbers_are_their_own_keys() -> None:
    assert keys(["en", "pt", 7]) == ("en", "pt", "7")


def test_other_items_have_their_position_as_key() -> None:
    assert keys([{"a": 1}, {"a": 1}, True, None]) == ("0", "1", "2", "3")


def test_a_key_can_name_an_attribute_or_a_dict_entry() -> None:
    assert keys([Document(sha256="aa"), {"sha256": "bb"}], "sha256") == ("aa", "bb")


def test_a_key_can_be_a_function_of_the_item() -> None:
    assert keys(["a.pdf", "b.pdf"], lambda name: name[0]) == ("a", "b")


def test_numbers_and_uuids_become_text() -> None:
    identity = UUID(int=1)
    assert keys([{"id": 5}, {"id": identity}], "id") == ("5", str(identity))


def test_a_pair_has_both_keys() -> None:
    scenes: list[Any] = [{"id": "s1"}, {"id": "s2"}]
    pairs = [[scene, language] for scene in scenes for language in ("en", "pt")]
    assert pair_keys(pairs, "id", None) == ("s1|en", "s1|pt", "s2|en", "s2|pt")


def test_a_part_of_a_pair_without_a_key_uses_its_position_in_its_own_list() -> None:
    pairs = [[{"scene": number}, language] for number in (7, 8) for language in ("en", "pt")]
    assert pair_keys(pairs, None, None) == ("0|en", "0|pt", "1|en", "1|pt")


def test_no_items_have_no_keys() -> None:
    assert keys([]) == ()
    assert pair_keys([], None, None) == ()


def test_duplicate_keys_are_rejected() -> None:
    with pytest.raises(ValueError, match="two items of 'documents' have the key 'abc'"):
        keys([{"sha256": "abc"}, {"sha256": "abc"}], "sha256")


def test_the_error_for_a_missing_key_names_the_item() -> None:
    with pytest.raises(ValueError, match="item 1 of 'documents' has no 'sha256'"):
        keys([{"sha256": "abc"}, {}], "sha256")
    with pytest.raises(ValueError, match="item 0 of 'documents' has no 'digest'"):
        keys([Document(sha256="abc")], "digest")


@pytest.mark.parametrize(
    ("key", "reason"),
    [("", "is empty"), ("x" * 201, "longer than 200"), ("a\nb", "control character")],
)
def test_the_error_for_an_unusable_key_says_why(key: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"the key of item 1 of 'documents' .*{reason}"):
        keys(["fine", key])


def test_a_key_of_another_type_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"is 1\.5; a key must be a str, int or UUID"):
        keys([{"id": 1.5}], "id")


@pytest.mark.parametrize("result", ["text", {"a": 1}, None, 3])
def test_a_result_that_is_not_a_list_cannot_be_fanned_out(result: object) -> None:
    with pytest.raises(ValueError, match="the source of an each step must return a list"):
        keys(result)


def make_fan_out() -> tuple[Pipeline, Any]:
    pipeline = Pipeline("classify")

    @pipeline.step
    def documents() -> list[Document]:
        return []

    return pipeline, documents


def test_a_key_declared_by_any_step_is_the_key_of_all_steps_over_the_same_items() -> None:
    pipeline, documents = make_fan_out()

    @pipeline.each(documents)
    def text(document: Document) -> str:
        return document.sha256

    @pipeline.each(documents, key="sha256")
    def label(text: str) -> str:
        return text

    @pipeline.each(documents)
    def note(label: str) -> str:
        return label

    assert pipeline.item_sets == {"documents": ItemSet("documents", ("documents",), ("sha256",))}


def test_steps_over_the_same_items_must_agree_on_the_key() -> None:
    pipeline, documents = make_fan_out()

    @pipeline.each(documents, key="sha256")
    def text(document: Document) -> str:
        return document.sha256

    with pytest.raises(DefinitionError, match="step 'label': its key= differs from that of 'text'"):

        @pipeline.each(documents, key="pages")
        def label(text: str) -> str:
            return text


def test_the_error_for_an_unknown_key_field_suggests_the_nearest() -> None:
    pipeline, documents = make_fan_out()
    with pytest.raises(DefinitionError, match=r"key= names 'sha265'.*did you mean 'sha256'"):

        @pipeline.each(documents, key="sha265")
        def text(document: Document) -> str:
            return document.sha256


def test_pairs_need_one_key_for_each_source() -> None:
    pipeline, documents = make_fan_out()

    @pipeline.step
    def languages() -> list[str]:
        return ["en"]

    with pytest.raises(DefinitionError, match="key= has 1 entries; pass one for each of 'documents', 'languages'"):

        @pipeline.each(documents, languages, key="sha256")
        def label(document: Document, language: str) -> str:
            return language

    @pipeline.each(documents, languages, key=("sha256", None))
    def text(document: Document, language: str) -> str:
        return language

    items = pipeline.item_sets["documents*languages"]
    assert items.compute_keys([[Document(sha256="aa"), "en"]]) == ("aa|en",)
