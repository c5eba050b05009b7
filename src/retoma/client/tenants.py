"""`client.tenants`: the profiles that an application stores about its tenants."""

from __future__ import annotations

from typing import Any

from retoma.client.core import Namespace
from retoma.client.validation import check_start_options, encode_value
from retoma.errors import Conflict, NotFound
from retoma.records import Profile
from retoma.store import tenant_profiles


class TenantProfiles(Namespace):
    async def get_profile(self, tenant: str) -> Profile:
        """Return the profile of a tenant in this application. Raise NotFound if there is none."""
        found = await tenant_profiles.list_profiles(self._database, self._core.app_name, tenant)
        if not found:
            raise NotFound(f"there is no profile of {tenant!r}")
        return found[0]

    async def list_profiles(self) -> list[Profile]:
        """Return all profiles of this application, by name of the tenant."""
        return await tenant_profiles.list_profiles(self._database, self._core.app_name)

    async def set_profile(self, tenant: str, value: Any, *, revision: int | None = None) -> Profile:
        """Store the profile of a tenant: its settings, as JSON.

        With `revision`, raise Conflict unless the stored profile is of that revision; 0 means that there is none yet.
        """
        check_start_options(tenant=tenant, key=None, priority=0, run_at=None)
        owner = await self._core.tenants.get_or_create_id(tenant)
        if not await tenant_profiles.put_profile(
            self._database, self._core.app_name, owner, encode_value(value), revision
        ):
            raise Conflict(f"the profile of {tenant!r} was changed by somebody else: load it again")
        return await self.get_profile(tenant)

    async def delete_profile(self, tenant: str) -> None:
        """Delete the profile. Runs of the tenant are kept."""
        if not await tenant_profiles.drop_profile(self._database, self._core.app_name, tenant):
            raise NotFound(f"there is no profile of {tenant!r}")
