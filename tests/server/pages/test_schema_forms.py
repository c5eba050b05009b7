from __future__ import annotations

from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pytest
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from retoma import timecodes
from retoma.define.review import Comment
from retoma.server.pages import differences, forms


class Voice(StrEnum):
    LOW = "low"
    HIGH = "high"


class Part(BaseModel):
    name: str
    share: float = 0.5
    loud: bool = True


class Deep(BaseModel):
    part: Part


class Everything(BaseModel):
    title: str = Field(max_length=80, description="As on the cover.")
    text: str
    tags: list[str] = []
    count: int = 3
    share: float | None = None
    ready: bool = True
    sung: bool | None = None
    voice: Voice = Voice.LOW
    kind: Literal["a", "b"] | None = None
    parts: list[Part] = []
    deep: list[Deep] = []
    names: dict[str, str] = {}


SCHEMA = TypeAdapter(Everything).json_schema()
VALUE: dict[str, Any] = {
    "title": "Tea",
    "text": "one\ntwo",
    "tags": ["x", "y z"],
    "count": 3,
    "share": 0.5,
    "ready": True,
    "sung": False,
    "voice": "high",
    "kind": None,
    "parts": [{"name": "n", "share": 0.5, "loud": True}, {"name": "o", "share": 1.5, "loud": False}],
    "deep": [{"part": {"name": "n", "share": 0.5, "loud": True}}],
    "names": {"3": "a forest: dawn", "b": "c"},
}


def as_typed(fields: list[forms.Field], **changes: str) -> dict[str, str]:
    """What a browser sends of these fields: an unchecked box is not sent."""
    shown = forms.iterate_controls(fields)
    form_fields = {field.name: field.text for field in shown if field.kind != "yes" or field.text}
    return form_fields | {f"value.{name}": value for name, value in changes.items()}


def test_every_kind_of_field_has_its_control() -> None:
    kinds = {field.key: field.kind for field in forms.build_fields(SCHEMA, VALUE)}
    assert kinds == {
        "title": "line",
        "text": "text",
        "tags": "lines",
        "count": "whole",
        "share": "number",
        "ready": "yes",
        "sung": "maybe",
        "voice": "choice",
        "kind": "choice",
        "parts": "entries",
        "deep": "json",
        "names": "pairs",
    }


def test_an_unchanged_form_returns_the_same_value() -> None:
    fields = forms.build_fields(SCHEMA, VALUE)
    assert forms.parse_form(fields, as_typed(fields)) == (VALUE, {})


@pytest.mark.parametrize(
    ("annotation", "value"), [(str, "a\nb"), (int, 7), (list[str], ["a", "b"]), (dict, {"a": [1]})]
)
def test_a_value_that_is_not_an_object_is_one_field(annotation: Any, value: Any) -> None:
    (field,) = fields = forms.build_fields(TypeAdapter(annotation).json_schema(), value)
    assert field.key is None
    assert forms.parse_form(fields, {"value": field.text}) == (value, {})


def test_a_list_whose_texts_would_not_come_back_from_lines_is_json() -> None:
    fields = forms.build_fields(SCHEMA, VALUE | {"tags": [" x", "a\nb", ""]})
    assert {field.key: field.kind for field in fields}["tags"] == "json"
    assert forms.parse_form(fields, as_typed(fields))[0]["tags"] == [" x", "a\nb", ""]


class Planned(BaseModel):
    at: AwareDatetime | None = None


ZONE = ZoneInfo("America/Sao_Paulo")


@pytest.mark.parametrize("value", [None, "2030-01-02T12:30:00Z"])
def test_a_moment_is_typed_in_the_viewers_time_zone(value: str | None) -> None:
    fields = forms.set_zone(forms.build_fields(TypeAdapter(Planned).json_schema(), {"at": value}), ZONE)
    assert [(field.kind, field.text) for field in fields] == [("moment", "2030-01-02T09:30" if value else "")]
    assert forms.parse_form(fields, as_typed(fields)) == ({"at": value}, {})
    assert forms.parse_form(fields, {"value.at": "2030-01-02T10:00"}) == ({"at": "2030-01-02T13:00:00Z"}, {})
    _, errors = forms.parse_form(fields, {"value.at": "tomorrow"})
    assert errors["value.at"].message.startswith("Enter a date and time")


def test_a_moment_that_a_browser_would_shorten_stays_text() -> None:
    (field,) = forms.build_fields(TypeAdapter(Planned).json_schema(), {"at": "2030-01-02T12:30:01Z"})
    assert (field.kind, field.text) == ("line", "2030-01-02T12:30:01Z")


