"""Choose the provider of a chain for an attempt."""

from __future__ import annotations

from typing import NamedTuple

from retoma.define.external_work import parse_provider_method
from retoma.define.provider_chain import ProviderChain
from retoma.engine.claim_protocol import Claim
from retoma.store import provider_breakers
from retoma.store.database import Database
from retoma.store.provider_breakers import ProviderEffect
from retoma.worker.chain_provider import ChainProvider, name_breaker
from retoma.worker.provider_breakers import ProviderBreakers, Wait
from retoma.worker.retry_decision import find_position
from retoma.worker.step_call import StepCall


class Binding(NamedTuple):
    """The provider with which a job must continue: it is asked what became of a call, or has done external work."""

    position: int
    effect: ProviderEffect


async def choose_provider(
    database: Database, breakers: ProviderBreakers, step_call: StepCall, claim: Claim
) -> ChainProvider | Wait:
    """Return the provider for this attempt: the next in order whose breaker allows it, or the one that has begun.

    Return how long to wait if none may be used now.
    """
    chain = step_call.chain
    assert chain is not None
    account = step_call.account
    failures = claim.earlier.failures + claim.failures
    start = find_position(step_call.step.policy, claim.run_retries, failures, len(chain))
    binding = await _find_binding(database, chain, claim) if claim.fence > 1 else None
    if binding is not None and not binding.effect.is_unknown:
        return ChainProvider(chain, binding.position, is_bound=not binding.effect.has_failed, account=account)
    candidates = chain.names[start:] if binding is None else (chain.names[binding.position],)
    by_breaker = {name_breaker(name, account): name for name in candidates}
    await breakers.declare(by_breaker)
    permit = await breakers.acquire(list(by_breaker), fresh=claim.fence > 1)
    if isinstance(permit, Wait):
        return permit
    position = chain.names.index(by_breaker[permit.name])
    return ChainProvider(
        chain,
        position,
        probed_at=permit.probed_at,
        is_troubled=permit.is_troubled,
        finds_only=position < start,
        account=account,
    )


async def _find_binding(database: Database, chain: ProviderChain, claim: Claim) -> Binding | None:
    """Return the binding by the earliest effect of the job that has one. External work that has ended comes first."""
    effects = await provider_breakers.list_provider_effects(database, claim.run, claim.step, claim.item, claim.revision)
    bindings = [
        Binding(chain.names.index(name), effect)
        for effect in effects
        if (name := _get_provider_name(effect)) in chain.names
    ]
    return min(bindings, key=lambda binding: binding.effect.is_unknown, default=None)


def _get_provider_name(effect: ProviderEffect) -> str | None:
    of_chain = parse_provider_method(effect.find or "")
    return effect.provider or (of_chain and of_chain.provider)
