"""Carry out the actions that people started on many runs, jobs or deliveries.

Every worker and server does a part of each in its maintenance. The targets are rows: the transaction that acts on one
deletes its row, so nothing is done twice and a restart loses nothing.
"""

from __future__ import annotations

import time
from uuid import UUID

from retoma.store import bulk_actions
from retoma.store.database import Database

MAX_ACTIONS = 10
MAX_SECONDS = 0.5  # at a time: maintenance has other work


async def advance_open_actions(database: Database) -> bool:
    """Act on the next targets of all actions in progress, for a moment. Return whether there were any."""
    until, advanced = time.monotonic() + MAX_SECONDS, False
    for action in await bulk_actions.list_open_actions(database, MAX_ACTIONS):
        advanced |= await _advance(database, action, until)
    return advanced


async def _advance(database: Database, action: UUID, until: float) -> bool:
    advanced = False
    while await bulk_actions.advance_action(database, action):
        advanced = True
        if time.monotonic() >= until:
            break
    return advanced
