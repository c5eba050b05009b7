"""`client.api_keys`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from retoma.client.core import Namespace
from retoma.client.validation import check_name, check_time
from retoma.engine import api_keys
from retoma.engine.api_keys import OVERLAP
from retoma.records import KeyRecord, NewKey, Scope


class ApiKeys(Namespace):
    async def create(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        tenant: str | None = None,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """A new API key, whose secret only this answer has. Without a tenant it is for all of them.

        Raises Conflict if two keys of this name live already.
        """
        check_name("tenant", tenant)
        check_name("name", name)
        check_time("expires_at", expires_at)
        owner = None if tenant is None else (await self._core.tenants.get_or_create_id(tenant), tenant)
        return await api_keys.create(self._database, name, map(Scope, scopes), owner, expires_at)

    async def revoke(self, key: int) -> KeyRecord:
        """From now on every server refuses it, after a second at most."""
        return await api_keys.revoke(self._database, key)

    async def rotate(self, key: int, *, overlap: timedelta = OVERLAP) -> NewKey:
        """A key that replaces this one, which stays valid for `overlap`."""
        former = await api_keys.get(self._database, key)
        made = await self.create(
            former.name,
            former.scopes,
            tenant=former.tenant,
            expires_at=await api_keys.get_successor_expiry(self._database, former),
        )
        await api_keys.expire_after(self._database, key, overlap)
        return made

    async def find_by_secret(self, secret: str) -> KeyRecord | None:
        """The live key that this secret is, if it is one."""
        return await api_keys.find_by_secret(self._database, secret)

    async def list(self, *, tenant: str | None = None, with_ended: bool = False) -> list[KeyRecord]:
        """API keys, newest first; `with_ended` also those that are revoked or expired."""
        return await api_keys.list_keys(self._database, tenant, with_ended)
