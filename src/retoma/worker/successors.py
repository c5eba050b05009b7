"""What follows from reported outcomes: jobs that the worker keeps, and work for other workers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from retoma.engine.claim_protocol import Claim, ClaimResponse
from retoma.engine.outcomes import Outcome, Success
from retoma.worker.served_versions import ServedVersions


def complete_claims(
    response: ClaimResponse, reported: Sequence[Outcome], served_versions: ServedVersions
) -> list[Claim]:
    """Return all jobs of a response, each with its data: successors read results that were reported with the call."""
    if not response.successors:
        return response.claimed
    results = {
        (outcome.claim.run, outcome.claim.step, outcome.claim.item): outcome
        for outcome in reported
        if isinstance(outcome, Success)
    }
    successors = []
    for claim in response.successors:
        step = served_versions.find_creating_step(claim.version, claim.step)
        if creator := results.get((claim.run, step, claim.item)):
            item_value, read = creator.claim.item_value, [creator.output]
        else:
            creator = results[claim.run, step, ""]
            item_value, read = (creator.items or {})[claim.item], []
        ended = creator.claim
        successors.append(
            replace(
                claim, run_retries=ended.run_retries, run_input=ended.run_input, item_value=item_value, results=read
            )
        )
    return [*successors, *response.claimed]


def make_work_for_others(reported: Sequence[Outcome], served_versions: ServedVersions) -> bool:
    """Return whether the ends of these jobs may have created work or freed slots for another worker."""
    steps = {(outcome.claim.version, outcome.claim.step) for outcome in reported}
    step_calls = [served_versions.get_step_call(*each) for each in steps]
    return any(step_call is not None and step_call.wakes_others for step_call in step_calls)
