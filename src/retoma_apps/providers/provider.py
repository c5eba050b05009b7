"""The part of a provider that does not depend on its capability. Each capability registers its own in registry.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, Self

from retoma.connections import TenantConnections


class Provider(Protocol):
    """`variables` are the environment variables that configure it, none if it always works."""

    variables: tuple[str, ...]


class EnvironmentProvider(Provider, Protocol):
    """A provider whose variables are all that it needs."""

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return None if it is not configured."""

    @classmethod
    def for_tenant(cls, connections: TenantConnections) -> Self | None:
        """Return the provider with the tenant's connection or, without one, that of the environment."""


class OfflineProvider:
    """A provider on this machine, which needs no configuration."""

    is_offline = True
    variables: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls) -> Self:
        return cls()

    @classmethod
    def for_tenant(cls, connections: TenantConnections) -> Self:
        return cls()


def format_variables(providers: Iterable[type[Provider]]) -> str:
    """Return the variables that configure each of these providers, for a message that tells which ones to set."""
    return " / ".join(", ".join(each.variables) for each in providers if each.variables)
