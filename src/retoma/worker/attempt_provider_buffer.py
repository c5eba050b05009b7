"""Providers of attempts, buffered until they are written to the database."""

from __future__ import annotations

from collections.abc import Sequence

from retoma.engine.claim_protocol import Claim
from retoma.errors import DatabaseUnavailable
from retoma.logs import get_logger
from retoma.store import attempt_providers
from retoma.store.attempt_providers import AttemptProvider
from retoma.worker.write_buffer import WriteBuffer

log = get_logger(__name__)


class AttemptProviderBuffer(WriteBuffer[AttemptProvider]):
    def add(self, claim: Claim, provider: str) -> None:
        self._pending.append(
            AttemptProvider(claim.run, claim.step, claim.item, claim.revision, claim.attempt, claim.fence, provider)
        )

    async def _write(self, entries: Sequence[AttemptProvider]) -> None:
        await attempt_providers.write(self._database, entries)

    def _log_delay(self, error: DatabaseUnavailable) -> None:
        log.warning(
            "attempt_providers_delayed",
            message="could not write the providers of attempts: the database is unreachable; retrying",
            attempts=len(self._pending),
            error=error,
        )

    def _log_loss(self, entries: Sequence[AttemptProvider]) -> None:
        log.exception(
            "attempt_providers_lost",
            message="the providers of attempts could not be written and are not recorded",
            providers=sorted({entry.provider for entry in entries}),
        )
