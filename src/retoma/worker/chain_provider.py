"""The provider of a chain that one attempt uses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from retoma.define.provider_chain import ProviderChain
from retoma.errors import RetryLater
from retoma.store.provider_breakers import ProviderReport, ReportKind


@dataclass(slots=True)
class ChainProvider:
    """A provider of a chain, for one attempt. `report` is what the attempt has learnt about it, if anything.

    `probed_at` is set if the attempt probes the provider, `is_troubled` if it has failed recently. With `is_bound` the
    job uses external work of the provider, and stays with it whatever its breaker says. With `finds_only` its
    retries are used up, but the outcome of a call is unknown: the provider is only asked what became of the call.
    `account` is the tenant whose own connection is used, if any: the provider then has a breaker for that tenant alone.
    """

    chain: ProviderChain
    position: int
    probed_at: datetime | None = None
    is_troubled: bool = False
    is_bound: bool = False
    finds_only: bool = False
    account: str | None = None
    report: ProviderReport | None = None

    @property
    def name(self) -> str:
        return self.chain.names[self.position]

    @property
    def breaker(self) -> str:
        return name_breaker(self.name, self.account)

    @property
    def provider(self) -> Any:
        return self.chain.get_provider(self.name)

    @property
    def next_name(self) -> str | None:
        """The name of the next provider, or None if the job has to stay."""
        return self.get_name_if_later(self.position + 1)

    def get_name_if_later(self, position: int) -> str | None:
        """Return the name of the provider at this position, or None if the job cannot move on to it."""
        if self.is_bound or not self.position < position < len(self.chain):
            return None
        return self.chain.names[position]

    def set_report(self, kind: ReportKind, delay: timedelta | None = None) -> None:
        self.report = ProviderReport(self.breaker, kind, delay, self.probed_at)


def name_breaker(provider: str, account: str | None) -> str:
    """Return the name of the pool that has the breaker of a provider, or of a tenant's own account there."""
    return provider if account is None else f"{provider}@{account}"


class ProviderUsedUp(RetryLater):
    """A call did not take effect at a provider whose retries are used up, so the job can move on to the next one."""

    def __init__(self, name: str) -> None:
        super().__init__(0, f"the call did not take effect at {name!r}, whose retries are used up")
