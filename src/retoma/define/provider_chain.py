"""Providers of one capability, of which each attempt uses one; or the only one, which each attempt uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from retoma.define.definition_errors import Location, check_name
from retoma.define.durations import Duration, as_timedelta
from retoma.define.retry import MAX_DELAY
from retoma.errors import DefinitionError

DEFAULT_SWITCH_DELAY = timedelta(seconds=120)


class ProviderChain:
    """Providers of one capability, in order of preference. A step that takes the chain as a resource gets one of them.

    Pass objects with a `name`, or a mapping of names to objects. A provider may be a `PerWorker`, which needs the
    mapping. The first attempts use the first provider. When its retries are used up, the next one is tried after
    `switch_delay`. Each provider has a circuit breaker, which all workers share: that of the pool with its name.
    """

    def __init__(
        self, providers: Sequence[Any] | Mapping[str, Any], *, switch_delay: Duration = DEFAULT_SWITCH_DELAY
    ) -> None:
        self._providers = _index_by_name(providers)
        self.names = tuple(self._providers)
        self.switch_delay = _parse_switch_delay(switch_delay)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the names and the providers, in order."""
        return iter(self._providers.items())

    def __repr__(self) -> str:
        return f"ProviderChain({', '.join(self.names)})"

    def get_provider(self, name: str) -> Any:
        try:
            return self._providers[name]
        except KeyError:
            raise LookupError(f"{self!r} has no provider {name!r}") from None


@dataclass(frozen=True)
class SingleProvider:
    """The only provider of a capability. Attempts name it, as they name a provider of a chain.

    A step that takes it as a resource gets `provider`, as if that were the resource: while it is down, jobs wait for it
    as for any service. It may be a `PerWorker`.
    """

    name: str
    provider: Any


def unwrap_provider(resource: Any) -> Any:
    """Return what a step gets in place of this resource; a chain as it is, as only an attempt chooses its provider."""
    return resource.provider if isinstance(resource, SingleProvider) else resource


def _index_by_name(providers: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(providers, Mapping):
        named = list(providers.items())
    else:
        named = [(_read_name(provider), provider) for provider in providers]
    if not named:
        raise DefinitionError("ProviderChain: pass at least one provider")
    indexed: dict[str, Any] = {}
    for name, provider in named:
        check_name("provider", name, Location(str(name), kind="provider"), extra_characters="-.")
        if name in indexed:
            raise DefinitionError(f"ProviderChain: two providers are named {name!r}; pass a mapping to name them")
        indexed[name] = provider
    return indexed


def _read_name(provider: Any) -> str:
    name = getattr(provider, "name", None)
    if not isinstance(name, str):
        raise DefinitionError(
            f"ProviderChain: {provider!r} has no name; give it one, or pass a mapping: ProviderChain({{'first': ...}})"
        )
    return name


def _parse_switch_delay(switch_delay: Duration) -> timedelta:
    if isinstance(switch_delay, timedelta | int | float):
        delay = as_timedelta(switch_delay)
        if timedelta(0) <= delay <= MAX_DELAY:
            return delay
    raise DefinitionError(
        f"ProviderChain: switch_delay= is {switch_delay!r}; pass a duration from 0 to a year, such as minutes(2)"
    )
