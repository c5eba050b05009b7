"""`client.api_keys`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from retoma.client.audit_values import keep_set
from retoma.client.core import Namespace
from retoma.client.validation import check_name, check_time
from retoma.engine import api_keys
from retoma.engine.api_keys import OVERLAP
from retoma.errors import InvalidInput
from retoma.records import ALL_TENANTS, ApiKey, AuditAction, NewApiKey, Scope
from retoma.store import api_keys as stored_keys


class ApiKeys(Namespace):
    async def create(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        tenant: str | None = None,
        expires_at: datetime | None = None,
    ) -> NewApiKey:
        """Create an API key. Only this response contains its secret. Without a tenant it is valid for all tenants.

        Raise Conflict if two active keys already have this name.
        """
        return await self._create(name, scopes, tenant, expires_at)

    async def _create(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        tenant: str | None,
        expires_at: datetime | None,
        replaced: ApiKey | None = None,
    ) -> NewApiKey:
        check_name("tenant", tenant)
        if tenant == ALL_TENANTS:
            raise InvalidInput(f"no key can be limited to {ALL_TENANTS!r}: omit the tenant for a key for all tenants")
        check_name("name", name)
        check_time("expires_at", expires_at)
        if tenant is None:
            self._core.require_all_tenants()
        owner = None if tenant is None else (await self._core.get_or_create_tenant(tenant), tenant)
        wanted = [Scope(scope) for scope in scopes]
        recording = self._recording(
            "add_key",
            AuditAction.API_KEY_CREATE if replaced is None else AuditAction.API_KEY_ROTATE,
            lambda rows: str(rows[0]["id"]),
            before=None if replaced is None else {"key": replaced.id},
            after=keep_set(name=name, scopes=sorted(wanted), expires_at=expires_at),
        )
        return await api_keys.create(recording, name, wanted, owner, expires_at)

    async def revoke(self, key: int) -> ApiKey:
        """Revoke a key. Every server rejects it within a second."""
        await self._get(key)
        return await api_keys.revoke(self._recording("revoke_key", AuditAction.API_KEY_REVOKE, key), key)

    async def rotate(self, key: int, *, overlap: timedelta = OVERLAP) -> NewApiKey:
        """Create a successor of this key. The old key stays valid for `overlap`."""
        previous = await self._get(key)
        expires_at = await api_keys.get_successor_expiry(self._database, previous)
        successor = await self._create(previous.name, previous.scopes, previous.tenant, expires_at, previous)
        await stored_keys.expire_after(self._database, key, overlap)
        return successor

    async def find_by_secret(self, secret: str) -> ApiKey | None:
        """Return the active key with this secret, if there is one."""
        return await api_keys.find_by_secret(self._database, secret)

    async def list(self, *, tenant: str | None = None, include_ended: bool = False) -> list[ApiKey]:
        """Return API keys, newest first; `include_ended` includes revoked and expired keys."""
        return await stored_keys.list_keys(self._database, await self._core.find_tenants(tenant), include_ended)

    async def _get(self, key: int) -> ApiKey:
        return await api_keys.get(self._database, key, await self._core.find_tenants())
