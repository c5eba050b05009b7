"""Charges of attempts, buffered until they are written to the database."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.define.charge import Charge
from retoma.engine.claim_protocol import Claim
from retoma.errors import DatabaseUnavailable
from retoma.identifiers import new_run_id
from retoma.logs import get_logger
from retoma.store import charges
from retoma.store.charges import ChargeEntry
from retoma.worker.write_buffer import WriteBuffer

log = get_logger(__name__)


class ChargeBuffer(WriteBuffer[ChargeEntry]):
    """Charges count whether or not the attempt does: the money is spent."""

    def add(self, claim: Claim, charge: Charge) -> None:
        """Add a charge. May be called from any thread, including one that was abandoned."""
        self._pending.append(
            ChargeEntry(
                new_run_id(), claim.run, claim.step, claim.item, claim.revision, claim.attempt, claim.tenant, charge
            )
        )

    async def _write(self, entries: Sequence[ChargeEntry]) -> None:
        await charges.write(self._database, entries)  # they have ids, so none is written twice

    def _log_delay(self, error: DatabaseUnavailable) -> None:
        log.warning(
            "charges_delayed",
            message="could not write charges: the database is unreachable; retrying",
            charges=len(self._pending),
            error=error,
        )

    def _log_loss(self, entries: Sequence[ChargeEntry]) -> None:
        log.exception(
            "charges_lost",
            message="charges could not be written and are not recorded",
            charges=[vars(entry.charge) for entry in entries],
        )
