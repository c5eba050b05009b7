"""Webhooks: deliveries, endpoints and subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field

from retoma.states import DeliveryState


@dataclass(frozen=True)
class DeliveryAttempt:
    """One attempt. It has no `seconds` if the sender died before its end."""

    attempt: int
    at: datetime
    seconds: float | None
    status: int | None
    error: str | None
    answer: Annotated[str | None, Field(description="The beginning of the response body.")]


@dataclass(frozen=True)
class Delivery:
    """One event for one URL. It has no `next_at` if it is over, or if it waits for the delivery before it."""

    id: Annotated[UUID, Field(description="Sent as `webhook-id` in every attempt.")]
    run: UUID
    run_title: str | None
    tenant: str
    pipeline: str
    event: str
    seq: int
    endpoint: int
    url: str
    state: DeliveryState
    attempt: int
    next_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    status: Annotated[int | None, Field(description="The HTTP status of the last attempt.")]
    error: str | None


@dataclass(frozen=True)
class DeliveryDetails(Delivery):
    body: Annotated[str | None, Field(description="The signed body. Null until the first attempt.")]
    attempts: tuple[DeliveryAttempt, ...]


@dataclass(frozen=True)
class Endpoint:
    """A URL that receives webhooks of a tenant. The tenant `*` means all tenants."""

    id: int
    tenant: str
    url: str
    created_at: datetime
    failures: Annotated[int, Field(description="Consecutive failed attempts.")]
    failing_since: datetime | None
    open_until: Annotated[
        datetime | None, Field(description="The circuit breaker is open until this time; nothing is sent before.")
    ]
    disabled_at: Annotated[
        datetime | None, Field(description="When the endpoint was disabled. Nothing is sent until it is enabled.")
    ]
    disabled_because: str | None
    due: Annotated[int, Field(description="The number of pending deliveries.")]
    dead: Annotated[
        int, Field(description="The number of dead deliveries. They can be redelivered once the endpoint is enabled.")
    ]
    events: Annotated[tuple[str, ...], Field(description="The events of its subscription to all runs of the tenant.")]


@dataclass(frozen=True)
class Subscription:
    """A URL that receives these events of all runs of its tenant."""

    id: Annotated[int, Field(description="The ID of the endpoint.")]
    tenant: Annotated[str, Field(description="`*` means all tenants.")]
    url: str
    events: tuple[str, ...]
    created_at: datetime


@dataclass(frozen=True)
class NewSubscription(Subscription):
    """A subscription with its secret, which is only shown on creation."""

    secret: Annotated[
        str | None,
        Field(description="Signs all webhooks of this tenant to this host. Null if RETOMA_WEBHOOK_SECRET is used."),
    ] = field(repr=False)
