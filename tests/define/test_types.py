from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, NewType, Optional, Protocol, TypedDict, TypeVar

import pytest

from retoma.define.items import Items
from retoma.define.types import get_element_type, get_items_element_type, is_compatible

from .builders import Brief, Document


class Invoice(Document): ...


class Colour(StrEnum):
    RED = "red"


class Entry(TypedDict):
    name: str


class Readable(Protocol):
    def read(self) -> str: ...


class Numbers(list[int]): ...


Euros = NewType("Euros", int)
T = TypeVar("T")

FITS = [
    (int, int),
    (Any, int),
    (int, Any),
    (int, object),
    (Invoice, Document),
    (bool, int),
    (int, float),
    (bool, float),
    (int, int | None),
    (int | None, int),
    (int, Optional[int]),  # noqa: UP045
    (int | str, str | bytes),
    (None, int | None),
    (list[int], list[int]),
    (list[int], Sequence[int]),
    (list[int], Iterable[float]),
    (list[Invoice], Sequence[Document]),
    (list, list[int]),
    (list[int], list),
    (tuple[int, ...], Sequence[int]),
    (tuple[int, str], tuple[int, str]),
    (dict[str, int], Mapping[str, float]),
    (dict[str, Any], dict[str, int]),
    (Entry, dict[str, Any]),
    (dict[str, str], Entry),
    (Annotated[int, "positive"], int),
    (list[int], Annotated[list[int], "short"]),
    (Euros, int),
    (int, Euros),
    (Literal["a", "b"], str),
    (str, Literal["a", "b"]),
    (Colour, str),
    (Document, Readable),
    (Awaitable[int], int),
    (Numbers, list[str]),
    (int, T),
    (int, "Unresolved"),
]

CLASHES = [
    (int, str),
    (str, int),
    (float, int),
    (Document, Invoice),
    (Document, Brief),
    (None, str),
    (int, str | None),
    (list[int], list[str]),
    (list[int], Sequence[str]),
    (list[int], dict[str, int]),
    (list[int], int),
    (dict[str, int], Mapping[str, str]),
    (tuple[int, str], tuple[int, int]),
    (Entry, list[str]),
    (Euros, str),
    (Literal[1], str),
    (str, Colour),
    (Annotated[int, "positive"], str),
    (Items[int], list[str]),
]


@pytest.mark.parametrize(("values", "wanted"), FITS)
def test_a_possibly_compatible_type_is_accepted(values: Any, wanted: Any) -> None:
    assert is_compatible(values, wanted)


@pytest.mark.parametrize(("values", "wanted"), CLASHES)
def test_a_certainly_incompatible_type_is_reported(values: Any, wanted: Any) -> None:
    assert not is_compatible(values, wanted)


@pytest.mark.parametrize(
    ("annotation", "element"),
    [
        (list[int], int),
        (Sequence[Document], Document),
        (tuple[int, ...], int),
        (tuple[int, str], Any),
        (list, Any),
        (Any, Any),
        (list[int] | None, int),
        (str, None),
        (dict[str, int], None),
        (set[int], None),
        (int, None),
        (None, None),
    ],
)
def test_the_elements_of_a_list_have_its_item_type(annotation: Any, element: Any) -> None:
    assert get_element_type(annotation) == element


def test_a_join_is_an_annotation_with_items() -> None:
    assert get_items_element_type(Items[int]) is int
    assert get_items_element_type(Items) is Any
    assert get_items_element_type(Items[int] | None) is int
    assert get_items_element_type(list[int]) is None
    assert get_items_element_type(Any) is None
