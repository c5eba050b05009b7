"""The webhook sender: claims due deliveries, signs and sends them, and records the outcome.

A delivery whose sender died is sent again with the same id.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from retoma.client import Client
from retoma.define.codec import describe_validation_error
from retoma.engine.outbox_sender import OutboxSender
from retoma.errors import DatabaseUnavailable, NoResponse, UnsafeUrl, WebhookBodyFailed
from retoma.logs import get_logger
from retoma.masking import hide_folders, mask_secrets
from retoma.outgoing import Guard, HttpClient, Response, mask_query_values
from retoma.settings import Settings
from retoma.signing import check_secret, sign_headers
from retoma.states import DeliveryState
from retoma.store import deliveries, servers
from retoma.store.deliveries import ClaimedDelivery, RecordedAttempt
from retoma.tracebacks import release_frames
from retoma.tracing import TRACES
from retoma.webhooks.body import build_body
from retoma.webhooks.delivery_retries import (
    DeliveryOutcome,
    RetryDecision,
    decide_after_failure,
    decide_after_response,
    parse_retry_after,
)
from retoma.webhooks.delivery_span import get_delivery_span, record_delivery

log = get_logger(__name__)
TIMEOUT = 10.0
MAX_RESPONSE_BYTES = 64_000
MAX_STORED_LENGTH = 1_000
LEASE = timedelta(seconds=30)
MAX_PER_HOST = 8


class Sender(OutboxSender[ClaimedDelivery]):
    """Sends webhooks until `stop`, which lets attempts in progress finish."""

    def __init__(self, client: Client, settings: Settings, outgoing: HttpClient, *, concurrency: int = 50) -> None:
        super().__init__(client.database, concurrency=concurrency)
        self._client = client
        self._pipelines = sorted(client.app.pipelines) if client.app else []
        self._settings = settings
        for secret in self._list_configured_secrets():
            check_secret(secret)
        self._outgoing = outgoing

    def _log_delay(self, error: Exception) -> None:
        log.warning("webhooks_delayed", message="could not claim due webhooks; retrying", error=error)

    async def _claim_due(self, room: int) -> list[ClaimedDelivery]:
        return await deliveries.claim_deliveries(self._database, self._pipelines, room, MAX_PER_HOST, LEASE)

    async def _send(self, delivery: ClaimedDelivery) -> None:
        try:
            await self._attempt_delivery(delivery)
        except DatabaseUnavailable as error:
            log.warning(
                "webhook_attempt_not_recorded",
                message="could not record a webhook attempt: the database is unreachable; the webhook will be resent",
                delivery=str(delivery.id),
                error=error,
            )
        except Exception as error:
            log.exception(
                "webhook_record_failed",
                message="an unexpected error prevented recording a webhook attempt; the webhook will be resent",
                delivery=str(delivery.id),
                error=error,
            )
            release_frames(error)

    async def _attempt_delivery(self, delivery: ClaimedDelivery) -> None:
        began, started_at = time.monotonic(), time.time_ns()
        response, error = None, None
        try:
            body = await self._get_or_freeze_body(delivery)
            if body is None:
                return
            response = await self._post(delivery, body)
            wait = parse_retry_after(response.headers.get("retry-after"), delivery.now)
            decision = decide_after_response(delivery, response.status, wait)
        except UnsafeUrl as refused:
            decision, error = await self._decide_after_refusal(delivery), str(refused)
            release_frames(refused)
        except (NoResponse, WebhookBodyFailed) as failed:
            decision, error = decide_after_failure(delivery), str(failed)
            release_frames(failed)
        except DatabaseUnavailable:
            raise
        except Exception as unforeseen:
            # Count it as a failed attempt: a delivery without a recorded outcome would be sent forever.
            log.exception(
                "webhook_send_crashed",
                message="an unexpected error prevented sending a webhook",
                delivery=str(delivery.id),
                error=unforeseen,
            )
            decision, error = (
                decide_after_failure(delivery),
                f"an unexpected error on this side: {type(unforeseen).__name__}: {unforeseen}",
            )
            release_frames(unforeseen)
        if TRACES.is_on:
            record_delivery(delivery, started_at, None if response is None else response.status, error)
        await self._record(delivery, decision, timedelta(seconds=time.monotonic() - began), response, error)

    async def _decide_after_refusal(self, delivery: ClaimedDelivery) -> RetryDecision:
        """Retry if a running server allows the host but this worker does not: the receiver is not at fault."""
        hosts = await servers.list_allowed_hosts(self._database)
        try:
            if self._outgoing.guard.list_not_allowed(hosts):
                Guard.from_hosts(hosts).check(delivery.url)
                return decide_after_failure(delivery)
        except UnsafeUrl:
            pass
        return RetryDecision(DeliveryOutcome.DEAD)

    async def _get_or_freeze_body(self, delivery: ClaimedDelivery) -> bytes | None:
        """Return the body, stored before the first attempt: all attempts send the same. None if the lease was lost."""
        body = delivery.body
        if body is None:
            body = await deliveries.freeze_body(self._database, delivery, await self._build_body(delivery))
        return None if body is None else body.encode()

    async def _build_body(self, delivery: ClaimedDelivery) -> str:
        try:
            return await build_body(self._client, delivery, self._settings.public_url)
        except DatabaseUnavailable:
            raise
        except Exception as wrong:
            raise WebhookBodyFailed(
                f"the body of the webhook cannot be built: {type(wrong).__name__}: {describe_validation_error(wrong)}"
            ) from wrong

    async def _post(self, delivery: ClaimedDelivery, body: bytes) -> Response:
        headers = sign_headers(
            self._list_secrets(delivery), str(delivery.id), delivery.now, body, attempt=delivery.schedule_attempt
        )
        if TRACES.is_on:
            headers["traceparent"] = get_delivery_span(delivery).traceparent
        return await self._outgoing.request(
            "POST",
            delivery.url,
            headers={"content-type": "application/json", **headers},
            content=body,
            timeout=TIMEOUT,
            limit=MAX_RESPONSE_BYTES,
        )

    def _list_secrets(self, delivery: ClaimedDelivery) -> list[str]:
        """Return the signing secrets, newest first."""
        if self._settings.webhook_secret is not None:
            return self._list_configured_secrets()
        return [delivery.secret, delivery.previous_secret] if delivery.previous_secret else [delivery.secret]

    def _list_configured_secrets(self) -> list[str]:
        configured = (self._settings.webhook_secret, self._settings.webhook_previous_secret)
        return [each.get_secret_value() for each in configured if each is not None]

    async def _record(
        self,
        delivery: ClaimedDelivery,
        decision: RetryDecision,
        took: timedelta,
        response: Response | None,
        error: str | None,
    ) -> None:
        status = response.status if response else None
        error = error or _describe_response(response)
        recorded = await deliveries.record_attempt(
            self._database,
            delivery,
            outcome=decision.outcome,
            delay=decision.delay,
            pause=decision.pause,
            took=took,
            status=status,
            error=_make_storable(error),
            answer=_make_storable(response.text) if response else None,
        )
        if recorded is None:
            log.warning(
                "webhook_attempt_rejected",
                message="discarded a late attempt: another sender has claimed the delivery",
                delivery=str(delivery.id),
            )
        else:
            _log_attempt(delivery, recorded, status=status, error=error)


def _log_attempt(
    delivery: ClaimedDelivery, recorded: RecordedAttempt, *, status: int | None, error: str | None
) -> None:
    """Log each attempt, so the log alone shows the fate of a webhook. Query values of its URL are masked."""
    about: dict[str, Any] = {
        "run": str(delivery.run),
        "attempt": delivery.attempt,
        "type": delivery.event,
        "delivery": str(delivery.id),
        "url": mask_query_values(delivery.url),
        "status": status,
    }
    match recorded.state:
        case DeliveryState.DELIVERED:
            log.info("webhook_delivered", message="delivered a webhook", **about)
        case DeliveryState.DEAD:
            log.error("webhook_dead", message="gave up on a webhook; it is now a dead letter", **about, error=error)
        case _:
            wait = None if recorded.retry_in is None else round(recorded.retry_in.total_seconds(), 1)
            log.warning(
                "webhook_failed",
                message="a webhook attempt failed; retrying later",
                **about,
                error=error,
                retry_in_seconds=wait,
            )
    if recorded.disabled:
        log.warning(
            "webhook_endpoint_disabled",
            message="disabled a webhook endpoint after repeated failures",
            endpoint=delivery.endpoint,
            url=about["url"],
        )


def _describe_response(response: Response | None) -> str | None:
    if response is None or response.is_success:
        return None
    if 300 <= response.status < 400:
        return f"the receiver answered {response.status}: redirects are not followed"
    return f"the receiver answered {response.status}"


def _make_storable(text: str | None) -> str | None:
    """Mask secrets and folders: an error of the application may contain one, and a receiver may echo ours."""
    return None if text is None else hide_folders(mask_secrets(text)).replace("\0", "")[:MAX_STORED_LENGTH]
