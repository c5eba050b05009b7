"""The title of a run: a format string over the inputs, or a function of them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, computed_field

from retoma.define.pipeline import Pipeline
from retoma.define.title import MAX_TITLE_LENGTH, Title

from .builders import Brief
from .test_definition_errors import mistake


class File(BaseModel):
    name: str


class Order(BaseModel):
    customer: str
    file: File = File(name="a.pdf")
    tags: list[str] = []
    note: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def initial(self) -> str:
        return self.customer[0]


def make_title(title: Title, **fields: Any) -> str | None:
    return Pipeline("orders", Order, title=title).format_title(Order(**{"customer": "Ana"} | fields))


def test_a_title_can_be_a_format_string_over_the_inputs() -> None:
    assert make_title("{customer}: {file.name}") == "Ana: a.pdf"
    assert make_title("{initial}. {tags[0]!r:>7}", tags=["new"]) == "A. 'new'"


def test_a_title_can_be_a_function_of_the_inputs() -> None:
    assert make_title(lambda order: f"{order.customer.upper()} ({len(order.tags)})") == "ANA (0)"


def test_a_pipeline_without_inputs_has_a_constant_title() -> None:
    assert Pipeline("digest", title="Daily digest").format_title(None) == "Daily digest"


def test_a_pipeline_without_a_title_produces_none() -> None:
    assert Pipeline("orders", Order).format_title(Order(customer="Ana")) is None


def test_a_field_without_a_value_is_empty_in_a_title() -> None:
    assert make_title("{customer} {note}") == "Ana"


@pytest.mark.parametrize(
    "title", ["{note}", lambda _: None, lambda _: "", lambda _: " \n\t", lambda _: "\x00\x1b\u202e"]
)
def test_an_empty_title_becomes_none(title: Title) -> None:
    assert make_title(title) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\r\n\tand  spaces ", "two lines and spaces"),
        ("\x1b[31mred\x07\x9b2J", "[31mred2J"),
        ("safe\u202egpj.exe\u202c\u2066\u2069\u200b\ufeff", "safegpj.exe"),
        ("nul\x00 half \ud83d", "nul half"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("açaí 茶 שלום 👩‍🚀", "açaí 茶 שלום 👩‍🚀"),
    ],
)
def test_a_title_contains_no_terminal_control_characters(text: str, shown: str) -> None:
    assert make_title(lambda _: text) == shown


def test_a_long_title_is_cut() -> None:
    title = make_title("{customer}", customer="x" * 5_000_000)
    assert title is not None
    assert len(title) == MAX_TITLE_LENGTH
    assert title.endswith("x…")


def test_a_title_function_that_does_not_return_a_string_is_an_error() -> None:
    with pytest.raises(TypeError, match="returned int"):
        make_title(lambda _: 7)  # type: ignore[arg-type, return-value]


def test_the_error_for_an_unknown_title_field_suggests_the_nearest() -> None:
    with mistake("pipeline 'article'", "title=", "'topik'", "did you mean 'topic'?"):
        Pipeline("article", Brief, title="On {topik}")


def test_the_error_for_an_unknown_nested_field_suggests_the_nearest() -> None:
    with mistake("'nam'", "File", "did you mean 'name'?"):
        Pipeline("orders", Order, title="{file.nam}")


def test_an_unknown_field_in_a_format_specification_is_found() -> None:
    with mistake("'widht'"):
        Pipeline("article", Brief, title="{topic:{widht}}")


@pytest.mark.parametrize("title", ["{}", "{0}"])
def test_positional_fields_in_a_title_are_rejected(title: str) -> None:
    with mistake("no field of Brief", "'topic'"):
        Pipeline("article", Brief, title=title)


@pytest.mark.parametrize("title", ["{topic", "topic}", "{topic!x}"])
def test_an_invalid_format_string_is_rejected(title: str) -> None:
    with mistake("pipeline 'article'", f"title= is {title!r}"):
        Pipeline("article", Brief, title=title)


async def _later(brief: Brief) -> str:
    return brief.topic


@pytest.mark.parametrize("title", [7, _later, lambda: "nothing", lambda one, two: "both"])
def test_a_title_that_is_not_a_function_of_the_inputs_is_rejected(title: Any) -> None:
    with mistake("pipeline 'article'", "title= is", "function"):
        Pipeline("article", Brief, title=title)


@pytest.mark.parametrize("title", ["{topic}", lambda inputs: str(inputs)])
def test_a_title_with_fields_needs_inputs(title: Title) -> None:
    with mistake("pipeline 'digest'", "give a plain text"):
        Pipeline("digest", title=title)


def test_the_error_for_a_misspelt_title_option_suggests_it() -> None:
    with mistake("'titel'", "did you mean 'title'?"):
        Pipeline("article", Brief, titel="{topic}")  # type: ignore[arg-type]
