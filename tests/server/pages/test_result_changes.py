"""What changed between two results, in the words of a reader."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field

from retoma import Pipeline
from retoma.records import Subject
from retoma.server.pages import forms, text_changes
from retoma.server.pages.result_changes import list_changes
from retoma.server.pages.review_changes import list_step_changes
from retoma.server.pages.text_changes import Pair, Piece, align_entries, compare_texts


class Part(BaseModel):
    text: str = Field(title="Passage")
    picture: str = ""


class Result(BaseModel):
    title: str = Field("", title="Heading")
    parts: list[Part] = Field([], title="Parts")
    words: int = Field(0, json_schema_extra={"hidden": True})


def test_changed_words_are_found_within_a_text() -> None:
    before = "In 2025 you lost money. The rest stays."
    now = "In 2025 you lost against inflation in seven months. The rest stays."
    assert compare_texts(before, now) == (
        Piece("same", "In 2025 you lost"),
        Piece("del", " money"),
        Piece("add", " against inflation in seven months"),
        Piece("same", ". The rest stays."),
    )


def test_pieces_of_a_comparison_restore_both_texts() -> None:
    before, now = "one two, three\n\nfour", "zero two; three four  five"
    pieces = compare_texts(before, now)
    assert "".join(piece.text for piece in pieces if piece.kind != "add") == before
    assert "".join(piece.text for piece in pieces if piece.kind != "del") == now


def test_an_entry_that_changed_its_place_is_moved_and_not_new() -> None:
    assert align_entries(["a", "b", "c", "d"], ["d", "a", "b", "x", "c"]) == [
        Pair(3, 0, is_moved=True),
        Pair(0, 1),
        Pair(1, 2),
        Pair(None, 3),
        Pair(2, 4),
    ]


def test_an_entry_behind_a_new_one_has_not_moved() -> None:
    assert align_entries(["a", "b"], ["new", "a", "b"]) == [Pair(None, 0), Pair(0, 1), Pair(1, 2)]


def test_an_edited_entry_is_paired_with_its_former_version() -> None:
    before, now = ["the first of all passages", "other"], ["other", "the first of our passages"]
    assert [(pair.before, pair.now) for pair in align_entries(before, now)] == [(1, 0), (0, 1)]


def test_changes_are_named_by_titles_without_hidden_fields() -> None:
    before = {"title": "Tea", "parts": [{"text": "A long enough text", "picture": "cup"}], "words": 4}
    now = {"title": "Coffee", "parts": [{"text": "A short enough text", "picture": "cup"}, {"text": "New"}], "words": 5}
    found = list_changes(before, now, forms.build_schema(Result))
    assert [(each.label, each.kind) for each in found] == [
        ("Heading", "value"),
        ("Parts 1, Passage", "text"),
        ("Parts 2", "added"),
    ]
    assert found[2].now == {"Passage": "New"}


def test_labels_of_changes_are_translated() -> None:
    found = list_changes({"title": "Tea"}, {"title": "Coffee"}, forms.build_schema(Result), str.upper)
    assert [each.label for each in found] == ["HEADING"]


def test_a_file_with_the_same_content_has_not_changed() -> None:
    before = {"film": {"file": "a" * 64, "name": "old.mp4", "size": 1, "media_type": "video/mp4"}}
    renamed = {"film": {**before["film"], "name": "new.mp4"}}
    replaced = {"film": {**before["film"], "file": "b" * 64}}
    assert list_changes(before, renamed, None) == []
    assert [each.kind for each in list_changes(before, replaced, None)] == ["file"]


def test_long_lists_are_compared_place_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for moved entries takes the square of their number."""
    monkeypatch.delattr(text_changes, "SequenceMatcher")
    before = [0] * 50_000
    found = list_changes(before, [*before[1:], 1, 2], None)
    assert [(each.label, each.kind, each.before, each.now) for each in found] == [
        ("50000", "value", 0, 1),
        ("50001", "added", None, 2),
    ]


def test_only_the_first_words_decide_whether_entries_are_similar(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def count(words: list[str]) -> Counter[str]:
        counted.append(len(words))
        return Counter(words)

    monkeypatch.setattr(text_changes, "Counter", count)
    before, now = ([f"{word} " * 5_000] for word in ("one two three", "one two four"))
    (found,) = list_changes(before, now, None)
    assert (found.kind, max(counted)) == ("text", text_changes.MAX_SIMILARITY_WORDS)


def test_a_result_whose_changes_are_hidden_is_not_called_the_same() -> None:
    pipeline = Pipeline("p", Part)

    @pipeline.step
    def result(text: str) -> Result:
        return Result(title=text)

    context: Any = SimpleNamespace(find_pipeline=lambda _: pipeline, gettext=str)
    review: Any = SimpleNamespace(pipeline="p")

    def list_steps(words: int) -> list[str]:
        before, now = ({"result": Subject("result", at, {"words": count})} for at, count in ((1, 4), (2, words)))
        return [each.step for each in list_step_changes(context, review, now, before)]

    assert (list_steps(5), list_steps(4)) == ([], ["result"])
