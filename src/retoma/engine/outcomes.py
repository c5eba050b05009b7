"""How attempts end. `claim_protocol` turns these values into the arguments of the worker's call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from retoma.engine.claim_protocol import Claim

NO_DELAY = timedelta(0)


@dataclass(frozen=True, slots=True)
class AttemptError:
    """Why an attempt failed. `type` and `stack` are those of the exception, if there was one.

    `provider` is the provider of a chain that it used. `next_provider` is set if the job moves on to that one.
    """

    code: str
    message: str = ""
    type: str | None = None
    stack: str | None = None
    provider: str | None = None
    next_provider: str | None = None

    def to_json(self) -> str:
        """Return it as events store it."""
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, str]:
        given = {
            "code": self.code,
            "type": self.type,
            "message": self.message,
            "stack": self.stack,
            "provider": self.provider,
            "next_provider": self.next_provider,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ReviewReason:
    """Why a step asks a person. `value` is the result that it proposes, as JSON.

    `budget` are the facts of the budget that it would pass, as `retoma.describe_passed_budget` returns them.
    """

    code: str
    message: str
    value: str | None = None
    budget: Mapping[str, Any] | None = None

    def to_json(self) -> str:
        facts = {"code": self.code, "message": self.message}
        reason = json.dumps(facts if self.budget is None else {**facts, "budget": self.budget})
        return reason if self.value is None else f'{reason[:-1]}, "value": {self.value}}}'


class _Outcome(Struct, frozen=True, eq=False):
    claim: Claim


class Success(_Outcome, frozen=True):
    """It has a result. `items` are the items of a fan-out by key, if the step is the source of one."""

    output: str
    items: dict[str, str] | None = None


class Retried(_Outcome, frozen=True):
    """It failed, and another attempt starts after the delay. `spent_ms` is the time used up so far.

    A crash is the death of its child process.
    """

    error: AttemptError
    delay: timedelta = NO_DELAY
    spent_ms: int = 0
    is_crash: bool = False


class Failure(_Outcome, frozen=True):
    """It failed for good. It is quarantined if its child process died too often."""

    error: AttemptError
    is_quarantined: bool = False


class Skip(_Outcome, frozen=True):
    """Its step does not run; the code says why."""

    code: str


class Postponed(_Outcome, frozen=True):
    """Its step asked to run again after the delay, which uses up no attempt."""

    error: AttemptError
    delay: timedelta = NO_DELAY


class Parked(_Outcome, frozen=True):
    """It submitted external work: `effect` is the name of the effect that did, and has its id."""

    effect: str


class ReviewRequest(_Outcome, frozen=True):
    """A person must decide: a planned review, or one for which its step gave a reason."""

    reason: ReviewReason | None = None


class OverBudget(_Outcome, frozen=True):
    """It did not start, because its estimated cost would pass a hard budget: a person decides how to continue."""

    reason: ReviewReason


class Returned(_Outcome, frozen=True):
    """It did not start here, and may start elsewhere after the delay."""

    delay: timedelta = NO_DELAY
    code: str | None = None


class Interrupted(_Outcome, frozen=True):
    """Its worker cancelled it."""


Outcome = Success | Retried | Failure | Skip | Postponed | Parked | ReviewRequest | OverBudget | Returned | Interrupted
