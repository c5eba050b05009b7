"""Connections: what credentials a service takes, and how resources are built from those of a tenant."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from retoma.define.provider_chain import ProviderChain, SingleProvider
from retoma.errors import DefinitionError

FieldKind = Literal["secret", "text", "url", "host"]
Values = Mapping[str, str]
ValuesByName = Mapping[tuple[str, str], Values]  # by service and account
_SERVICE = re.compile(r"[a-z][a-z0-9_-]{0,49}")
_FIELD = re.compile(r"[a-z][a-z0-9_]{0,49}")


@dataclass(frozen=True)
class ConnectionField:
    """A field of a connection. `title` and `help` are English, marked with `N_` for translation.

    A `secret` is encrypted and never shown again. A `url` or `host` is where the secrets are sent: a person who
    changes it must enter the secrets again. A `url` must also be one that the server may call.
    """

    name: str
    title: str
    kind: FieldKind = "text"
    required: bool = True
    help: str = ""


@dataclass(frozen=True)
class Consent:
    """How the owner of an account consents in the browser (OAuth 2 with PKCE), instead of entering a secret.

    The two functions take the values of the connection so far, and return the address at the service and the fields
    that the code is exchanged for. `exchange` takes the code, the PKCE verifier and the address of the callback.
    """

    build_url: Callable[[Values, str, str, str], str]  # values, state, PKCE challenge, address of the callback
    exchange: Callable[[Values, str, str, str], Awaitable[Mapping[str, str]]]
    fields: tuple[str, ...]


@dataclass(frozen=True)
class ConnectionType:
    """A service, and what it takes to connect to it.

    `test(values)` tries the credentials without a cost or a change, and returns what it reached; it raises an error
    that says what to do. With no values it tries those of the environment. `variables` are the environment variables
    that are used without a connection. With `has_accounts` there can be a connection for each account or site, by name.
    Without `fields`, the service is configured by settings alone, and can only be tested. `is_required` means that the
    application cannot do its work in another way, such as offline: `retoma doctor` warns if the service is missing. A
    service `for_all_tenants` has one connection, which no tenant can replace.
    """

    service: str
    title: str
    fields: tuple[ConnectionField, ...]
    test: Callable[[Values], Awaitable[str]]
    variables: tuple[str, ...] = ()
    has_accounts: bool = False
    consent: Consent | None = None
    help: str = ""
    is_required: bool = False
    for_all_tenants: bool = False

    def __post_init__(self) -> None:
        names = [each.name for each in self.fields]
        for name in (name for name in names if not _FIELD.fullmatch(name) or names.count(name) > 1):
            raise DefinitionError(f"connection {self.service!r}: {name!r} is not a valid name, or two fields have it")
        if not _SERVICE.fullmatch(self.service):
            raise DefinitionError(f"{self.service!r} is not a name of a service: use a-z, 0-9, '_' and '-'")

    @property
    def secret_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.fields if each.kind == "secret")

    @property
    def address_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.fields if each.kind in ("url", "host"))

    def list_missing(self, values: Mapping[str, Any]) -> list[str]:
        """Return the required fields that these values lack."""
        return [each.name for each in self.fields if each.required and not values.get(each.name)]


class TenantConnections:
    """The connections that a tenant can use: its own ones, and those for all tenants."""

    def __init__(self, own: ValuesByName | None = None, shared: ValuesByName | None = None) -> None:
        self._own = own or {}
        self._shared = shared or {}
        self.uses_own = False
        """Whether one of the tenant's own was found: what is wrong with that account concerns no other tenant."""

    def has(self, service: str) -> bool:
        """Return whether there is a connection to the service, for any account."""
        return any(name == service for name, _ in (*self._own, *self._shared))

    def find(self, service: str, account: str = "") -> Values | None:
        """Return the fields of a connection, or None: then use the environment.

        Values are of one connection alone, never of two: the secret of one must not be sent to the address of another.
        """
        if (found := self._own.get((service, account))) is not None:
            self.uses_own = True
            return found
        return self._shared.get((service, account))


@dataclass(frozen=True)
class PerTenant:
    """A resource that is built for each tenant from its connections, in place of environment variables.

    `build(connections)` returns the resource, which may be a `ProviderChain`. It must be quick, and must return what
    the environment configures if there is no connection. It is called again when a connection changes; attempts that
    run keep what they have.
    """

    build: Callable[[TenantConnections], Any]

    @cached_property
    def default(self) -> Any:
        """The resource without any connection."""
        return self.build(TenantConnections())


def get_default(resource: Any) -> Any:
    """Return the resource as it is without any connection."""
    return resource.default if isinstance(resource, PerTenant) else resource


def check_resource(name: str, resource: Any) -> None:
    """Raise DefinitionError if a tenant's resource is where none can be."""
    match resource:
        case ProviderChain():
            nested, kind = [each for _, each in resource], "chain"
        case SingleProvider():
            nested, kind = [resource.provider], "provider"
        case _:
            return
    if any(isinstance(each, PerTenant) for each in nested):
        raise DefinitionError(
            f"the resource {name!r} is a {type(resource).__name__} with a PerTenant in it; "
            f"use a PerTenant whose build returns the {kind}"
        )