def test_texts_by_name_are_also_typed_one_by_one() -> None:
    fields = forms.build_fields(SCHEMA, VALUE)
    one_by_one = {"value.names": "b: c", "value.names.3": "a forest: dawn", "value.names.4": ""}
    value, _ = forms.parse_form(fields, as_typed(fields) | one_by_one)
    assert value["names"] == {"3": "a forest: dawn", "b": "c"}


@pytest.mark.parametrize("names", [{"a:b": "c"}, {"a": ""}, {"a": "b\nc"}])
def test_texts_by_name_that_would_not_come_back_from_lines_are_json(names: dict[str, str]) -> None:
    fields = forms.build_fields(SCHEMA, VALUE | {"names": names})
    assert {field.key: field.kind for field in fields}["names"] == "json"
    assert forms.parse_form(fields, as_typed(fields))[0]["names"] == names


def test_titles_descriptions_and_names_of_fields_are_translated() -> None:
    class Form(BaseModel):
        tone: str = Field("", description="100 % warm, dry")
        other_words: str = Field("", title="Words", examples=["sun", "sea"])

    translations = {"Tone": "Tom", "100 % warm, dry": "100 % quente, seco", "Words": "Palavras"}

    def translate(text: str) -> str:
        return translations.get(text, text)

    tone, words = forms.build_fields(Form.model_json_schema(), name="feedback", translate=translate)
    assert (tone.name, tone.label, tone.hint) == ("feedback.tone", "Tom", "100 % quente, seco")
    assert (words.label, words.hint) == ("Palavras", "For example: sun, sea")


def test_a_field_without_a_title_has_its_name_as_label() -> None:
    class Form(BaseModel):
        image_url: str = ""
        other_words: str = Field("", title="Other words, if any")

    labels = [field.label for field in forms.build_fields(Form.model_json_schema())]
    assert labels == ["Image URL", "Other words, if any"]


def test_an_empty_field_is_null_or_its_default() -> None:
    fields = forms.build_fields(SCHEMA, VALUE)
    value, wrong = forms.parse_form(fields, as_typed(fields, share="", sung="", kind="", count=" ", tags="", deep=""))
    assert wrong == {}
    assert (value["share"], value["sung"], value["kind"], value["tags"]) == (None, None, None, [])
    assert "count" not in value
    assert "deep" not in value


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("count", "1.5", "Enter a whole number."),
        ("count", "9" * 5_000, "Enter a whole number."),
        ("share", "nan", "Enter a number."),
        ("share", "1e999", "Enter a number."),
        ("parts.1.share", "much", "Enter a number."),
        ("names", "no colon", "Write name: text, unlike this line: %(line)s"),
        ("names", "a: b\n: c", "Write name: text, unlike this line: %(line)s"),
        ("deep", "[", "Invalid JSON at line %(line)s, column %(column)s."),
        ("deep", "NaN", "This is not valid JSON."),
        ("deep", "[" * 5_000, "This is not valid JSON."),
        ("deep", "\0", "This is not valid JSON."),
    ],
)
def test_a_value_of_the_wrong_kind_is_reported_at_its_field(name: str, values: str, message: str) -> None:
    fields = forms.build_fields(SCHEMA, VALUE)
    wrong = forms.parse_form(fields, as_typed(fields, **{name: values}))[1]
    assert {field: error.message for field, error in wrong.items()} == {f"value.{name}": message}


def test_a_list_of_simple_objects_has_a_group_of_controls_for_each_and_for_two_more() -> None:
    (parts,) = (field for field in forms.build_fields(SCHEMA, VALUE) if field.key == "parts")
    shown = [[(each.name.removeprefix("value.parts."), each.text) for each in entry] for entry in parts.entries]
    assert shown[1:] == [
        [("1.name", "o"), ("1.share", "1.5"), ("1.loud", "")],
        [("2.name", ""), ("2.share", "0.5"), ("2.loud", "yes")],
        [("3.name", ""), ("3.share", "0.5"), ("3.loud", "yes")],
    ]


def test_an_entry_without_texts_is_left_out_and_a_new_one_is_added() -> None:
    fields = forms.build_fields(SCHEMA, VALUE)
    value, _ = forms.parse_form(fields, as_typed(fields, **{"parts.0.name": " ", "parts.3.name": "p"}))
    assert [part["name"] for part in value["parts"]] == ["o", "p"]


@pytest.mark.parametrize("parts", [[{"name": ""}], [{"name": "n", "more": 1}], [1], [{"name": "n"}] * 400])
def test_entries_that_would_not_come_back_as_they_were_are_json(parts: list[Any]) -> None:
    fields = forms.build_fields(SCHEMA, VALUE | {"parts": parts})
    assert {field.key: field.kind for field in fields}["parts"] == "json"
    assert forms.parse_form(fields, as_typed(fields))[0]["parts"] == parts


