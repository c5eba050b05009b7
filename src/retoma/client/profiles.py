"""What an application knows of its tenants."""

from __future__ import annotations

from typing import Any

from retoma.client.base import Base
from retoma.client.validation import check_start_options, encode_value
from retoma.errors import Conflict, NotFound
from retoma.records import Profile
from retoma.store import profiles


class Profiles(Base):
    async def profile(self, tenant: str) -> Profile:
        """What this application knows of a tenant. Raises NotFound if that is nothing."""
        found = await profiles.list_profiles(self.database, self._app_name, tenant)
        if not found:
            raise NotFound(f"there is no {tenant!r}")
        return found[0]

    async def profiles(self) -> list[Profile]:
        """All that this application knows of tenants, by name."""
        return await profiles.list_profiles(self.database, self._app_name)

    async def set_profile(self, tenant: str, value: Any, *, revision: int | None = None) -> Profile:
        """Keep what the application knows of a tenant: its settings, as JSON.

        With `revision`, only if it is still of that revision, and 0 means that there is none yet; otherwise Conflict.
        """
        check_start_options(tenant=tenant, key=None, priority=0, run_at=None)
        owner = await self._tenants.get_or_create_id(tenant)
        if not await profiles.put_profile(self.database, self._app_name, owner, encode_value(value), revision):
            raise Conflict(f"{tenant!r} was changed by somebody else: look at it again")
        return await self.profile(tenant)

    async def drop_profile(self, tenant: str) -> None:
        """Forget it. Runs of the tenant stay."""
        if not await profiles.drop_profile(self.database, self._app_name, tenant):
            raise NotFound(f"there is no {tenant!r}")
