"""Charges of attempts, buffered until they are written to the database."""

from __future__ import annotations

import asyncio
from collections import deque

from retoma.define.charge import Charge
from retoma.engine.claim_protocol import Claim
from retoma.errors import DatabaseUnavailable
from retoma.identifiers import new_run_id
from retoma.logs import get_logger
from retoma.store import charges
from retoma.store.database import Database

log = get_logger(__name__)
SECONDS_BETWEEN_WRITES = 1.0
MAX_CHARGES_PER_WRITE = 1_000


class ChargeBuffer:
    """Writes charges before the outcome of their attempt, so an ended run has all its charges, and once a second, so a
    worker that dies loses few. Charges need no lease: the money is spent whether or not the attempt counts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: deque[charges.ChargeEntry] = deque()
        self._writing = asyncio.Lock()

    def add(self, claim: Claim, charge: Charge) -> None:
        """Add a charge. May be called from any thread, including one that was abandoned."""
        self._pending.append(
            charges.ChargeEntry(
                new_run_id(), claim.run, claim.step, claim.item, claim.revision, claim.attempt, claim.tenant, charge
            )
        )

    async def flush(self) -> None:
        """Write all charges added before this call. If the database is unreachable, keep them for the next call."""
        if not self._pending and not self._writing.locked():
            return
        async with self._writing:
            while self._pending:
                some = [self._pending.popleft() for _ in range(min(len(self._pending), MAX_CHARGES_PER_WRITE))]
                try:
                    await charges.write(self._database, some)
                except (DatabaseUnavailable, asyncio.CancelledError) as error:
                    self._pending.extendleft(reversed(some))  # they have ids, so none is written twice
                    if isinstance(error, asyncio.CancelledError):
                        raise
                    log.warning(
                        "charges_delayed",
                        message="could not write charges: the database is unreachable; retrying",
                        charges=len(self._pending),
                        error=error,
                    )
                    return
                except Exception:
                    # Charges that cannot be written must not keep the outcomes of their jobs from being recorded.
                    log.exception(
                        "charges_lost",
                        message="charges could not be written and are not recorded",
                        charges=[vars(one.charge) for one in some],
                    )

    async def run(self) -> None:
        """Flush once a second until cancelled, for attempts that take long."""
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_WRITES)
            await self.flush()
