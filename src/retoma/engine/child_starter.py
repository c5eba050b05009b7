"""Starting child runs: each start is recorded as the effect of its job in the transaction that starts the run."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

from retoma.engine.run_starter import StartBatcher
from retoma.identifiers import JobKey
from retoma.store.database import Database, Row

ChildStartState = Literal["started", "taken", "lost"]
"""`started`, also by an earlier call; `taken` if another run has the key; `lost` if another lease owns the job."""


class ChildStart(NamedTuple):
    """One child run to start, with the arguments of the SQL function `start_children`.

    `worker` and `fence` are the lease of the job that starts it. `effect` is the name of the effect, with its functions
    as in `EffectFunctions`. `input` and `request` are JSON.
    """

    worker: int
    job: JobKey
    fence: int
    effect: str
    find: str
    find_key: str
    cancel: str
    request: str
    id: UUID
    tenant: int
    version: int
    input: str
    key: str
    digest: bytes
    title: str | None


class ChildStarter(StartBatcher[ChildStart, ChildStartState]):
    """Starts child runs. If its run could not be started under its key, the job has no effect either."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "start_children", _parse_state)


def _parse_state(_: ChildStart, row: Row) -> ChildStartState:
    state: ChildStartState = row["state"]
    return state
