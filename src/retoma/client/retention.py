"""`client.retention`: how long ended runs are kept, what would be removed, and erasing at once."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID

from retoma.client.core import Namespace
from retoma.client.validation import MAX_NAME_LENGTH, is_name
from retoma.engine.retention import remove_due
from retoma.errors import InvalidInput, NotFound
from retoma.records import (
    AuditAction,
    Erasure,
    FinalClass,
    RetentionPreview,
    RetentionRule,
    RetentionTotals,
    RunHold,
    RunRemoval,
    TableSize,
)
from retoma.store import retention

MAX_KEEP = timedelta(days=36_500)
MAX_PREVIEWED = 1_000_000  # runs of each version
ERASED_PER_BATCH = 100


class Retention(Namespace):
    async def list_rules(self) -> list[RetentionRule]:
        """Return the rules that people have set, what pipelines declare, and last the settings of this process.

        The most specific one applies: pipeline and tenant, pipeline, tenant, declaration of the pipeline, neither.
        """
        self._core.require_all_tenants()
        times = self._core.retention
        defaults = [
            RetentionRule(None, None, FinalClass.ENDED, times.ended, None, None),
            RetentionRule(None, None, FinalClass.FAILED, times.failed, None, None),
        ]
        return await retention.list_rules(self._database) + defaults

    async def set_rule(
        self,
        keep: timedelta | None,
        *,
        pipeline: str | None = None,
        tenant: str | None = None,
        final_class: FinalClass | str = FinalClass.ENDED,
        by: str | None = None,
    ) -> None:
        """Keep runs that ended this way for `keep` after their end and that of their last delivery; None: for ever."""
        self._core.require_all_tenants()
        if keep is not None and not timedelta(0) <= keep <= MAX_KEEP:
            raise InvalidInput(f"runs are kept from 0 to {MAX_KEEP.days:,} days, not {keep}")
        if pipeline is not None and not is_name(pipeline):
            raise InvalidInput(f"a pipeline is a name of up to {MAX_NAME_LENGTH} characters")
        kind = _parse_class(final_class)
        recording = self._recording(
            "set_rule", AuditAction.RETENTION_SET_RULE, _name_rule(pipeline, tenant, kind), after={"keep": keep}
        )
        await retention.set_rule(
            recording,
            pipeline=pipeline,
            tenant=await self._find_tenant(tenant),
            final_class=kind,
            keep=keep,
            by=self._get_author(by),
        )

    async def remove_rule(
        self,
        *,
        pipeline: str | None = None,
        tenant: str | None = None,
        final_class: FinalClass | str = FinalClass.ENDED,
    ) -> None:
        """Remove a rule that was set: the next less specific one applies. Raise NotFound if there is none."""
        self._core.require_all_tenants()
        kind = _parse_class(final_class)
        name = _name_rule(pipeline, tenant, kind)
        recording = self._recording("remove_rule", AuditAction.RETENTION_REMOVE_RULE, name)
        found = await self._find_tenant(tenant)
        if not await retention.remove_rule(recording, pipeline=pipeline, tenant=found, final_class=kind):
            raise NotFound(f"there is no rule of retention for {name}")

    async def preview(self) -> RetentionPreview:
        """Return what would be removed now, and about how many bytes of the database and of files. Changes nothing."""
        self._core.require_all_tenants()
        return await retention.preview(self._database, self._core.retention, MAX_PREVIEWED)

    async def run(self) -> int:
        """Remove all runs that are due now, without waiting for the next pass of a worker. Return how many.

        Returns 0 if another process is removing them.
        """
        self._core.require_all_tenants()
        removed = await remove_due(self._database, self._core.retention, at_once=True)
        # One entry for all transactions. If this process dies before it, the removals are still listed.
        recording = self._recording(
            "get_progress", AuditAction.RETENTION_RUN, None, after={"runs": removed}, applies=lambda _: removed > 0
        )
        await retention.get_totals(recording)
        return removed

    async def hold(self, run: UUID, reason: str, *, by: str | None = None) -> None:
        """Keep a run whatever the rules say, and refuse to erase it. Raise NotFound if there is no such run."""
        if not reason.strip() or len(reason) > 2_000:
            raise InvalidInput("a hold needs a reason of up to 2,000 characters")
        recording = self._recording("hold_run", AuditAction.RUN_HOLD, run, after={"reason": reason})
        tenant = await self._core.find_owner("run", run)
        if not await retention.hold_run(recording, run, tenant, self._get_author(by), reason):
            raise NotFound(f"there is no run {run}")

    async def release(self, run: UUID) -> None:
        """Let the rules apply to a held run again. Raise NotFound if it is not held."""
        recording = self._recording("release_run", AuditAction.RUN_RELEASE, run)
        if not await retention.release_run(recording, run, await self._core.find_owner("run", run)):
            raise NotFound(f"run {run} is not held")

    async def list_holds(self, run: UUID | None = None, *, limit: int = 100) -> list[RunHold]:
        """Return the held runs, the last one first; or the hold of one run."""
        tenants = await self._core.find_tenants()
        return await retention.list_holds(self._database, run=run, tenants=tenants, limit=limit)

    async def erase_run(self, run: UUID) -> Erasure:
        """Remove a run and its child runs at once; files that only these runs name are deleted within three days.

        Deliveries that are not sent yet are dropped. Raise RunBusy if it has not ended, and RunHeld if it is held.
        """
        owner = await self._core.find_owner("run", run)
        tenant = await self._core.tenants.find_owner("run", run)
        recording = self._recording(
            "erase_run",
            AuditAction.RUN_ERASE,
            run,
            tenant=tenant,
            after=lambda rows: dict(rows[0]),
        )
        erased = await retention.erase_run(recording, run, owner)
        if erased is None:
            raise NotFound(f"there is no run {run}")
        return erased

    async def erase_tenant(self, tenant: str) -> Erasure:
        """Remove all runs of a tenant at once, and everything else that is stored for it.

        This includes its connections to outside services, profiles, facts, schedules, budgets and roles. Its API keys
        are revoked. Files that only its runs name are deleted within three days. Its costs, its name and its entries of
        the audit log stay. Raise RunBusy if a run has not ended, and RunHeld if one is held. If it is interrupted, call
        it again.
        """
        self._core.require_all_tenants()
        found = await self._find_tenant(tenant)
        assert found is not None
        await retention.check_erasable(self._database, found)
        runs, files = 0, 0
        while (erased := await retention.erase_runs_of_tenant(self._database, found, ERASED_PER_BATCH)).runs:
            runs, files = runs + erased.runs, files + erased.files
        total = Erasure(runs, files)
        recording = self._recording(
            "erase_tenant_rows", AuditAction.TENANT_ERASE, tenant, after=asdict(total), applies=bool
        )
        await retention.erase_tenant_rows(recording, found)
        return total

    async def get_totals(self) -> RetentionTotals:
        """Return what was removed so far."""
        self._core.require_all_tenants()
        return await retention.get_totals(self._database)

    async def list_removals(self, *, limit: int = 100) -> list[RunRemoval]:
        """Return how many runs were removed on each day, the last day first."""
        self._core.require_all_tenants()
        return await retention.list_removals(self._database, limit)

    async def list_table_sizes(self) -> list[TableSize]:
        """Return what each table of the database takes on disk, the largest first."""
        self._core.require_all_tenants()
        return await retention.list_table_sizes(self._database)

    async def _find_tenant(self, tenant: str | None) -> int | None:
        if tenant is None:
            return None
        found = await self._core.tenants.find_id(tenant)
        if found is None:
            raise NotFound(f"there is no tenant {tenant!r:.80}")
        return found


def _parse_class(value: Any) -> FinalClass:
    try:
        return FinalClass(value)
    except ValueError:
        raise InvalidInput(f"runs end as {' or '.join(FinalClass)}, not as {value!r:.40}") from None


def _name_rule(pipeline: str | None, tenant: str | None, final_class: FinalClass) -> str:
    """Return the name of a rule in the audit log: `pipeline article, tenant blog, failed`."""
    parts = (f"pipeline {pipeline}" if pipeline else "", f"tenant {tenant}" if tenant else "", str(final_class))
    return ", ".join(part for part in parts if part)
