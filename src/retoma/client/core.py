"""What all namespaces of the client share: the database, the application, and how runs are started and awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from retoma.app import App
from retoma.define.pipeline import Pipeline
from retoma.encryption import Keyring
from retoma.engine import metrics, versions
from retoma.engine.run_starter import RunStarter
from retoma.engine.run_waiter import RunWaiter
from retoma.engine.tenant_resources import TenantResources
from retoma.errors import AccessDenied, NotFound, RoleMissing
from retoma.outgoing import Guard
from retoma.records import Access, Actor, ActorKind, AuditAction, Role, RoleGrant, Scope, get_least_role
from retoma.settings import RetentionTimes
from retoma.store import clock
from retoma.store.audit_log import PendingEntry
from retoma.store.database import Database
from retoma.store.tenants import OwnedKind, Tenants

NO_TENANT = 0
PROGRAM = Actor(ActorKind.PROGRAM, "client", "client")  # a program that does not say on whose behalf it acts
ALL_TENANTS = -1  # its endpoints receive the events of every tenant
MAX_OWNERS = 10_000  # runs whose tenants are remembered: they never change


@dataclass(frozen=True)
class TenantLimit:
    """The tenants on which a client may act. It may reveal those that are `visible` (None: all) to its user.

    `scope` is what the user lacks in a tenant that is only visible.
    """

    tenants: frozenset[str]
    visible: frozenset[str] | None = frozenset()
    scope: Scope | None = None

    def shows(self, tenant: str) -> bool:
        return self.visible is None or tenant in self.visible


class Core:
    """`heartbeat_timeout` is how long a worker may go without a heartbeat before it counts as dead.

    `limit` names the tenants on which this client may act; None means all. `actor` is who acts through it, and `access`
    what the actor may do; None means everything.
    """

    limit: TenantLimit | None = None
    access: Access | None = None

    def __init__(
        self,
        app: App | None,
        database: Database,
        guard: Guard,
        heartbeat_timeout: timedelta,
        retention: RetentionTimes | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self.app = app
        self.database = database
        self.guard = guard
        self.heartbeat_timeout = heartbeat_timeout
        self.retention = retention or RetentionTimes()
        self.actor = PROGRAM
        self.starter = RunStarter(database)
        self.waiter = RunWaiter(database)
        self.tenants = Tenants(database)
        self.keyring = keyring or Keyring.from_environment()
        self.tenant_resources = TenantResources(database, self.keyring)
        self._versions: dict[str, int] = {}
        self._run_owners: dict[UUID, int] = {}
        self.link_secrets: dict[str, str] = {}
        self.metrics_reader = metrics.CachedReader(database, metrics.read_metrics, heartbeat_timeout)
        self.job_type_reader = metrics.CachedReader(database, metrics.read_job_types, heartbeat_timeout)
        self.snapshot_reader = metrics.CachedReader(database, metrics.read_snapshot, heartbeat_timeout)

    async def close(self) -> None:
        """Stop waiting for runs, and finish pending starts."""
        await self.waiter.close()
        await self.starter.close()

    def expire_metrics(self) -> None:
        """Read the metrics again, because something was changed that they show."""
        self.metrics_reader.expire()
        self.snapshot_reader.expire()

    async def now(self) -> datetime:
        """Return the time of the database."""
        return await clock.now(self.database)

    @property
    def app_name(self) -> str:
        if self.app is None:
            raise NotFound("this client has no application: pass one to `connect`")
        if self.app not in self.app.applications:
            raise NotFound(
                f"{self.app.name!r} only includes others: use `client.scope_to(application)` for one of them"
            )
        return self.app.name

    def scope_to(self, app: App) -> Core:
        """Return the same core for one application."""
        scoped = copy(self)
        scoped.app = app
        return scoped

    def acting_as(self, actor: Actor, access: Access | None = None) -> Core:
        """Return the same core on behalf of this actor. Without `access`, what it may do stays as it is."""
        acting = copy(self)
        acting.actor = actor
        acting.access = self.access if access is None else access
        return acting

    @property
    def person(self) -> int | None:
        """The number of the person who acts, if it is one."""
        return int(self.actor.id) if self.actor.kind is ActorKind.PERSON else None

    def may_grant(self, grant: RoleGrant) -> bool:
        """Return whether the actor may give this role: nobody gives more than they have."""
        is_within = self.limit is None or (grant.tenant is not None and grant.tenant in self.limit.tenants)
        return is_within and (self.access is None or self.access.includes(grant))

    async def list_grantable(self) -> list[tuple[int | None, Role]]:
        """Return the highest role that the actor may give in each tenant; None: in all tenants."""
        named = (*(self.limit.tenants if self.limit else ()), *(self.access.by_tenant if self.access else ()))
        found = []
        for tenant in (None, *sorted(set(named))):
            role = next((each for each in reversed(Role) if self.may_grant(RoleGrant(tenant, each))), None)
            number = None if tenant is None else await self.tenants.find_id(tenant)
            if role is not None and (tenant is None or number is not None):
                found.append((number, role))
        return found

    @property
    def records_starts(self) -> bool:
        """Whether the audit log has the runs that the actor starts. A program starts many, and each run says so."""
        return self.actor.kind not in (ActorKind.KEY, ActorKind.PROGRAM, ActorKind.ENGINE)

    async def bind_resources(self, app: App, tenant: str | None) -> Mapping[str, Any]:
        """Return the resources of an application for a tenant; None: as for a tenant without own connections."""
        number = None if tenant is None else await self.tenants.find_id(tenant)
        return await self.tenant_resources.resolve(app.resources, number)

    def get_pipeline(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application and therefore no pipelines: pass one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def get_version(self, pipeline: Pipeline) -> int:
        """Return the number of the pipeline's current version, which is stored when it is first used."""
        if pipeline.name not in self._versions:
            self._versions[pipeline.name] = await versions.register(self.database, pipeline)
        return self._versions[pipeline.name]

    def limit_to(self, limit: TenantLimit) -> Core:
        """Return the same core for these tenants. A limit can only become narrower."""
        limited = copy(self)
        limited.limit = limit if self.limit is None else TenantLimit(self.limit.tenants & limit.tenants)
        return limited

    def may_act_on(self, tenant: str) -> bool:
        return self.limit is None or tenant in self.limit.tenants

    async def find_tenants(self, tenant: str | None = None) -> list[int] | None:
        """Return the ids of the tenants that a query is about; None means all. A query creates no tenant.

        With a tenant, its id alone, or none if this client may not act on it.
        """
        if self.limit is None and tenant is None:
            return None
        wanted = self.limit.tenants if self.limit and tenant is None else [tenant or ""]
        found = [await self.tenants.find_id(each) for each in sorted(wanted) if self.may_act_on(each)]
        return [each for each in found if each is not None]

    async def find_tenant_id(self, tenant: str | None) -> int | None:
        """Return the id of one tenant, or of none if it does not exist or this client may not act on it.

        None means all tenants. Raise AccessDenied if this client is limited and no tenant is given.
        """
        if tenant is None:
            self.require_all_tenants()
            return None
        return next(iter(await self.find_tenants(tenant) or ()), NO_TENANT)

    async def get_or_create_tenant(self, tenant: str) -> int:
        """Return the id of the tenant for something new. Raise AccessDenied if this client may not act on it."""
        self.check_tenant(tenant)
        return await self.tenants.get_or_create_id(tenant)

    def check_tenant(self, tenant: str) -> None:
        """Raise AccessDenied if this client may not act on the tenant that the caller names."""
        if not self.may_act_on(tenant):
            raise self._refuse(tenant)

    def require_all_tenants(self) -> None:
        """Raise AccessDenied if this client is limited: the call is about all tenants."""
        if self.limit is not None:
            raise AccessDenied("this needs access to all tenants")

    async def find_owner(self, kind: OwnedKind, id: UUID | int, tenant: str | None = None) -> int | None:  # noqa: A002
        """Return the id of the only tenant to which the object may belong; None means any.

        It is that of no tenant if this client must not see the object, so the statement that follows does not find it.
        Raise RoleMissing if this client may see the object, but not act on it.
        """
        if self.limit is None:
            return None if tenant is None else await self.tenants.find_id(tenant) or NO_TENANT
        owner = await self._find_owner(kind, id)
        if owner is None or owner == ALL_TENANTS:
            return NO_TENANT
        name = await self.tenants.get_name(owner)
        if name in self.limit.tenants:
            return owner if tenant in (None, name) else NO_TENANT
        if self.limit.shows(name) and self.limit.scope is not None:
            raise self._refuse(name)
        return NO_TENANT

    async def check_run(self, run: UUID) -> None:
        """Raise NotFound if this client is limited to tenants of which this run is not one's."""
        if self.limit is not None and await self.find_owner("run", run) == NO_TENANT:
            raise NotFound(f"there is no run {run}")

    async def _find_owner(self, kind: OwnedKind, id: UUID | int) -> int | None:  # noqa: A002
        if kind != "run" or not isinstance(id, UUID):
            return await self.tenants.find_owner(kind, id)
        if id not in self._run_owners:
            owner = await self.tenants.find_owner(kind, id)
            if owner is None:
                return None
            if len(self._run_owners) >= MAX_OWNERS:
                self._run_owners.clear()
            self._run_owners[id] = owner
        return self._run_owners[id]

    def _refuse(self, tenant: str) -> AccessDenied:
        if self.limit is not None and self.limit.scope is not None and self.limit.shows(tenant):
            return RoleMissing(
                f"this takes the role {get_least_role(self.limit.scope)} in the tenant {tenant!r:.80}, or a higher one"
            )
        return AccessDenied(f"you may not act on the tenant {tenant!r:.80}")


def as_list(names: str | Sequence[str] | None) -> Sequence[str] | None:
    return [names] if isinstance(names, str) else names


class Namespace:
    """One group of the client's methods, such as `client.reviews`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._database = core.database

    def _get_author(self, by: str | None) -> str:
        """Return who events name: `by`, or the actor of this client."""
        return self._core.actor.name if by is None else by

    def _recording(
        self, statements: str | tuple[str, ...], action: AuditAction, object_id: Any, **details: Any
    ) -> Database:
        """Return the database for one change: the first of the named statements that does something also writes an
        entry of the audit log.

        `object_id` and `details` are fields of `PendingEntry`.
        """
        shown = object_id if object_id is None or callable(object_id) else str(object_id)
        names = (statements,) if isinstance(statements, str) else statements
        return self._database.recording(PendingEntry(names, self._core.actor, action, shown, **details))
