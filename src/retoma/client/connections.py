"""`client.connections`: the credentials of outside services, by tenant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

from retoma.client.core import Namespace
from retoma.client.validation import check_name
from retoma.define.connections import ConnectionType, Consent
from retoma.define.definition_errors import suggest_name
from retoma.engine.settings_services import SETTINGS_SERVICES
from retoma.engine.tenant_resources import decrypt
from retoma.errors import Conflict, InvalidInput, NotFound, UnsafeUrl, describe_error, read_message
from retoma.identifiers import ALL_TENANTS
from retoma.masking import hide_folders, mask_secrets, register_secret
from retoma.records import AuditAction, Connection, ConnectionTest
from retoma.store import connections
from retoma.store.connections import ConnectionKey, EncryptedConnection
from retoma.translations import N_

MAX_VALUE_LENGTH = 10_000
MAX_ACCOUNT_LENGTH = 100
MAX_MESSAGE_LENGTH = 500
TEST_TIMEOUT = 60.0  # seconds
ROTATION_BATCH = 100
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_TRIES = 3  # of a change, while others change the same connection


class Connections(Namespace):
    """A connection is named by its service and, if the service has several, by an account.

    It is for a tenant or, without one, for all tenants. Its secrets can be replaced and used, but never read.
    """

    @property
    def types(self) -> Mapping[str, ConnectionType]:
        """The services that the application declares, and those that only settings configure, by name."""
        return {**(self._core.app.connection_types if self._core.app else {}), **SETTINGS_SERVICES}

    def get_type(self, service: str) -> ConnectionType:
        """Return what a service takes. Raise NotFound if the application does not declare it."""
        if service not in self.types:
            raise NotFound(f"there is no service {service!r:.80} to connect to; {suggest_name(service, self.types)}")
        return self.types[service]

    async def list(self, *, tenant: str | None = None) -> Sequence[Connection]:
        """Return all connections, those for all tenants first; with a tenant, those that it can use."""
        found = await self._core.find_tenants(None if tenant == ALL_TENANTS else tenant)
        return await connections.list_connections(
            self._database,
            [] if tenant == ALL_TENANTS else found,
            with_shared=self._core.limit is None,
        )

    async def get(self, service: str, *, tenant: str | None = None, account: str = "") -> Connection:
        """Return a connection, without its secrets. Raise NotFound if there is none."""
        key = await self._build_key(service, tenant, account)
        found = await connections.list_connections(
            self._database, [] if key.tenant is None else [key.tenant], with_shared=key.tenant is None
        )
        for each in found:
            if (each.service, each.account) == (service, account):
                return each
        raise _build_not_found(service, tenant, account)

    async def set(
        self,
        service: str,
        values: Mapping[str, str],
        *,
        tenant: str | None = None,
        account: str = "",
        by: str | None = None,
    ) -> Connection:
        """Enter a connection, or change it. Fields that are not given stay as they are; an empty text removes one.

        Jobs use the new values from their next attempt on. If an address changes, all secrets must be given too.
        """
        kind, key = self.get_type(service), await self._build_key(service, tenant, account, creates=True)
        author = self._get_author(by)
        check_name("name", author)
        if kind.for_all_tenants and key.tenant is not None:
            raise InvalidInput(N_("%(service)s serves all tenants: leave the tenant out"), service=service)
        if not kind.fields:
            raise InvalidInput(f"{service} is configured by settings: {', '.join(kind.variables)}")
        if account and not kind.has_accounts:
            raise InvalidInput(f"{service} has no accounts: leave the account out")
        _check_account(account)
        checked = {name: self._check_value(kind, name, value) for name, value in values.items()}
        for _ in range(_TRIES):
            if await self._try_set(kind, key, checked, author):
                return await self.get(service, tenant=tenant, account=account)
        raise Conflict(f"others are changing the connection {_name(service, tenant, account)}: try again")

    async def delete(self, service: str, *, tenant: str | None = None, account: str = "") -> None:
        """Delete a connection. Jobs then use that for all tenants or, without one, the environment."""
        key = await self._build_key(service, tenant, account)
        recording = self._recording(
            "delete_connection", AuditAction.CONNECTION_DELETE, _name(service, tenant, account), tenant=key.tenant
        )
        if not await connections.delete(recording, key):
            raise _build_not_found(service, tenant, account)

    async def test(
        self, service: str, *, tenant: str | None = None, account: str = "", by: str | None = None
    ) -> ConnectionTest:
        """Try the credentials without a cost or a change, and record the result.

        For all tenants, and without a connection, try those of the environment.
        """
        kind, key = self.get_type(service), await self._build_key(service, tenant, account)
        found = await connections.find(self._database, key)
        if found is None:
            if key.tenant is not None or account:
                raise _build_not_found(service, tenant, account)
            return await _try(kind, {})
        result = await _try(kind, self._decrypt(found))
        recording = self._recording(
            "record_connection_test",
            AuditAction.CONNECTION_TEST,
            _name(service, tenant, account),
            tenant=key.tenant,
            after={"ok": result.is_ok},
        )
        error = None if result.is_ok else result.message
        await connections.record_test(recording, key, found.version, by=self._get_author(by), error=error)
        return result

    async def rotate(self) -> int:
        """Encrypt all connections with the first key. Return how many there were.

        They are encrypted in batches. If it stops in between, call it again: the others are still readable with the
        previous key.
        """
        self._core.require_all_tenants()
        total, key_id = 0, self._core.keyring.current_id
        while found := await connections.list_with_other_keys(self._database, key_id, ROTATION_BATCH):
            keyring = self._core.keyring
            replaced = [
                (each, connections.encrypt(keyring, each.key, each.settings, each.decrypt(keyring)).ciphertext)
                for each in found
            ]
            recording = self._recording(
                "replace_ciphertexts",
                AuditAction.CONNECTION_ROTATE,
                None,
                after=lambda rows: {"connections": rows[0]["replaced"], "key": key_id},
            )
            total += await connections.replace_ciphertexts(recording, key_id, replaced)
        return total

    async def get_consent_url(
        self, service: str, state: str, challenge: str, redirect_uri: str, *, tenant: str | None, account: str = ""
    ) -> str:
        """Return the address at which the owner of an account consents. `challenge` is that of PKCE, with S256."""
        consent, values = await self._get_consent(service, tenant, account)
        return consent.build_url(values, state, challenge, redirect_uri)

    async def finish_consent(
        self,
        service: str,
        code: str,
        verifier: str,
        redirect_uri: str,
        *,
        tenant: str | None,
        account: str = "",
        by: str | None = None,
    ) -> Connection:
        """Exchange the code for the secrets of the connection, and store them."""
        consent, values = await self._get_consent(service, tenant, account)
        fields = await consent.exchange(values, code, verifier, redirect_uri)
        for name, value in fields.items():
            register_secret(f"{service}.{name}", value)
        return await self.set(service, fields, tenant=tenant, account=account, by=by)

    async def _get_consent(self, service: str, tenant: str | None, account: str) -> tuple[Consent, Mapping[str, str]]:
        kind, key = self.get_type(service), await self._build_key(service, tenant, account)
        if kind.consent is None:
            raise InvalidInput(f"{service} asks nobody for consent: enter its fields")
        _check_account(account)
        found = await connections.find(self._database, key)
        return kind.consent, {} if found is None else self._decrypt(found)

    async def _try_set(self, kind: ConnectionType, key: ConnectionKey, values: Mapping[str, str], by: str) -> bool:
        """Store the values over those that there are. Return False if somebody else changed them meanwhile."""
        found = await connections.find(self._database, key)
        before = {} if found is None else self._decrypt_for_change(kind, found, values)
        _check_addresses(kind, before, values)
        merged = {name: value for name, value in {**before, **values}.items() if value}
        later = () if kind.consent is None else kind.consent.fields
        if missing := [name for name in kind.list_missing(merged) if name not in later]:
            raise InvalidInput(f"a connection to {kind.service} also needs {', '.join(missing)}")
        settings = {name: value for name, value in merged.items() if name not in kind.secret_names}
        secrets = {name: value for name, value in merged.items() if name in kind.secret_names}
        for name, secret in secrets.items():
            register_secret(f"{kind.service}.{name}", secret)
        tenant = None if key.tenant is None else await self._core.tenants.get_name(key.tenant)
        recording = self._recording(
            ("add_connection", "change_connection"),
            AuditAction.CONNECTION_SET,
            _name(kind.service, tenant, key.account),
            tenant=key.tenant,
            before=None if found is None else {"fields": sorted(before)},
            after={"fields": sorted(merged), "changed": sorted(values)},
        )
        encrypted = connections.encrypt(self._core.keyring, key, settings, secrets)
        return await connections.store(
            recording,
            key,
            settings,
            sorted(secrets),
            encrypted,
            version=None if found is None else found.version,
            by=by,
        )

    def _decrypt_for_change(
        self, kind: ConnectionType, found: EncryptedConnection, values: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the current values. If all secrets are entered again, the previous ones need no key."""
        if kind.secret_names <= values.keys():
            return dict(found.settings)
        return self._decrypt(found)

    def _decrypt(self, found: EncryptedConnection) -> dict[str, str]:
        return {**found.settings, **decrypt(found, self._core.keyring)}

    def _check_value(self, kind: ConnectionType, name: str, value: Any) -> str:
        """Return the value without spaces around it. A message never contains it."""
        fields = {each.name: each for each in kind.fields}
        if name not in fields:
            raise InvalidInput(f"{kind.service} has no field {name!r:.80}; {suggest_name(name, fields)}")
        if not isinstance(value, str) or len(value) > MAX_VALUE_LENGTH or _CONTROL.search(value.strip()):
            raise InvalidInput(f"{name} of {kind.service} is a line of at most {MAX_VALUE_LENGTH:,} characters")
        checked = value.strip()
        if checked and fields[name].kind == "url":
            try:
                self._core.guard.check(checked, name)
            except UnsafeUrl as error:
                raise InvalidInput(f"{name} of {kind.service}: {error}") from None
        return checked

    async def _build_key(
        self, service: str, tenant: str | None, account: str, *, creates: bool = False
    ) -> ConnectionKey:
        """Return the key of the tenant's connection. Raise AccessDenied if this client may not act on it."""
        if tenant is None or tenant == ALL_TENANTS:
            self._core.require_all_tenants()
            return ConnectionKey(None, service, account)
        check_name("tenant", tenant)
        self._core.check_tenant(tenant)
        number = await (self._core.get_or_create_tenant if creates else self._core.find_tenant_id)(tenant)
        assert number is not None
        return ConnectionKey(number, service, account)


