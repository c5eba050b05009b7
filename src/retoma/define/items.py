"""The results of a fan-out as a join receives them, with the items that have no result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from retoma.errors import DefinitionError

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

NOT_WANTED = "NOT_WANTED"
"""The code of an item that its own `when=` skipped: it has no result, but it did not fail."""


@dataclass(frozen=True)
class FailedItem:
    """An item that ended without a result."""

    key: str
    code: str
    state: Literal["failed", "skipped", "quarantined", "cancelled"] = "failed"


class Items(Sequence[Result_co]):
    """The results of the successful items, in item order. As an annotation, `Items[T]` declares a join.

    Items without a result are in `failed`, including skipped ones.
    """

    __slots__ = ("_failed", "_keys", "_results")

    def __init__(
        self,
        results: Iterable[Result_co],
        *,
        keys: Iterable[str] | None = None,
        failed: Iterable[FailedItem] = (),
    ) -> None:
        self._results = tuple(results)
        self._keys = _positions(self._results) if keys is None else tuple(keys)
        self._failed = tuple(failed)
        if len(self._keys) != len(self._results):
            raise ValueError(f"there are {len(self._results)} results but {len(self._keys)} keys")

    @classmethod
    def of(cls, results: Mapping[str, Result], failed: Iterable[FailedItem] = ()) -> Items[Result]:
        """Create Items from results by key."""
        return Items(results.values(), keys=results.keys(), failed=failed)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the results, in the same order."""
        return self._keys

    @property
    def by_key(self) -> dict[str, Result_co]:
        return dict(zip(self._keys, self._results, strict=True))

    @property
    def failed(self) -> tuple[FailedItem, ...]:
        return self._failed

    @property
    def total(self) -> int:
        """Return the number of items of the fan-out, with and without a result."""
        return len(self._results) + len(self._failed)

    def __len__(self) -> int:
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Result_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Result_co, ...]: ...
    def __getitem__(self, index: int | slice) -> Result_co | tuple[Result_co, ...]:
        return self._results[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Items):
            return NotImplemented
        return self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"Items.of({self.by_key!r}, failed={list(self._failed)!r})"

    def _parts(self) -> tuple[Any, ...]:
        return self._keys, self._results, self._failed


def _positions(results: Sequence[object]) -> tuple[str, ...]:
    return tuple(str(position) for position in range(len(results)))


@dataclass(frozen=True)
class ItemCounts:
    """The outcomes of a fan-out's items. Items that their `when=` skipped are neither failed nor succeeded."""

    total: int
    failed: int = 0
    not_wanted: int = 0

    @property
    def succeeded(self) -> int:
        return self.total - self.failed - self.not_wanted


@dataclass(frozen=True)
class Finished:
    """Returns whether no more items failed than allowed. Called once every item has ended."""

    allow_failed: float

    def __call__(self, counts: ItemCounts) -> bool:
        if isinstance(self.allow_failed, int):
            return counts.failed <= self.allow_failed
        # Divide rather than multiply: 29 / 100 is exactly 0.29, but 0.29 * 100 is below 29.
        return counts.failed == 0 or counts.failed / counts.total <= self.allow_failed


def finished(allow_failed: float = 1.0) -> Finished:
    """Limit how many items may fail for a join to proceed: a float is a fraction of all items, an int is a count."""
    if allow_failed < 0 or (isinstance(allow_failed, float) and allow_failed > 1):
        raise DefinitionError(
            f"finished(allow_failed={allow_failed!r}): pass a fraction from 0.0 to 1.0, or a count as an int"
        )
    return Finished(allow_failed)
