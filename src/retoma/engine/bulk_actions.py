"""Carry out the actions that people started on many runs, jobs or deliveries.

Every worker and server does a part of each, in a loop of its own. The targets are rows: the transaction that acts on
one deletes its row, so nothing is done twice and a restart loses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.store import bulk_actions
from retoma.store.database import Database

log = get_logger(__name__)
MAX_ACTIONS = 10
MAX_SECONDS = 0.5  # at a time, for all actions together
PAUSE_SECONDS = 1.0  # leaves most of the database's time to the jobs


async def advance_actions_forever(database: Database, on_work: Callable[[], None]) -> None:
    """Act on the targets of all actions until cancelled. `on_work` is called when jobs may have become ready."""
    # Not a part of maintenance: to cancel a run with many jobs takes seconds, in which dead workers must be reaped.
    while True:
        try:
            if await advance_open_actions(database):
                on_work()
        except DatabaseUnavailable as error:
            log.warning(
                "bulk_actions_delayed", message="bulk actions wait for the database, which is unreachable", error=error
            )
        await asyncio.sleep(PAUSE_SECONDS)


async def advance_open_actions(database: Database) -> bool:
    """Act on the next targets of all actions in progress, for a moment. Return whether there were any."""
    actions = await bulk_actions.list_open_actions(database, MAX_ACTIONS)
    return any([await _advance(database, action, MAX_SECONDS / len(actions)) for action in actions])


async def _advance(database: Database, action: UUID, seconds: float) -> bool:
    until, advanced = time.monotonic() + seconds, False
    while await bulk_actions.advance_action(database, action):
        advanced = True
        if time.monotonic() >= until:
            break
    return advanced
