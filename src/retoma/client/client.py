"""The client: start runs and wait for them; everything else is in namespaces, such as `client.runs`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import copy
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from retoma.app import App
from retoma.client.api_keys import ApiKeys
from retoma.client.audit import AuditLog
from retoma.client.budgets import Budgets
from retoma.client.bulk_actions import BulkActions
from retoma.client.capacity import Pools, Queues, Workers
from retoma.client.connections import Connections
from retoma.client.core import Core, TenantLimit
from retoma.client.costs import Costs
from retoma.client.external_work import ExternalWorkQueries
from retoma.client.file_access import admit_files
from retoma.client.files import Files
from retoma.client.inbound_events import InboundEvents
from retoma.client.metrics import MetricQueries
from retoma.client.notifications import Notifications
from retoma.client.people import People
from retoma.client.retention import Retention
from retoma.client.reviews import Reviews
from retoma.client.runs import Runs, describe_failure
from retoma.client.schedules import Schedules
from retoma.client.start_span import record_starts
from retoma.client.starts import build_start
from retoma.client.tenants import TenantProfiles
from retoma.client.validation import (
    check_limits,
    check_start_options,
    encode_inputs,
)
from retoma.client.webhooks import Webhooks
from retoma.define.pipeline import Input, Pipeline
from retoma.define.webhook import Webhook, encode_webhook
from retoma.encryption import Keyring
from retoma.engine import versions
from retoma.engine.run_starter import MAX_BATCH_SIZE, StartedRun, StartRequest, start_alone
from retoma.errors import NotFound, RunFailed
from retoma.identifiers import new_run_id
from retoma.outgoing import Guard
from retoma.records import Access, Actor, AuditAction, Run, Scope
from retoma.settings import HEARTBEAT_TIMEOUT, RetentionTimes
from retoma.states import RunState
from retoma.store.audit_log import PendingEntry
from retoma.store.database import Database
from retoma.store.tenants import DEFAULT
from retoma.tracing import TRACES


class Client:
    """Start runs, query them and act on them. Create it with `connect`, and use it from one event loop.

    Without an application it can neither start runs nor accept results that people enter, because it cannot check
    them.
    """

    def __init__(
        self,
        app: App | None,
        database: Database,
        guard: Guard | None = None,
        *,
        heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT,
        retention: RetentionTimes | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self._set_core(Core(app, database, guard or Guard(), heartbeat_timeout, retention, keyring))

    def _set_core(self, core: Core) -> None:
        self._core = core
        self._scoped: dict[App, Client] = {}
        self.runs = Runs(core)
        self.reviews = Reviews(core)
        self.files = Files(core)
        self.webhooks = Webhooks(core)
        self.notifications = Notifications(core)
        self.external_work = ExternalWorkQueries(core)
        self.inbound_events = InboundEvents(core)
        self.pools = Pools(core)
        self.workers = Workers(core)
        self.queues = Queues(core)
        self.schedules = Schedules(core)
        self.bulk_actions = BulkActions(core)
        self.metrics = MetricQueries(core)
        self.costs = Costs(core)
        self.budgets = Budgets(core)
        self.connections = Connections(core)
        self.tenants = TenantProfiles(core)
        self.api_keys = ApiKeys(core)
        self.audit = AuditLog(core)
        self.people = People(core)
        self.retention = Retention(core)

    @property
    def app(self) -> App | None:
        return self._core.app

    def scope_to(self, application: App) -> Client:
        """Return this client for the code of one application: its `app`, pipelines and profiles are that one's."""
        if application is self.app:
            return self
        if application not in self._scoped:
            self._scoped[application] = self._with_core(self._core.scope_to(application))
        return self._scoped[application]

    def limit_to(
        self, tenants: Iterable[str], *, visible: Iterable[str] | None = (), scope: Scope | None = None
    ) -> Client:
        """Return this client for these tenants only: it neither shows nor changes anything of another tenant.

        For an object of any other tenant, it raises NotFound. If that tenant is one of `visible` (None: all), it raises
        RoleMissing instead, which names the role that includes `scope`.
        """
        shown = None if visible is None else frozenset(visible)
        return self._with_core(self._core.limit_to(TenantLimit(frozenset(tenants), shown, scope)))

    def acting_as(self, actor: Actor, access: Access | None = None) -> Client:
        """Return this client for one actor, who is recorded as the author of what it does.

        With `access`, it gives no role and resets no account with a role that includes more than that.
        """
        return self._with_core(self._core.acting_as(actor, access))

    def _with_core(self, core: Core) -> Client:
        changed = copy(self)
        changed._set_core(core)
        return changed

    @property
    def actor(self) -> Actor | None:
        return self._core.actor

    @property
    def allowed_tenants(self) -> frozenset[str] | None:
        """The tenants that this client is limited to; None means all."""
        return None if self._core.limit is None else self._core.limit.tenants

    @property
    def database(self) -> Database:
        return self._core.database

    @property
    def guard(self) -> Guard:
        """Return the guard that checks the URLs of webhooks and downloads."""
        return self._core.guard

    @property
    def heartbeat_timeout(self) -> timedelta:
        return self._core.heartbeat_timeout

    async def close(self) -> None:
        """Stop waiting for runs, and finish pending starts."""
        await self._core.close()

    async def now(self) -> datetime:
        """Return the time of the database."""
        return await self._core.now()

    async def start(
        self,
        pipeline: Pipeline | str,
        inputs: Input = None,
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        resumes: int | None = None,
        retries: int | None = None,
        deadline: timedelta | None = None,
        webhook: Webhook | None = None,
        request: BaseModel | None = None,
    ) -> StartedRun:
        """Start a run. Once this returns, the run is committed and will run to its end.

        With the same `key` and the same input, return the same run, whatever its state; with another input, raise
        KeyReused. If the input was derived from a request, pass that as `request`: it is compared instead of the input.
        `run_at` delays the start. One level of `priority` is worth ten minutes of waiting. A run that has not ended
        `deadline` after its start fails. `resumes` overrides the limit of the pipeline; no job is retried more than
        `retries` times, whatever its step declares. Events of the run are sent to `webhook`; if the key was used
        before, to the webhook of the first start.
        """
        began = time.time_ns()
        check_limits(resumes, retries, deadline)
        start = await build_start(
            self._core, pipeline, inputs, tenant=tenant, key=key, run_at=run_at, priority=priority, request=request
        )
        wanted = start._replace(
            resumes=resumes, retries=retries, deadline=deadline, webhook=self._encode_webhook(webhook)
        )
        if self._core.records_starts:
            (started,) = await start_alone(self._recording_start(pipeline, [wanted]), [wanted])
        else:
            started = await self._core.starter.start(wanted)
        if TRACES.is_on:
            record_starts([started], pipeline, tenant, began)
        return started

    async def start_many(
        self,
        pipeline: Pipeline | str,
        inputs: Sequence[Input],
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        priority: int = 0,
        webhook: Webhook | None = None,
    ) -> list[StartedRun]:
        """Start many runs of one pipeline, in order, each with this `webhook`.

        With the same `key` and the same inputs, return the same runs; with others, raise KeyReused and start none.
        """
        began = time.time_ns()
        pipeline = self._core.get_pipeline(pipeline)
        check_start_options(tenant=tenant, key=key, priority=priority, run_at=None)
        texts, titles, digest = await encode_inputs(pipeline, inputs, tenant, keyed=key is not None)
        await admit_files(self._core, tenant, *texts)
        owner, version = await self._core.get_or_create_tenant(tenant), await self._core.get_version(pipeline)
        ahead, hook = versions.get_head_start(priority), self._encode_webhook(webhook)
        starts = (
            StartRequest(
                id=new_run_id(),
                tenant=owner,
                version=version,
                input=one,
                key=None if key is None else f"{key}/{number}",
                digest=digest,
                head_start=ahead,
                webhook=hook,
                title=title,
            )
            for number, (one, title) in enumerate(zip(texts, titles, strict=True))
        )
        if self._core.records_starts:
            started = await self._start_recorded(pipeline, list(starts))
        else:
            # With a key, start the first run separately: if it belongs to other inputs, none of the others may start.
            first = islice(starts, int(key is not None))
            started = [*await self._core.starter.start_many(first), *await self._core.starter.start_many(starts)]
        if TRACES.is_on:
            record_starts(started, pipeline, tenant, began)
        return started

    async def _start_recorded(self, pipeline: Pipeline, starts: Sequence[StartRequest]) -> list[StartedRun]:
        recording, started = self._recording_start(pipeline, starts), []
        for first in range(0, len(starts), MAX_BATCH_SIZE):
            started += await start_alone(recording, starts[first : first + MAX_BATCH_SIZE])
        return started

    def _recording_start(self, pipeline: Pipeline | str, starts: Sequence[StartRequest]) -> Database:
        """Record a start, or that of many runs as one entry."""
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        return self._core.database.recording(
            PendingEntry(
                ("start_runs",),
                self._core.actor,
                AuditAction.RUN_START,
                str(starts[0].id) if len(starts) == 1 else None,
                tenant=starts[0].tenant if starts else None,
                after={"pipeline": name, "runs": len(starts)},
                applies=lambda rows: any(row["created"] for row in rows),
            )
        )

    async def get_resource(self, name: str, *, tenant: str | None = None) -> Any:
        """Return a resource of the application, as steps of the tenant's runs receive it.

        Without a tenant, as those of a tenant without connections of its own do. Raise ConnectionKeyMissing if its
        connections cannot be decrypted here.
        """
        if self.app is None or name not in self.app.resources:
            raise NotFound(f"this client has no application with a resource {name!r:.80}")
        if tenant is not None:
            self._core.check_tenant(tenant)
        return (await self._core.bind_resources(self.app, tenant))[name]

    async def wait(self, run: UUID, timeout: timedelta | None = None) -> Run:
        """Wait until the run has ended, and return it. Raise TimeoutError if it has not ended in time."""
        await self.runs.get(run)
        await self._core.waiter.wait_until_over(run, timeout)
        return await self.runs.get(run)

    async def run(self, /, pipeline: Pipeline | str, inputs: Input = None, **options: Any) -> dict[str, Any]:
        """Start a run, wait until it has ended, and return its results by step.

        Raise RunFailed if it did not complete.
        """
        started = await self.start(pipeline, inputs, **options)
        run = await self.wait(started.id)
        if run.state is not RunState.COMPLETED:
            raise RunFailed(await describe_failure(self.runs, run))
        return await self.runs.get_results(run.id)

    def _encode_webhook(self, webhook: Webhook | None) -> str | None:
        """Return the webhook as the database stores it. Raise UnsafeUrl if its URL must not be called."""
        return (
            None
            if webhook is None
            else encode_webhook(webhook, self._core.guard.check(webhook.url, "webhook.url").origin)
        )
