"""API keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from retoma.client.base import Base
from retoma.client.validation import check_name, check_time
from retoma.engine import api_keys
from retoma.engine.api_keys import OVERLAP
from retoma.records import KeyRecord, NewKey, Scope


class Keys(Base):
    async def make_key(
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
        owner = None if tenant is None else (await self._tenants.get_or_create_id(tenant), tenant)
        return await api_keys.create(self.database, name, map(Scope, scopes), owner, expires_at)

    async def keys(self, *, tenant: str | None = None, with_ended: bool = False) -> list[KeyRecord]:
        """API keys, newest first; `with_ended` also those that are revoked or expired."""
        return await api_keys.list_keys(self.database, tenant, with_ended)

    async def revoke_key(self, key: int) -> KeyRecord:
        """From now on every server refuses it, after a second at most."""
        return await api_keys.revoke(self.database, key)

    async def rotate_key(self, key: int, *, overlap: timedelta = OVERLAP) -> NewKey:
        """A key that replaces this one, which stays valid for `overlap`."""
        former = await api_keys.get(self.database, key)
        made = await self.make_key(
            former.name,
            former.scopes,
            tenant=former.tenant,
            expires_at=await api_keys.get_successor_expiry(self.database, former),
        )
        await api_keys.expire_after(self.database, key, overlap)
        return made

    async def key_of(self, secret: str) -> KeyRecord | None:
        """The live key that this secret is, if it is one."""
        return await api_keys.find_by_secret(self.database, secret)
