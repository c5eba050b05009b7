"""The results of a fan-out as a join receives them, with the items that have no result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from retoma.errors import DefinitionError

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

SKIPPED = "SKIPPED"
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

    __slots__ = ("_failures", "_keys", "_results")

    def __init__(
        self,
        results: Iterable[Result_co],
        *,
        keys: Iterable[str] | None = None,
        failures: Iterable[FailedItem] = (),
    ) -> None:
        self._results = tuple(results)
        self._keys = tuple(map(str, range(len(self._results))) if keys is None else keys)
        self._failures = tuple(failures)
        if len(self._keys) != len(self._results):
            raise ValueError(f"there are {len(self._results)} results but {len(self._keys)} keys")

    @classmethod
    def of(cls, results: Mapping[str, Result], failures: Iterable[FailedItem] = ()) -> Items[Result]:
        """Create Items from results by key."""
        return Items(results.values(), keys=results.keys(), failures=failures)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the results, in the same order."""
        return self._keys

    @property
    def by_key(self) -> dict[str, Result_co]:
        return dict(zip(self._keys, self._results, strict=True))

    @property
    def failures(self) -> tuple[FailedItem, ...]:
        return self._failures

    @property
    def total(self) -> int:
        """Return the number of items of the fan-out, with and without a result."""
        return len(self._results) + len(self._failures)

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
        return f"Items.of({self.by_key!r}, failures={list(self._failures)!r})"

    def _parts(self) -> tuple[Any, ...]:
        return self._keys, self._results, self._failures


@dataclass(frozen=True)
class ItemCounts:
    """The outcomes of a fan-out's items. Items that their `when=` skipped are neither failed nor succeeded."""

    total: int
    failed: int = 0
    skipped: int = 0

    @property
    def succeeded(self) -> int:
        return self.total - self.failed - self.skipped


@dataclass(frozen=True)
class AllFinished:
    """Returns whether no more items failed than allowed. Called once every item has ended."""

    allow_failed: float

    def __call__(self, counts: ItemCounts) -> bool:
        if isinstance(self.allow_failed, int):
            return counts.failed <= self.allow_failed
        # Divide rather than multiply: 29 / 100 is exactly 0.29, but 0.29 * 100 is below 29.
        return counts.failed == 0 or counts.failed / counts.total <= self.allow_failed


def all_finished(allow_failed: float = 1.0) -> AllFinished:
    """Limit how many items may fail for a join to proceed: a float is a fraction of all items, an int is a count."""
    if allow_failed < 0 or (isinstance(allow_failed, float) and allow_failed > 1):
        raise DefinitionError(
            f"all_finished(allow_failed={allow_failed!r}): pass a fraction from 0.0 to 1.0, or a count as an int"
        )
    return AllFinished(allow_failed)