def test_hidden_fields_are_not_offered_and_stay_unchanged() -> None:
    class Counted(BaseModel):
        text: str
        words: int = Field(0, json_schema_extra={"hidden": True})

    fields = forms.build_fields(Counted.model_json_schema(), {"text": "a b", "words": 2})
    assert [field.key for field in forms.visible_fields(fields)] == ["text"]
    assert forms.parse_form(fields, {"value.text": "a", "value.words": "9"}) == ({"text": "a", "words": 2}, {})


def test_a_hidden_type_offers_no_field() -> None:
    fields = forms.build_fields({"type": "object", "hidden": True, "properties": {"a": {"type": "string"}}}, {"a": "b"})
    assert forms.visible_fields(fields) == []
    assert forms.parse_form(fields, {}) == ({"a": "b"}, {})


def test_a_validation_error_is_reported_at_its_field() -> None:
    fields = forms.build_fields(SCHEMA, VALUE)
    with pytest.raises(ValidationError) as caught:
        Everything.model_validate(VALUE | {"title": "x" * 81, "deep": [{}], "kind": "c"})
    reported = forms.map_validation_errors(fields, {}, caught.value)
    assert {name: (each.message, each.path, each.values) for name, each in reported.items()} == {
        "value.title": ("Too long: at most %(max_length)s characters.", "", {"max_length": 80}),
        "value.kind": ("Must be one of: %(expected)s.", "", {"expected": "'a', 'b'"}),
        "value.deep": ("This field is required.", "0.part", {}),
    }


def test_a_validation_error_of_an_entry_is_reported_there_though_an_earlier_one_was_emptied() -> None:
    class Short(BaseModel):
        name: str = Field(max_length=1)

    class Whole(BaseModel):
        parts: list[Short]

    fields = forms.build_fields(Whole.model_json_schema(), {"parts": [{"name": "n"}, {"name": "o"}]})
    form_fields = as_typed(fields, **{"parts.0.name": "", "parts.1.name": "oo"})
    value, _ = forms.parse_form(fields, form_fields)
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(value)
    assert [*forms.map_validation_errors(fields, form_fields, caught.value)] == ["value.parts.1.name"]


def test_a_diff_shows_lines_and_the_words_within_them() -> None:
    previous = {"title": "Tea", "text": "one\ntwo words\nthree"}
    found = differences.diff_results(previous, {"title": "Tea", "text": "one\ntwo other words\nthree\nfour"})
    shown = [
        (line.kind, "".join(f"[{p.text}]" if p.is_changed else p.text for p in line.pieces)) for line in found.lines
    ]
    assert shown == [
        ("cut", ""),
        ("same", "text:"),
        ("same", "  one"),
        ("del", "  two words"),
        ("add", "  two [other ]words"),
        ("same", "  three"),
        ("add", "  four"),
    ]
    assert (found.added, found.removed) == (2, 1)
    assert not differences.diff_results(previous, previous)


def test_a_long_comparison_is_by_line_where_words_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    class Counting(SequenceMatcher[str]):
        def __init__(self, junk: None, first: list[str], last: list[str]) -> None:
            super().__init__(junk, first, last)
            compared.append(len(first) * len(last))

    monkeypatch.setattr(differences, "SequenceMatcher", Counting)
    before, after = ("\n".join(f"{word} " * 99 + str(number) for number in range(100)) for word in "ab")
    found = differences.diff_results(before, after)
    assert sum(compared) <= differences.MAX_LINES**2 + differences.MAX_WORD_PAIRS
    assert (found.added, found.removed) == (100, 100)
    assert found.lines[0].pieces[0] == differences.Piece("a", is_changed=True)
    assert found.lines[-1].pieces == (differences.Piece(after.splitlines()[-1]),)


@pytest.mark.parametrize(
    ("value", "shown"), [(12.345678, "12.346"), (0.12345, "0.123"), (0.00012345, "0.000123"), (3, "3"), (True, "true")]
)
def test_a_diff_shows_numbers_with_the_displayed_precision(value: float, shown: str) -> None:
    (_, line) = differences.diff_results({"n": "x"}, {"n": value}).lines
    assert "".join(piece.text for piece in line.pieces) == f"n: {shown}"


def test_a_field_path_is_shown_in_readable_form() -> None:
    (url, of_picture) = forms.build_fields({"type": "object", "properties": {"url": {}, "picture_url": {}}})
    assert (url.label, of_picture.label) == ("URL", "Picture URL")


def test_comments_refer_to_times_ranges_or_the_whole() -> None:
    reported = list(timecodes.parse_comments("1:02 loud\n\n01:00:03,5 - 1:00:05 cut \nno time\n9:99:99 odd\n1:5 odd"))
    assert reported[:3] == [
        Comment("loud", 62.0),
        Comment("cut", 3603.5, 3605.0),
        Comment("no time"),
    ]
    assert reported[4] == Comment("1:5 odd")
