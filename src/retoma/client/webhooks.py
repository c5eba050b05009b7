"""`client.webhooks`: deliveries, endpoints and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from retoma.client.core import ALL_TENANTS, Namespace
from retoma.client.validation import id_range
from retoma.define.webhook import Webhook, expand_events
from retoma.errors import Conflict, NotFound
from retoma.records import Delivery, Endpoint, Subscription
from retoma.signing import generate_secret
from retoma.states import DeliveryState
from retoma.store import deliveries

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
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Webhooks that are or were owed, newest first; the dead ones are the dead letters."""
        return await deliveries.list_deliveries(
            self._database,
            tenant=await self._core.find_tenant_id(tenant),
            states=states,
            run=run,
            endpoint=endpoint,
            before=before,
            limit=limit,
        )

    async def get_delivery(self, delivery: UUID, *, tenant: str | None = None) -> Delivery:
        """One webhook with its body and every attempt."""
        found = await deliveries.get_delivery(self._database, delivery, await self._core.find_tenant_id(tenant))
        if found is None:
            raise NotFound(f"there is no delivery {delivery}")
        return found

    async def find_delivery(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest deliveries whose ids begin like this; dashes and case do not matter."""
        ids = id_range(prefix)
        return [] if ids is None else await deliveries.find_by_id_range(self._database, *ids, limit)

    async def redrive(self, delivery: UUID, *, tenant: str | None = None) -> None:
        """Let a dead webhook be sent again, with the same id and body. Raises Conflict if it is not dead, or if its
        endpoint is disabled."""
        owner = await self._core.find_tenant_id(tenant)
        if await deliveries.redrive_deliveries(self._database, tenant=owner, id=delivery):
            return
        found = await self.get_delivery(delivery, tenant=tenant)
        if found.state is not DeliveryState.DEAD:
            raise Conflict(f"delivery {delivery} is {found.state}: only a dead one is sent again")
        raise Conflict(
            f"endpoint {found.endpoint} of delivery {delivery} is disabled: enable it first, with "
            f"`retoma endpoints enable {found.endpoint}` or POST /api/v1/endpoints/{found.endpoint}/enable"
        )

    async def redrive_all(
        self,
        *,
        tenant: str | None = None,
        endpoint: int | None = None,
        url: str | None = None,
        from_at: datetime | None = None,
        to_at: datetime | None = None,
    ) -> int:
        """The same for all dead webhooks of an endpoint or a URL, or made within a time; gives how many.

        Those of disabled endpoints stay dead.
        """
        return await deliveries.redrive_deliveries(
            self._database,
            tenant=await self._core.find_tenant_id(tenant),
            endpoint=endpoint,
            url=url,
            from_at=from_at,
            to_at=to_at,
        )

    async def list_endpoints(
        self, *, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[Endpoint]:
        """The URLs that webhooks went to, newest first."""
        owner = await self._core.find_tenant_id(tenant)
        return await deliveries.list_endpoints(self._database, tenant=owner, before=before, limit=limit)

    async def get_endpoint(self, endpoint: int, *, tenant: str | None = None) -> Endpoint:
        found = await deliveries.list_endpoints(
            self._database, id=endpoint, tenant=await self._core.find_tenant_id(tenant)
        )
        if not found:
            raise NotFound(f"there is no endpoint {endpoint}")
        return found[0]

    async def enable_endpoint(self, endpoint: int, *, tenant: str | None = None) -> None:
        """Send to it again what will be owed from now on; what is dead is for `redrive_all`."""
        if not await deliveries.enable_endpoint(self._database, endpoint, await self._core.find_tenant_id(tenant)):
            raise NotFound(f"there is no endpoint {endpoint}")

    async def subscribe(self, url: str, events: Sequence[str], *, tenant: str | None = None) -> Subscription:
        """Send these events of all runs of a tenant to `url` from now on; without a tenant, of all tenants' runs.

        The same URL again replaces its events. Its `secret` is that of the tenant's webhooks to this host. Raises
        UnsafeUrl if the URL must not be called, and InvalidInput for an unknown event.
        """
        wanted = expand_events(Webhook(url, events).events)
        host = self._core.guard.check(url).origin
        owner = ALL_TENANTS if tenant is None else await self._core.tenants.get_or_create_id(tenant)
        if await deliveries.count_subscriptions(self._database, owner) >= MAX_SUBSCRIPTIONS:
            raise Conflict(f"there are {MAX_SUBSCRIPTIONS} subscriptions already: remove one that is not needed")
        endpoint, secret = await deliveries.subscribe(
            self._database, owner, url=url, host=host, events=wanted, secret=generate_secret()
        )
        return replace(await self.get_subscription(endpoint), secret=secret)

    async def list_subscriptions(
        self, *, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[Subscription]:
        """List the URLs that have subscribed, the newest first."""
        owner = await self._core.find_tenant_id(tenant)
        found = await deliveries.list_endpoints(
            self._database, tenant=owner, subscribed=True, before=before, limit=limit
        )
        return [_to_subscription(one) for one in found]

    async def get_subscription(self, subscription: int, *, tenant: str | None = None) -> Subscription:
        owner = await self._core.find_tenant_id(tenant)
        found = await deliveries.list_endpoints(self._database, id=subscription, tenant=owner, subscribed=True)
        if not found:
            raise NotFound(f"there is no subscription {subscription}")
        return _to_subscription(found[0])

    async def unsubscribe(self, subscription: int, *, tenant: str | None = None) -> None:
        """Send it no further events; those that it is already owed are still sent."""
        if not await deliveries.unsubscribe(self._database, subscription, await self._core.find_tenant_id(tenant)):
            raise NotFound(f"there is no subscription {subscription}")

    async def rotate_secret(
        self, endpoint: int, *, tenant: str | None = None, overlap: timedelta = SECRETS_OVERLAP
    ) -> str:
        """A new secret for the webhooks of this endpoint's tenant to its host, shown only now.

        The former one signs beside it for `overlap`.
        """
        secret = generate_secret()
        owner = await self._core.find_tenant_id(tenant)
        if await deliveries.rotate_secret(self._database, endpoint, owner, secret, overlap) is None:
            raise NotFound(f"there is no endpoint {endpoint}")
        return secret


def _to_subscription(endpoint: Endpoint) -> Subscription:
    return Subscription(endpoint.id, endpoint.tenant, endpoint.url, endpoint.events, endpoint.created_at)
