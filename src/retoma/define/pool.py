"""A pool: capacity that many steps share, such as three GPUs or five calls at a time."""

from __future__ import annotations

from dataclasses import dataclass

from retoma.define.definition_errors import Location, check_name

MAX_CAPACITY = 1_000_000
MIN_RATE = 0.000001


@dataclass(frozen=True)
class Pool:
    """`capacity` slots, of which a job takes one or more while it runs or its outside work does.

    With `rate`, no more than so many jobs begin in a second, and after a quiet time up to `burst` at once. No tenant
    holds more than `per_tenant` slots at a time.
    The numbers are where the pool begins; `retoma pools set` changes them while it is in use, and a later
    change here is taken over when the application is next started.
    """

    name: str
    capacity: int
    rate: float | None = None
    burst: int = 1
    per_tenant: int | None = None

    def __post_init__(self) -> None:
        place = Location(self.name, kind="pool")
        check_name("pool", self.name, place, extra_characters="-.")
        if not _is_whole(self.capacity) or not 0 <= self.capacity <= MAX_CAPACITY:
            raise place.error(f"capacity= is {self.capacity!r}; give a number of slots, such as 3")
        if self.rate is not None and not MIN_RATE <= self.rate <= MAX_CAPACITY:
            raise place.error(f"rate= is {self.rate!r}; give how many jobs may begin in a second, {MIN_RATE:f} or more")
        if not _is_whole(self.burst) or not 1 <= self.burst <= MAX_CAPACITY:
            raise place.error(f"burst= is {self.burst!r}; give a number above zero")
        if self.per_tenant is not None and not (_is_whole(self.per_tenant) and 1 <= self.per_tenant <= MAX_CAPACITY):
            raise place.error(f"per_tenant= is {self.per_tenant!r}; give a number of slots above zero")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
