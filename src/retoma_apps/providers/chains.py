"""Several providers of one capability, as a resource of an application."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from retoma import ProviderChain
from retoma.connections import PerTenant, TenantConnections
from retoma.providers import SingleProvider


class Service(Protocol):
    is_offline: bool


P = TypeVar("P")
S = TypeVar("S", bound=Service)


def chain_providers(
    providers: Sequence[Any], get_name: Callable[[Any], str] = attrgetter("name")
) -> SingleProvider | ProviderChain:
    """Return a chain in this order. A single provider is no chain: while it is down, its jobs wait for it."""
    if len(providers) == 1:
        return SingleProvider(get_name(providers[0]), providers[0])
    return ProviderChain({get_name(each): each for each in providers})


def build_per_tenant(build: Callable[[TenantConnections], Any] | None, fixed: Any) -> Any:
    """Return a resource that is built for each tenant or, without `build`, the same for all of them."""
    return fixed if build is None else PerTenant(build)


def compose(use: Callable[[Any], Any], build: Callable[[TenantConnections], Any]) -> Callable[[TenantConnections], Any]:
    """Return a function that builds something with the connections of a tenant, and returns what `use` makes of it."""
    return lambda connections: use(build(connections))


def get_first_provider(resource: P | SingleProvider | ProviderChain) -> P:
    """Return the preferred provider of a resource that `chain_providers` has returned, or a provider as it is."""
    provider: P
    match resource:
        case ProviderChain():
            provider = resource.get_provider(resource.names[0])
        case SingleProvider():
            provider = resource.provider
        case _:
            provider = resource
    return provider


def prefer_services(providers: Sequence[S]) -> list[S]:
    """Return the providers that are services, or all if none is: what this machine makes must not silently replace
    what a service would."""
    return [each for each in providers if not each.is_offline] or list(providers)
