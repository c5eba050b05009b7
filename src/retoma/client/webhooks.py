"""`client.webhooks`: deliveries, endpoints and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from retoma.client.audit_values import keep_set
from retoma.client.core import ALL_TENANTS, Namespace, as_list
from retoma.define.webhook import Webhook, expand_events
from retoma.errors import Conflict, NotFound
from retoma.masking import mask_secrets
from retoma.records import AuditAction, Delivery, DeliveryDetails, Endpoint, NewSubscription, Subscription
from retoma.signing import generate_secret
from retoma.states import DeliveryState
from retoma.store import deliveries
from retoma.store.deliveries import DeadLetterFilter, DeliveryFilter
from retoma.store.id_prefixes import find_by_prefix

SECRETS_OVERLAP = timedelta(hours=24)
MAX_SUBSCRIPTIONS = 100


class Webhooks(Namespace):
    async def list_deliveries(
        self,
        *,
        tenant: str | None = None,
        states: Sequence[DeliveryState] | None = None,
        run: UUID | None = None,
        endpoint: int | None = None,
        pipeline: str | Sequence[str] | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Return deliveries of webhooks, newest first; the dead ones are the dead letters."""
        tenants = await self._core.find_tenants(tenant)
        wanted = DeliveryFilter(tenants, states or None, run, endpoint, as_list(pipeline), before=before, limit=limit)
        return await deliveries.list_deliveries(self._database, wanted)

    async def get_delivery(self, delivery: UUID, *, tenant: str | None = None) -> DeliveryDetails:
        """Return one delivery with its body and every attempt."""
        found = await deliveries.get_delivery(self._database, delivery, await self._core.find_tenants(tenant))
        if found is None:
            await self._core.find_owner("delivery", delivery)  # raises RoleMissing if it is visible
            raise NotFound(f"there is no delivery {delivery}")
        return found

    async def find_delivery(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """Return the newest deliveries whose ids start with `prefix`, ignoring dashes and case."""
        return await find_by_prefix(self._database, "deliveries", prefix, await self._core.find_tenants(), limit)

    async def redeliver(self, delivery: UUID, *, tenant: str | None = None) -> None:
        """Send a dead letter again, with the same id and body. Raise Conflict if it is not dead, or if its endpoint is
        disabled."""
        owner = await self._core.find_owner("delivery", delivery, tenant)
        recording = self._recording("redeliver", AuditAction.DELIVERY_REDELIVER, delivery, applies=_count_redelivered)
        if await deliveries.redeliver(recording, DeadLetterFilter(owner, delivery)):
            return
        found = await self.get_delivery(delivery, tenant=tenant)
        if found.state is not DeliveryState.DEAD:
            raise Conflict(f"delivery {delivery} is {found.state}: only a dead delivery can be redelivered")
        raise Conflict(
            f"endpoint {found.endpoint} of delivery {delivery} is disabled: enable it first, with "
            f"`retoma endpoints enable {found.endpoint}` or POST /api/v1/endpoints/{found.endpoint}/enable"
        )

    async def redeliver_all(
        self,
        *,
        tenant: str | None = None,
        endpoint: int | None = None,
        url: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> int:
        """Redeliver all dead letters of an endpoint or a URL, or created within a period; return how many.

        Those of disabled endpoints stay dead.
        """
        tenants: Sequence[int | None] | None = await self._core.find_tenants(tenant)
        count = 0
        for owner in [None] if tenants is None else tenants:
            recording = self._recording(
                "redeliver",
                AuditAction.ENDPOINT_REDELIVER_ALL,
                endpoint,
                tenant=owner,
                after=lambda rows: (
                    keep_set(url=url, since=since, until=until) | {"deliveries": _count_redelivered(rows)}
                ),
                applies=_count_redelivered,
            )
            wanted = DeadLetterFilter(owner, None, endpoint, url, since, until)
            count += await deliveries.redeliver(recording, wanted)
        return count

    async def list_endpoints(
        self, *, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[Endpoint]:
        """Return the URLs that webhooks were sent to, newest first."""
        tenants = await self._core.find_tenants(tenant)
        return await deliveries.list_endpoints(self._database, tenants=tenants, before=before, limit=limit)

    async def get_endpoint(self, endpoint: int, *, tenant: str | None = None) -> Endpoint:
        found = await deliveries.list_endpoints(
            self._database, id=endpoint, tenants=await self._core.find_tenants(tenant)
        )
        if not found:
            raise NotFound(f"there is no endpoint {endpoint}")
        return found[0]

    async def enable_endpoint(self, endpoint: int, *, tenant: str | None = None) -> None:
        """Enable an endpoint for future events; use `redeliver_all` for its dead letters."""
        owner = await self._core.find_owner("endpoint", endpoint, tenant)
        recording = self._recording("enable_endpoint", AuditAction.ENDPOINT_ENABLE, endpoint)
        if not await deliveries.enable_endpoint(recording, endpoint, owner):
            raise NotFound(f"there is no endpoint {endpoint}")

    async def subscribe(self, url: str, events: Sequence[str], *, tenant: str | None = None) -> NewSubscription:
        """From now on, send these events of all runs of a tenant to `url`; without a tenant, of all tenants.

        Subscribing the same URL again replaces its events. Its `secret` is that of the tenant's webhooks to this host.
        Raise UnsafeUrl if the URL must not be called, and InvalidInput for an unknown event.
        """
        wanted = expand_events(Webhook(url, events).events)
        host = self._core.guard.check(url).origin
        owner = await self._get_subscriber(tenant)
        if await deliveries.count_subscriptions(self._database, owner) >= MAX_SUBSCRIPTIONS:
            raise Conflict(f"the limit of {MAX_SUBSCRIPTIONS} subscriptions is reached: remove one that is not needed")
        recording = self._recording(
            "subscribe",
            AuditAction.ENDPOINT_SUBSCRIBE,
            lambda rows: str(rows[0]["id"]),
            after={"url": mask_secrets(url), "events": wanted},
        )
        endpoint, secret = await deliveries.subscribe(
            recording, owner, url=url, host=host, events=wanted, secret=generate_secret()
        )
        return NewSubscription(**vars(await self.get_subscription(endpoint)), secret=secret)

    async def _get_subscriber(self, tenant: str | None) -> int:
        if tenant is not None:
            return await self._core.get_or_create_tenant(tenant)
        self._core.require_all_tenants()
        return ALL_TENANTS

    async def list_subscriptions(
        self, *, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[Subscription]:
        """Return the subscriptions, newest first."""
        tenants = await self._core.find_tenants(tenant)
        found = await deliveries.list_endpoints(
            self._database, tenants=tenants, subscribed=True, before=before, limit=limit
        )
        return [_to_subscription(one) for one in found]

    async def get_subscription(self, subscription: int, *, tenant: str | None = None) -> Subscription:
        tenants = await self._core.find_tenants(tenant)
        found = await deliveries.list_endpoints(self._database, id=subscription, tenants=tenants, subscribed=True)
        if not found:
            raise NotFound(f"there is no subscription {subscription}")
        return _to_subscription(found[0])

    async def unsubscribe(self, subscription: int, *, tenant: str | None = None) -> None:
        """Stop sending events to it; pending deliveries are still sent."""
        owner = await self._core.find_owner("endpoint", subscription, tenant)
        recording = self._recording("unsubscribe", AuditAction.ENDPOINT_UNSUBSCRIBE, subscription)
        if not await deliveries.unsubscribe(recording, subscription, owner):
            raise NotFound(f"there is no subscription {subscription}")

    async def rotate_secret(
        self, endpoint: int, *, tenant: str | None = None, overlap: timedelta = SECRETS_OVERLAP
    ) -> str:
        """Create a new secret for the webhooks of this endpoint's tenant to its host. It is only returned here.

        For `overlap`, webhooks are signed with the previous secret too.
        """
        secret = generate_secret()
        owner = await self._core.find_owner("endpoint", endpoint, tenant)
        recording = self._recording("rotate_secret", AuditAction.ENDPOINT_ROTATE_SECRET, endpoint)
        if await deliveries.rotate_secret(recording, endpoint, owner, secret, overlap) is None:
            raise NotFound(f"there is no endpoint {endpoint}")
        return secret


def _count_redelivered(rows: Sequence[Any]) -> int:
    return int(rows[0]["deliveries"])


def _to_subscription(endpoint: Endpoint) -> Subscription:
    return Subscription(endpoint.id, endpoint.tenant, endpoint.url, endpoint.events, endpoint.created_at)
