"""The outcome of one attempt to send a message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from retoma.notifications.content import Content
from retoma.store.notifications import ClaimedMessage
from retoma.webhooks.delivery_retries import DeliveryOutcome, RetryDecision, decide_after_failure


@dataclass(frozen=True)
class Attempt:
    """`error` is what went wrong, in English; None if the message was sent."""

    decision: RetryDecision
    error: str | None = None


DELIVERED = Attempt(RetryDecision(DeliveryOutcome.DELIVERED))


class ChannelSender(Protocol):
    """Sends a message through one channel."""

    async def send(self, message: ClaimedMessage, content: Content) -> Attempt: ...


def retry(message: ClaimedMessage, error: str, *, wait: timedelta | None = None) -> Attempt:
    """Try again as the retry schedule says, and not before `wait`, nor anything else for this person."""
    return Attempt(decide_after_failure(message, at_least=wait, pause=wait), error)


def give_up(error: str) -> Attempt:
    """Send this message no more."""
    return Attempt(RetryDecision(DeliveryOutcome.DEAD), error)


def disable_address(error: str) -> Attempt:
    """Send nothing more to this address: it no longer exists, or refuses us."""
    return Attempt(RetryDecision(DeliveryOutcome.GONE), error)