async def _try(kind: ConnectionType, values: Mapping[str, str]) -> ConnectionTest:
    try:
        async with asyncio.timeout(TEST_TIMEOUT):
            message = await kind.test(values)
    except TimeoutError:
        return ConnectionTest(False, f"{kind.service} did not answer within {TEST_TIMEOUT:.0f} s")
    except Exception as error:  # noqa: BLE001  (whatever its client raises, the test has failed)
        return ConnectionTest(False, _clean(read_message(error) or describe_error(error)))
    return ConnectionTest(True, _clean(message))


def _clean(message: str) -> str:
    return _CONTROL.sub(" ", hide_folders(mask_secrets(message)))[:MAX_MESSAGE_LENGTH]


def _check_account(account: str) -> None:
    if len(account) > MAX_ACCOUNT_LENGTH or _CONTROL.search(account) or account != account.strip():
        raise InvalidInput(f"an account is a name of at most {MAX_ACCOUNT_LENGTH} characters, not {account!r:.80}")


def _check_addresses(kind: ConnectionType, before: Mapping[str, str], values: Mapping[str, str]) -> None:
    """Refuse to send secrets that the caller may not know to another address than the one they were entered for."""
    moved = [name for name in kind.address_names & values.keys() if values[name] != before.get(name, "")]
    kept = sorted(name for name in kind.secret_names & before.keys() if name not in values)
    if moved and kept:
        raise InvalidInput(f"{moved[0]} of {kind.service} changes: enter {', '.join(kept)} again too")


def _name(service: str, tenant: str | None, account: str) -> str:
    return "/".join((tenant or ALL_TENANTS, service, *([account] if account else [])))


def _build_not_found(service: str, tenant: str | None, account: str) -> NotFound:
    return NotFound(f"there is no connection {_name(service, tenant, account)!r:.200}")
