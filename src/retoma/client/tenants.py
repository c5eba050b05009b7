"""`client.tenants`: the profiles that an application stores about its tenants."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from retoma.client.audit_values import list_changes
from retoma.client.core import Namespace
from retoma.client.validation import check_start_options, encode_value
from retoma.errors import AccessDenied, Conflict, NotFound
from retoma.records import ALL_TENANTS, AuditAction, Profile
from retoma.store import tenant_profiles
from retoma.store.database import Database


class TenantProfiles(Namespace):
    async def get_profile(self, tenant: str) -> Profile:
        """Return the profile of a tenant in this application. Raise NotFound if there is none."""
        for profile in await tenant_profiles.list_profiles(self._database, self._core.app_name, tenant):
            if self._core.may_act_on(tenant):
                return profile
        raise NotFound(f"there is no profile of {tenant!r}")

    async def list_profiles(self) -> list[Profile]:
        """Return all profiles of this application, by name of the tenant."""
        found = await tenant_profiles.list_profiles(self._database, self._core.app_name)
        return [profile for profile in found if self._core.may_act_on(profile.tenant)]

    async def list_names(self) -> list[str]:
        """Return the names of all tenants, in order."""
        return [name for name in await self._core.tenants.list_names() if self._core.may_act_on(name)]

    def choose_owner(self, tenants: Iterable[str]) -> str:
        """Return the tenant of one run that is about these tenants: `ALL_TENANTS`, or if this client is limited, the
        only one that is possible. Raise AccessDenied if several are.
        """
        if self._core.limit is None:
            return ALL_TENANTS
        allowed = self._core.limit.tenants
        possible = allowed if len(allowed) == 1 else frozenset(tenants)
        if len(possible) != 1:
            raise AccessDenied("this is about several tenants: do it for each of them, or with access to all tenants")
        return next(iter(possible))

    async def set_profile(self, tenant: str, value: Any, *, revision: int | None = None) -> Profile:
        """Store the profile of a tenant: its settings, as JSON.

        With `revision`, raise Conflict unless the stored profile is of that revision; 0 means that there is none yet.
        """
        check_start_options(tenant=tenant, key=None, priority=0, run_at=None)
        owner = await self._core.get_or_create_tenant(tenant)
        app, text = self._core.app_name, encode_value(value)
        recording = await self._recording_profile(tenant, json.loads(text))
        if not await tenant_profiles.put_profile(recording, app, owner, text, revision):
            raise Conflict(f"the profile of {tenant!r} was changed by somebody else: load it again")
        return await self.get_profile(tenant)

    async def delete_profile(self, tenant: str) -> None:
        """Delete the profile. Runs of the tenant are kept."""
        await self.get_profile(tenant)
        recording = self._recording("drop_profile", AuditAction.TENANT_DELETE_PROFILE, tenant)
        if not await tenant_profiles.drop_profile(recording, self._core.app_name, tenant):
            raise NotFound(f"there is no profile of {tenant!r}")

    async def _recording_profile(self, tenant: str, value: Any) -> Database:
        """Record the fields that change."""
        known = await tenant_profiles.list_profiles(self._database, self._core.app_name, tenant)
        before, after = list_changes(_as_object(known[0].value if known else {}), _as_object(value))
        return self._recording(
            ("add_profile", "change_profile"),
            AuditAction.TENANT_SET_PROFILE,
            tenant,
            before=before,
            after=lambda rows: {**after, "revision": rows[0]["revision"]},
        )


def _as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"value": value}
