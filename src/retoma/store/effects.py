"""Effects: the recorded parts of jobs, and those that jobs without a result leave behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from retoma.records import Orphan
from retoma.records.external_work import OrphanKey
from retoma.store.database import Database, Row
from retoma.store.external_work import DueRequest
from retoma.store.rows import make_record
from retoma.store.statements import statements

_SQL = statements("effects")
EffectState = Literal["new", "begun", "done", "looked_for", "lost"]
Resolution = Literal["not_submitted", "done", "cancelled", "external_work"]
_AFTER = ("after_at", "after_run", "after_step", "after_item", "after_revision", "after_name")
MAX_WORKER_DEATHS = 3  # during looks for one effect, after which only a person can resolve it


@dataclass(frozen=True)
class LeasedEffect:
    """A named effect of a job, under a lease."""

    run: UUID
    step: str
    item: str
    revision: int
    fence: int
    name: str


@dataclass(frozen=True)
class EffectFunctions:
    """How another process finds out whether an effect happened, and ends what it started.

    `find` and `cancel` are locations of functions; `find` takes `find_key`. `request` says, as JSON, how external work
    is polled, if the effect submits some.
    """

    find: str | None = None
    find_key: str | None = None
    cancel: str | None = None
    request: str | None = None


async def begin_effect(
    database: Database,
    worker: int,
    effect: LeasedEffect,
    functions: EffectFunctions,
    token_hash: bytes | None,
    token_lives: timedelta,
) -> tuple[EffectState, str | None]:
    """Return whether the effect began before, and its recorded value as JSON.

    It is `looked_for` while a worker ends what an earlier revision of the job left behind under the same key.
    """
    row = await database.fetch_one(
        _SQL["begin_effect"],
        worker=worker,
        **vars(effect),
        **vars(functions),
        token_hash=token_hash,
        token_lives=token_lives,
    )
    return row["state"], row["value"]


async def end_effect(database: Database, effect: LeasedEffect, value: str) -> bool:
    """Record the value of an effect. Return False if a later lease has taken the job over."""
    return bool(await database.fetch_value(_SQL["end_effect"], **vars(effect), value=value))


async def undo_effect(database: Database, effect: LeasedEffect) -> None:
    """Record that the effect did not happen."""
    await database.fetch(_SQL["undo_effect"], **vars(effect))


@dataclass(frozen=True)
class DueLook:
    """An abandoned effect that a worker should look for. `value` is its value as JSON, if that is known.

    `looks` is the number of this look, `worker_deaths` the number of workers in a row that died during one.
    """

    run: UUID
    step: str
    item: str
    revision: int
    name: str
    version: int
    looks: int
    value: str | None
    find: str | None
    find_key: str | None
    cancel: str | None
    is_submission: bool
    worker_deaths: int

    @property
    def is_given_up(self) -> bool:
        return self.worker_deaths >= MAX_WORKER_DEATHS

    @property
    def is_suspect(self) -> bool:
        """Return whether calling its functions may kill this worker, as it may have killed another."""
        return 0 < self.worker_deaths < MAX_WORKER_DEATHS


async def claim_looks(database: Database, request: DueRequest) -> list[DueLook]:
    return await database.fetch_records(DueLook, _SQL["claim_looks"], **vars(request))


async def record_look(
    database: Database,
    look: DueLook,
    resolution: Resolution | None,
    *,
    value: str | None = None,
    error: str | None = None,
) -> bool:
    """Record what became of the effect; None if the look failed. Return False if a later look was made."""
    key = {name: getattr(look, name) for name in ("run", "step", "item", "revision", "name", "looks")}
    return bool(await database.fetch_value(_SQL["record_look"], **key, value=value, resolution=resolution, error=error))


async def claim_unlogged_orphans(database: Database, limit: int) -> list[Row]:
    """Return the run, step, item and name of effects that became orphans, each to one caller."""
    return await database.fetch(_SQL["claim_unlogged_orphans"], limit=limit)


async def list_orphans(
    database: Database, run: UUID | None, tenants: Sequence[int] | None, after: OrphanKey | None, limit: int
) -> list[Orphan]:
    """Return the orphans of a run, or those of all runs that nobody has resolved, the first ones first."""
    key = dict(zip(_AFTER, after or [None] * len(_AFTER), strict=True))
    rows = await database.fetch(_SQL["list_orphans"], run=run, tenants=tenants, **key, limit=limit)
    return [make_record(Orphan, row, "value", "error") for row in rows]


async def resolve_orphan(database: Database, **values: Any) -> Orphan | None:
    """Return the orphan as it is then: it may have been resolved before. None if there is none."""
    row = await database.fetchrow(_SQL["resolve_orphan"], **values)
    return None if row is None else make_record(Orphan, row, "value", "error")
