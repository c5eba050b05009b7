"""Notifications from the plugin: what happened to an article, sent to `POST /webhooks/wp-job-updated`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from retoma.errors import InvalidInput
from retoma_apps.providers.wordpress.port import EventDetail, EventKind, EventTime
from retoma_apps.providers.wordpress.signature import Credentials, verify

ROUTE = "/webhooks/wp-job-updated"
MAX_BYTES = 65_536


@dataclass(frozen=True)
class Notification:
    """`event_id` is the same in every attempt. A `ping` tests the connection: it has no job and the sequence 0."""

    event_id: Annotated[str, Field(min_length=1, max_length=64)]
    sequence: Annotated[int, Field(ge=0)]
    idempotency_key: str | None
    job_id: str | None
    site_url: str
    blog_id: int
    revision: int
    kind: EventKind | Literal["ping"]
    at: EventTime
    detail: EventDetail = field(default_factory=dict)


_NOTIFICATION = TypeAdapter(Notification)


def read_notification(
    accepted: Sequence[Credentials], headers: Mapping[str, str], body: bytes, now: datetime
) -> Notification:
    """Return a notification that one of the accepted credentials signed.

    Raise BadSignature, or InvalidInput if the body is too long or has another form.
    """
    if len(body) > MAX_BYTES:
        raise InvalidInput(f"a notification has at most {MAX_BYTES} bytes")
    verify(accepted, headers, "POST", ROUTE, body, now)
    try:
        return _NOTIFICATION.validate_json(body)
    except ValidationError as error:
        fields = ", ".join(str(each["loc"][0]) if each["loc"] else "the body" for each in error.errors())
        raise InvalidInput(f"the notification is not valid: {fields}") from None
