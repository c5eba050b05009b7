"""A pool: capacity that steps share, such as three GPUs or five concurrent calls."""

from __future__ import annotations

from dataclasses import dataclass

from retoma.define.definition_errors import Location, check_name

MAX_CAPACITY = 1_000_000
MIN_RATE = 0.000001


@dataclass(frozen=True)
class Pool:
    """`capacity` slots. A job holds one or more of them while it runs or its external work does.

    `rate` limits the jobs that start per second; after an idle period up to `burst` start at once. `per_tenant` limits
    the slots that one tenant holds at a time.
    The numbers are initial values; `retoma pools update` changes them while the pool is in use. A later change here
    takes effect when the application next starts.
    """

    name: str
    capacity: int
    rate: float | None = None
    burst: int = 1
    per_tenant: int | None = None

    def __post_init__(self) -> None:
        location = Location(self.name, kind="pool")
        check_name("pool", self.name, location, extra_characters="-.")
        if not _is_whole(self.capacity) or not 0 <= self.capacity <= MAX_CAPACITY:
            raise location.error(f"capacity= is {self.capacity!r}; pass a number of slots, such as 3")
        if self.rate is not None and not MIN_RATE <= self.rate <= MAX_CAPACITY:
            raise location.error(
                f"rate= is {self.rate!r}; pass how many jobs may start per second, {MIN_RATE:f} or more"
            )
        if not _is_whole(self.burst) or not 1 <= self.burst <= MAX_CAPACITY:
            raise location.error(f"burst= is {self.burst!r}; pass a whole number above zero")
        if self.per_tenant is not None and not (_is_whole(self.per_tenant) and 1 <= self.per_tenant <= MAX_CAPACITY):
            raise location.error(f"per_tenant= is {self.per_tenant!r}; pass a number of slots above zero")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
