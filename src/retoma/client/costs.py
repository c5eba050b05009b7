"""`client.costs`: charges, totals and prices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Literal
from uuid import UUID

from retoma.client.core import Namespace
from retoma.client.validation import MAX_NAME_LENGTH, is_name
from retoma.errors import InvalidInput
from retoma.records import AuditAction, Charge, ChargeTotal, Price
from retoma.store import charges

ChargedBy = Literal["tenant", "run", "step", "item", "provider", "resource", "day"]
MAX_PRICE = 10**10


class Costs(Namespace):
    async def list_charges(self, run: UUID, *, after: UUID | None = None, limit: int = 1_000) -> list[Charge]:
        """Return the charges of a run in order, including failed attempts. For the next page pass the last id."""
        await self._core.check_run(run)
        return await charges.list_for_run(self._database, run, after, limit)

    async def get_totals(
        self,
        *,
        by: Sequence[ChargedBy] = ("step",),
        run: UUID | None = None,
        tenant: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        pipeline: str | None = None,
        limit: int = 1_000,
    ) -> list[ChargeTotal]:
        """Return sums of charges grouped by these fields, highest first. A `day` is one of UTC.

        With `run`, of that run and of its child runs, of their children and so on. With `pipeline`, only of its runs.
        """
        tenants = await self._core.find_tenants(tenant)
        return await charges.sum_charges(
            self._database, by=by, run=run, tenants=tenants, since=since, until=until, pipeline=pipeline, limit=limit
        )

    async def get_spent(self, tenant: str | None = None, since: datetime | None = None) -> int:
        """Return the costs of one or all tenants in millionths of a US dollar, in total or since then."""
        return sum(total.micros for total in await self.get_totals(by=(), tenant=tenant, since=since))

    async def get_by_day(self, since: datetime, zone: str = "UTC") -> dict[date, int]:
        """Return the costs of all tenants in millionths of a US dollar, by day of this time zone.

        Days without costs are left out.
        """
        return await charges.sum_by_day(self._database, since, zone, await self._core.find_tenants())

    async def list_prices(self) -> list[Price]:
        """Return every version of every price, newest first."""
        return await charges.list_prices(self._database)

    async def set_price(
        self, provider: str, resource: str, *, tokens_in: int = 0, tokens_out: int = 0, unit: int = 0
    ) -> Price:
        """Add a new version of a price, in millionths of a US dollar: per million tokens, and per unit.

        Earlier charges keep their cost.
        """
        self._core.require_all_tenants()
        for name, micros in (("tokens_in", tokens_in), ("tokens_out", tokens_out), ("unit", unit)):
            if not 0 <= micros <= MAX_PRICE:
                raise InvalidInput(f"a price is from 0 to {MAX_PRICE:,} micro-dollars; {name} is {micros!r:.40}")
        if not is_name(provider) or not is_name(resource):
            raise InvalidInput(
                f"a price needs a provider and a resource, each a name of up to {MAX_NAME_LENGTH} characters"
            )
        recording = self._recording(
            "add_price",
            AuditAction.PRICE_SET,
            f"{provider}/{resource}",
            after={"tokens_in": tokens_in, "tokens_out": tokens_out, "unit": unit},
        )
        return await charges.set_price(
            recording, provider, resource, tokens_in=tokens_in, tokens_out=tokens_out, unit=unit
        )
