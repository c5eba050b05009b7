"""External work, and orphaned effects."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field, TypeAdapter

from retoma.errors import NotFound


@dataclass(frozen=True)
class ExternalWork:
    """External work of a job. `external_id` identifies it at the provider; `polls` counts how often it was polled.

    If `is_child_run`, no provider does it: `external_id` is the id of the job's child run.
    """

    step: str
    item: str
    revision: int
    state: str
    external_id: Any
    parked_at: datetime
    running_at: datetime | None
    stopping_at: datetime | None
    ended_at: datetime | None
    progress: float | None
    polls: int
    failed_polls: int
    error: Any
    started_at: datetime | None = None
    """Start of the attempt that submitted it."""
    is_child_run: bool = False


OrphanResolution = Literal["nothing_found", "cancelled_by_hand"]


@dataclass(frozen=True)
class Orphan:
    """What a job may have left at a provider, and only a person can resolve."""

    run: UUID
    run_title: str | None
    pipeline: str
    tenant: str
    step: str
    item: str
    revision: int
    effect: Annotated[
        str, Field(description="The name of `ctx.once`; `external`, at times with a number, for external work.")
    ]
    begun_at: datetime
    orphaned_at: datetime
    value: Annotated[Any, Field(description="What the call returned, if that is known.")]
    key: Annotated[str | None, Field(description="The key under which the provider may know it.")]
    error: Annotated[Any, Field(description="Why no worker could resolve it.")]
    resolution: Annotated[OrphanResolution | None, Field(description="What a person found; null until then.")]
    resolved_at: datetime | None
    resolved_by: str | None

    @property
    def cursor(self) -> str:
        """Return its place in the list of orphans. Pass it as `after` to get the next page."""
        key = (self.orphaned_at, self.run, self.step, self.item, self.revision, self.effect)
        return base64.urlsafe_b64encode(_CURSOR.dump_json(key)).decode()


OrphanKey = tuple[AwareDatetime, UUID, str, str, Annotated[int, Field(ge=1, lt=2**31)], str]
_CURSOR: TypeAdapter[OrphanKey] = TypeAdapter(OrphanKey)


def parse_orphan_cursor(cursor: str) -> OrphanKey:
    """Return when the orphan was left to a person, its run, step, item, revision and effect.

    Raise NotFound if it is not a cursor.
    """
    try:
        return _CURSOR.validate_json(base64.urlsafe_b64decode(cursor))
    except ValueError as error:
        raise NotFound(f"there is no orphan with the cursor {cursor!r:.80}") from error
