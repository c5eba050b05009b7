"""`client.tenants`: what an application knows about its tenants."""

from __future__ import annotations

from typing import Any

from retoma.client.core import Namespace
from retoma.client.validation import check_start_options, encode_value
from retoma.errors import Conflict, NotFound
from retoma.records import Profile
from retoma.store import profiles


class TenantProfiles(Namespace):
    async def get_profile(self, tenant: str) -> Profile:
        """What this application knows of a tenant. Raises NotFound if that is nothing."""
        found = await profiles.list_profiles(self._database, self._core.app_name, tenant)
        if not found:
            raise NotFound(f"there is no {tenant!r}")
        return found[0]

    async def list_profiles(self) -> list[Profile]:
        """All that this application knows of tenants, by name."""
        return await profiles.list_profiles(self._database, self._core.app_name)

    async def set_profile(self, tenant: str, value: Any, *, revision: int | None = None) -> Profile:
        """Keep what the application knows of a tenant: its settings, as JSON.

        With `revision`, only if it is still of that revision, and 0 means that there is none yet; otherwise Conflict.
        """
        check_start_options(tenant=tenant, key=None, priority=0, run_at=None)
        owner = await self._core.tenants.get_or_create_id(tenant)
        if not await profiles.put_profile(self._database, self._core.app_name, owner, encode_value(value), revision):
            raise Conflict(f"{tenant!r} was changed by somebody else: look at it again")
        return await self.get_profile(tenant)

    async def delete_profile(self, tenant: str) -> None:
        """Forget it. Runs of the tenant stay."""
        if not await profiles.drop_profile(self._database, self._core.app_name, tenant):
            raise NotFound(f"there is no {tenant!r}")
