"""Connections: the credentials of outside services. Their secrets come and go encrypted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from retoma.encryption import Encrypted, Keyring
from retoma.records import Connection
from retoma.store.database import Database, Row
from retoma.store.rows import make_record, parse_json
from retoma.store.statements import statements

_SQL = statements("connections")
Values = Mapping[str, str]


@dataclass(frozen=True)
class ConnectionKey:
    """Names a connection. The tenant None means all tenants."""

    tenant: int | None
    service: str
    account: str = ""

    def bind(self, settings: Values) -> bytes:
        """Return what the ciphertext is bound to, so neither the row can be moved nor its settings be changed."""
        return json.dumps([self.tenant, self.service, self.account, dict(sorted(settings.items()))]).encode()


@dataclass(frozen=True)
class EncryptedConnection:
    key: ConnectionKey
    settings: Values
    encrypted: Encrypted = field(repr=False)
    version: int

    def decrypt(self, keyring: Keyring) -> dict[str, str]:
        """Return the secret fields by name. Raise ConnectionKeyMissing if none of the keys decrypts them."""
        secrets: dict[str, str] = json.loads(keyring.decrypt(self.encrypted, self.key.bind(self.settings)))
        return secrets


def encrypt(keyring: Keyring, key: ConnectionKey, settings: Values, secrets: Values) -> Encrypted:
    return keyring.encrypt(json.dumps(dict(secrets)), key.bind(settings))


async def list_connections(database: Database, tenants: Sequence[int] | None, *, with_shared: bool) -> list[Connection]:
    """Return connections of these tenants, or of all, and with `with_shared` also those for all tenants."""
    rows = await database.fetch(_SQL["list_connections"], tenants=tenants, shared=with_shared)
    return [make_record(Connection, row, "settings", secret_fields=tuple(row["secret_fields"])) for row in rows]


async def list_versions(database: Database, tenant: int | None) -> list[tuple[bool, str, str, int]]:
    """Return whether it is the tenant's own, service, account and version of each connection that it can use."""
    rows = await database.fetch(_SQL["list_connection_versions"], tenant=tenant)
    return [tuple(row) for row in rows]


async def list_encrypted(database: Database, tenant: int | None) -> list[EncryptedConnection]:
    """Return the connections that a tenant can use: those for all tenants first, then its own."""
    return [_make_encrypted(row) for row in await database.fetch(_SQL["list_encrypted_connections"], tenant=tenant)]


async def find(database: Database, key: ConnectionKey) -> EncryptedConnection | None:
    rows = await database.fetch(_SQL["find_encrypted_connection"], **vars(key))
    return _make_encrypted(rows[0]) if rows else None


async def store(
    database: Database,
    key: ConnectionKey,
    settings: Values,
    secret_fields: Sequence[str],
    encrypted: Encrypted,
    *,
    version: int | None,
    by: str,
) -> bool:
    """Store a new connection, or the next version of one. Return False if it is no longer of the version."""
    values = {
        "settings": json.dumps(dict(settings)),
        "secret_fields": list(secret_fields),
        **encrypted._asdict(),
        "by": by,
    }
    if version is None:
        return bool(await database.fetch(_SQL["add_connection"], **vars(key), **values))
    return bool(await database.fetch(_SQL["change_connection"], **vars(key), **values, version=version))


async def delete(database: Database, key: ConnectionKey) -> bool:
    return bool(await database.fetch(_SQL["delete_connection"], **vars(key)))


async def record_test(database: Database, key: ConnectionKey, version: int, *, by: str, error: str | None) -> bool:
    """Record the result of a test; None means success. Return False if the connection has changed meanwhile."""
    return bool(await database.fetch(_SQL["record_connection_test"], **vars(key), version=version, by=by, error=error))


async def list_with_other_keys(database: Database, key_id: str, limit: int) -> list[EncryptedConnection]:
    rows = await database.fetch(_SQL["list_connections_with_other_keys"], key_id=key_id, limit=limit)
    return [_make_encrypted(row) for row in rows]


async def replace_ciphertexts(
    database: Database, key_id: str, replaced: Sequence[tuple[EncryptedConnection, bytes]]
) -> int:
    """Store the same values, encrypted with another key. Return how many; the others have changed meanwhile."""
    count: int | None = await database.fetch_value(
        _SQL["replace_ciphertexts"],
        key_id=key_id,
        tenant=[each.key.tenant for each, _ in replaced],
        service=[each.key.service for each, _ in replaced],
        account=[each.key.account for each, _ in replaced],
        version=[each.version for each, _ in replaced],
        ciphertext=[ciphertext for _, ciphertext in replaced],
    )
    return count or 0


def _make_encrypted(row: Row) -> EncryptedConnection:
    key = ConnectionKey(row["tenant"], row["service"], row["account"])
    return EncryptedConnection(
        key, parse_json(row["settings"]), Encrypted(row["ciphertext"], row["key_id"]), row["version"]
    )
