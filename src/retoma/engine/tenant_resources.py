"""Resources that are built from the connections of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from retoma.define.connections import PerTenant, TenantConnections, Values, ValuesByName
from retoma.define.provider_chain import unwrap_provider
from retoma.encryption import Keyring
from retoma.masking import register_secret
from retoma.store import connections
from retoma.store.connections import EncryptedConnection
from retoma.store.database import Database

MAX_TENANTS = 1_000  # with connections of their own, whose resources are kept
Versions = list[tuple[bool, str, str, int]]


class Built(NamedTuple):
    """A resource of a tenant, and the connections that it was built from."""

    resource: Any
    connections: TenantConnections


class _Known:
    """The connections of a tenant at these versions, and what was built from them."""

    def __init__(self, versions: Versions, own: ValuesByName, shared: ValuesByName) -> None:
        self.versions = versions
        self._own = own
        self._shared = shared
        self._built: dict[PerTenant, Built] = {}

    def build(self, resource: PerTenant) -> Built:
        if resource not in self._built:
            found = TenantConnections(self._own, self._shared)
            self._built[resource] = Built(resource.build(found), found)
        return self._built[resource]


class TenantResources:
    """Builds resources, and keeps them until a connection of the tenant changes.

    Tenants without connections of their own share what is built for all tenants. What is replaced is not closed, as
    attempts may still use it: its idle connections end when the service closes them.
    """

    def __init__(self, database: Database, keyring: Keyring) -> None:
        self._database = database
        self._keyring = keyring
        self._known: dict[int | None, _Known] = {}

    async def bind(self, resources: Mapping[str, Any], tenant: int | None) -> dict[str, Built]:
        """Return the `PerTenant` ones among these resources, built for a tenant; None: from what all tenants use.

        Raise ConnectionKeyMissing if a connection cannot be decrypted.
        """
        wanted = {name: each for name, each in resources.items() if isinstance(each, PerTenant)}
        if not wanted:
            return {}
        known = await self._get_known(tenant)
        return {name: known.build(each) for name, each in wanted.items()}

    async def resolve(self, resources: Mapping[str, Any], tenant: int | None) -> Mapping[str, Any]:
        """Return all these resources as steps get them, with the `PerTenant` ones built for a tenant."""
        built = await self.bind(resources, tenant)
        found = {**resources, **{name: each.resource for name, each in built.items()}}
        return {name: unwrap_provider(each) for name, each in found.items()}

    async def _get_known(self, tenant: int | None) -> _Known:
        """Return what is known of the tenant. The versions are read each time, so a change takes effect at once."""
        versions = await connections.list_versions(self._database, tenant)
        key = tenant if any(is_own for is_own, *_ in versions) else None
        if key is None and tenant is not None:
            self._known.pop(tenant, None)
        known = self._known.get(key)
        if known is None or known.versions != versions:
            known = await self._load(tenant)
            if len(self._known) >= MAX_TENANTS:
                self._known.clear()
            self._known[key] = known
        return known

    async def _load(self, tenant: int | None) -> _Known:
        found = await connections.list_encrypted(self._database, tenant)
        own, shared = dict[tuple[str, str], Values](), dict[tuple[str, str], Values]()
        for each in found:
            kept = shared if each.key.tenant is None else own
            kept[each.key.service, each.key.account] = {**each.settings, **decrypt(each, self._keyring)}
        versions = [(each.key.tenant is not None, each.key.service, each.key.account, each.version) for each in found]
        return _Known(sorted(versions), own, shared)


def decrypt(connection: EncryptedConnection, keyring: Keyring) -> dict[str, str]:
    """Return the secrets of a connection, which are masked from now on wherever this process writes text."""
    secrets = connection.decrypt(keyring)
    for name, secret in secrets.items():
        register_secret(f"{connection.key.service}.{name}", secret)
    return secrets
