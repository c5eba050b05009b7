"""The client for programs without async: each call blocks until its result.

with blocking.connect(app) as client:
    run = client.start("article", {"topic": "fixed income"})
    print(client.wait(run.id).state)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from retoma import client
from retoma.app import App
from retoma.client import Client
from retoma.client.api_keys import ApiKeys
from retoma.client.audit import AuditLog
from retoma.client.budgets import Budgets
from retoma.client.bulk_actions import BulkActions
from retoma.client.capacity import Pools, Queues, Workers
from retoma.client.connections import Connections
from retoma.client.costs import Costs
from retoma.client.external_work import ExternalWorkQueries
from retoma.client.files import Files
from retoma.client.inbound_events import InboundEvents
from retoma.client.metrics import MetricQueries
from retoma.client.notifications import Notifications
from retoma.client.people import People
from retoma.client.retention import Retention
from retoma.client.reviews import Reviews
from retoma.client.runs import Runs
from retoma.client.schedules import Schedules
from retoma.client.tenants import TenantProfiles
from retoma.client.webhooks import Webhooks
from retoma.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
N = TypeVar("N")
N_co = TypeVar("N_co", covariant=True)


class LoopThread:
    """An event loop in its own daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="retoma-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return or raise what the coroutine does. If this wait is interrupted, cancel it."""
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this client is closed: use it within `with blocking.connect(...)`")
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _blocking(
    method: Callable[Concatenate[N, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingNamespace[N], P], T]:
    def call(self: BlockingNamespace[N], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._wrapped, *args, **kwargs))

    return update_wrapper(call, method)


class BlockingNamespace(Generic[N_co]):
    """The methods of a client, or of one of its namespaces; each blocks until its result."""

    def __init__(self, wrapped: N_co, loop: LoopThread) -> None:
        self._wrapped = wrapped
        self._loop = loop


class BlockingRuns(BlockingNamespace[Runs]):
    get = _blocking(Runs.get)
    find = _blocking(Runs.find)
    find_by_title = _blocking(Runs.find_by_title)
    find_by_key = _blocking(Runs.find_by_key)
    get_start_times = _blocking(Runs.get_start_times)
    count_children = _blocking(Runs.count_children)
    list_retries = _blocking(Runs.list_retries)
    get_progress = _blocking(Runs.get_progress)
    estimate_end = _blocking(Runs.estimate_end)
    list_waits = _blocking(Runs.list_waits)
    find_missing_worker = _blocking(Runs.find_missing_worker)
    list_orphans = _blocking(Runs.list_orphans)
    list_stuck = _blocking(Runs.list_stuck)
    count_resumes = _blocking(Runs.count_resumes)
    get_results = _blocking(Runs.get_results)
    get_errors = _blocking(Runs.get_errors)
    get_error_counts = _blocking(Runs.get_error_counts)
    get_graph = _blocking(Runs.get_graph)
    list_jobs = _blocking(Runs.list_jobs)
    list_step_jobs = _blocking(Runs.list_step_jobs)
    list_job_events = _blocking(Runs.list_job_events)
    list_failed_attempts = _blocking(Runs.list_failed_attempts)
    list_events = _blocking(Runs.list_events)
    get_last_event_id = _blocking(Runs.get_last_event_id)
    list_items = _blocking(Runs.list_items)
    get_item_totals = _blocking(Runs.get_item_totals)
    count_item_codes = _blocking(Runs.count_item_codes)
    cancel = _blocking(Runs.cancel)
    resume = _blocking(Runs.resume)
    get_or_record_answer = _blocking(Runs.get_or_record_answer)
    has_action = _blocking(Runs.has_action)
    retry_now = _blocking(Runs.retry_now)
    rerun_failed = _blocking(Runs.rerun_failed)
    rerun = _blocking(Runs.rerun)
    list_stale = _blocking(Runs.list_stale)
    get_step_history = _blocking(Runs.get_step_history)
    fork = _blocking(Runs.fork)
    edit = _blocking(Runs.edit)
    skip = _blocking(Runs.skip)
    resolve_orphan = _blocking(Runs.resolve_orphan)
    list = _blocking(Runs.list)


class BlockingReviews(BlockingNamespace[Reviews]):
    get = _blocking(Reviews.get)
    find = _blocking(Reviews.find)
    count_open = _blocking(Reviews.count_open)
    get_metrics = _blocking(Reviews.get_metrics)
    get_subjects = _blocking(Reviews.get_subjects)
    decide = _blocking(Reviews.decide)
    decide_many = _blocking(Reviews.decide_many)
    undo = _blocking(Reviews.undo)
    claim = _blocking(Reviews.claim)
    assign = _blocking(Reviews.assign)
    list_comments = _blocking(Reviews.list_comments)
    resolve_comment = _blocking(Reviews.resolve_comment)
    list_assignees = _blocking(Reviews.list_assignees)
    list_inbox = _blocking(Reviews.list_inbox)
    count_inbox = _blocking(Reviews.count_inbox)
    list_undoable = _blocking(Reviews.list_undoable)
    set_keys = _blocking(Reviews.set_keys)
    list = _blocking(Reviews.list)


class BlockingFiles(BlockingNamespace[Files]):
    save = _blocking(Files.save)
    list_foreign = _blocking(Files.list_foreign)
    get = _blocking(Files.get)
    sign_links = _blocking(Files.sign_links)
    check_link = _blocking(Files.check_link)
    list = _blocking(Files.list)


class BlockingWebhooks(BlockingNamespace[Webhooks]):
    list_deliveries = _blocking(Webhooks.list_deliveries)
    get_delivery = _blocking(Webhooks.get_delivery)
    find_delivery = _blocking(Webhooks.find_delivery)
    redeliver = _blocking(Webhooks.redeliver)
    redeliver_all = _blocking(Webhooks.redeliver_all)
    list_endpoints = _blocking(Webhooks.list_endpoints)
    get_endpoint = _blocking(Webhooks.get_endpoint)
    enable_endpoint = _blocking(Webhooks.enable_endpoint)
    subscribe = _blocking(Webhooks.subscribe)
    list_subscriptions = _blocking(Webhooks.list_subscriptions)
    get_subscription = _blocking(Webhooks.get_subscription)
    unsubscribe = _blocking(Webhooks.unsubscribe)
    rotate_secret = _blocking(Webhooks.rotate_secret)


class BlockingExternalWorkQueries(BlockingNamespace[ExternalWorkQueries]):
    record_callback = _blocking(ExternalWorkQueries.record_callback)
    list = _blocking(ExternalWorkQueries.list)


class BlockingInboundEvents(BlockingNamespace[InboundEvents]):
    record = _blocking(InboundEvents.record)
    list = _blocking(InboundEvents.list)
    fill_gaps = _blocking(InboundEvents.fill_gaps)


class BlockingPools(BlockingNamespace[Pools]):
    update = _blocking(Pools.update)
    list_holders = _blocking(Pools.list_holders)
    list_waiters = _blocking(Pools.list_waiters)
    list = _blocking(Pools.list)


class BlockingWorkers(BlockingNamespace[Workers]):
    list = _blocking(Workers.list)
    list_busy = _blocking(Workers.list_busy)
    drain = _blocking(Workers.drain)
    list_jobs = _blocking(Workers.list_jobs)
    request_stacks = _blocking(Workers.request_stacks)
    wait_for_stacks = _blocking(Workers.wait_for_stacks)
    get_stacks = _blocking(Workers.get_stacks)
    list_stacks = _blocking(Workers.list_stacks)


class BlockingQueues(BlockingNamespace[Queues]):
    list = _blocking(Queues.list)
    get_autoscale_advice = _blocking(Queues.get_autoscale_advice)
    update = _blocking(Queues.update)
    pause = _blocking(Queues.pause)
    resume = _blocking(Queues.resume)


class BlockingBulkActions(BlockingNamespace[BulkActions]):
    preview = _blocking(BulkActions.preview)
    start = _blocking(BulkActions.start)
    get = _blocking(BulkActions.get)
    abort = _blocking(BulkActions.abort)
    advance = _blocking(BulkActions.advance)
    list = _blocking(BulkActions.list)


class BlockingSchedules(BlockingNamespace[Schedules]):
    create = _blocking(Schedules.create)
    update = _blocking(Schedules.update)
    pause = _blocking(Schedules.pause)
    resume = _blocking(Schedules.resume)
    delete = _blocking(Schedules.delete)
    trigger = _blocking(Schedules.trigger)
    declare = _blocking(Schedules.declare)
    start_due = _blocking(Schedules.start_due)
    preview = _blocking(Schedules.preview)
    list_next = _blocking(Schedules.list_next)
    list_occurrences = _blocking(Schedules.list_occurrences)
    get = _blocking(Schedules.get)
    find = _blocking(Schedules.find)
    list = _blocking(Schedules.list)


class BlockingMetricQueries(BlockingNamespace[MetricQueries]):
    get_all = _blocking(MetricQueries.get_all)
    get_snapshot = _blocking(MetricQueries.get_snapshot)
    list_job_types = _blocking(MetricQueries.list_job_types)
    list_queue_times = _blocking(MetricQueries.list_queue_times)
    list_queue_samples = _blocking(MetricQueries.list_queue_samples)
    list_counters = _blocking(MetricQueries.list_counters)
    list_reviewers = _blocking(MetricQueries.list_reviewers)
    list_review_days = _blocking(MetricQueries.list_review_days)
    get_pipeline = _blocking(MetricQueries.get_pipeline)


class BlockingCosts(BlockingNamespace[Costs]):
    list_charges = _blocking(Costs.list_charges)
    get_totals = _blocking(Costs.get_totals)
    get_spent = _blocking(Costs.get_spent)
    get_by_day = _blocking(Costs.get_by_day)
    list_prices = _blocking(Costs.list_prices)
    set_price = _blocking(Costs.set_price)


class BlockingBudgets(BlockingNamespace[Budgets]):
    get = _blocking(Budgets.get)
    set = _blocking(Budgets.set)
    remove = _blocking(Budgets.remove)
    get_status = _blocking(Budgets.get_status)
    list_statuses = _blocking(Budgets.list_statuses)
    list_history = _blocking(Budgets.list_history)
    list_money = _blocking(Budgets.list_money)
    get_money = _blocking(Budgets.get_money)
    set_money = _blocking(Budgets.set_money)
    list = _blocking(Budgets.list)


class BlockingConnections(BlockingNamespace[Connections]):
    get = _blocking(Connections.get)
    set = _blocking(Connections.set)
    delete = _blocking(Connections.delete)
    test = _blocking(Connections.test)
    rotate = _blocking(Connections.rotate)
    get_consent_url = _blocking(Connections.get_consent_url)
    finish_consent = _blocking(Connections.finish_consent)
    list = _blocking(Connections.list)


class BlockingRetention(BlockingNamespace[Retention]):
    list_rules = _blocking(Retention.list_rules)
    set_rule = _blocking(Retention.set_rule)
    remove_rule = _blocking(Retention.remove_rule)
    preview = _blocking(Retention.preview)
    run = _blocking(Retention.run)
    hold = _blocking(Retention.hold)
    release = _blocking(Retention.release)
    list_holds = _blocking(Retention.list_holds)
    erase_run = _blocking(Retention.erase_run)
    erase_tenant = _blocking(Retention.erase_tenant)
    get_totals = _blocking(Retention.get_totals)
    list_removals = _blocking(Retention.list_removals)
    list_table_sizes = _blocking(Retention.list_table_sizes)


class BlockingTenantProfiles(BlockingNamespace[TenantProfiles]):
    get_profile = _blocking(TenantProfiles.get_profile)
    list_profiles = _blocking(TenantProfiles.list_profiles)
    set_profile = _blocking(TenantProfiles.set_profile)
    delete_profile = _blocking(TenantProfiles.delete_profile)
    list_names = _blocking(TenantProfiles.list_names)


class BlockingApiKeys(BlockingNamespace[ApiKeys]):
    create = _blocking(ApiKeys.create)
    revoke = _blocking(ApiKeys.revoke)
    rotate = _blocking(ApiKeys.rotate)
    find_by_secret = _blocking(ApiKeys.find_by_secret)
    list = _blocking(ApiKeys.list)


class BlockingNotifications(BlockingNamespace[Notifications]):
    list_channels = _blocking(Notifications.list_channels)
    set_default = _blocking(Notifications.set_default)
    get_settings = _blocking(Notifications.get_settings)
    set_preference = _blocking(Notifications.set_preference)
    set_quiet_hours = _blocking(Notifications.set_quiet_hours)
    send_test = _blocking(Notifications.send_test)
    report_budget = _blocking(Notifications.report_budget)
    list_messages = _blocking(Notifications.list_messages)
    resend = _blocking(Notifications.resend)


class BlockingAuditLog(BlockingNamespace[AuditLog]):
    list_actors = _blocking(AuditLog.list_actors)
    delete_before = _blocking(AuditLog.delete_before)
    list = _blocking(AuditLog.list)


class BlockingPeople(BlockingNamespace[People]):
    create = _blocking(People.create)
    invite = _blocking(People.invite)
    create_link = _blocking(People.create_link)
    set_role = _blocking(People.set_role)
    remove_role = _blocking(People.remove_role)
    disable = _blocking(People.disable)
    enable = _blocking(People.enable)
    update_profile = _blocking(People.update_profile)
    list_sessions = _blocking(People.list_sessions)
    end_sessions = _blocking(People.end_sessions)
    remove_second_factor = _blocking(People.remove_second_factor)
    unlink = _blocking(People.unlink)
    get = _blocking(People.get)
    list = _blocking(People.list)


class BlockingClient(BlockingNamespace[Client]):
    """A Client with blocking methods. Create it with `connect`.

    Use it from any thread except one that runs an event loop of steps.
    """

    def __init__(self, client: Client, loop: LoopThread) -> None:
        super().__init__(client, loop)
        self.runs = BlockingRuns(client.runs, loop)
        self.reviews = BlockingReviews(client.reviews, loop)
        self.files = BlockingFiles(client.files, loop)
        self.webhooks = BlockingWebhooks(client.webhooks, loop)
        self.notifications = BlockingNotifications(client.notifications, loop)
        self.people = BlockingPeople(client.people, loop)
        self.audit = BlockingAuditLog(client.audit, loop)
        self.retention = BlockingRetention(client.retention, loop)
        self.external_work = BlockingExternalWorkQueries(client.external_work, loop)
        self.inbound_events = BlockingInboundEvents(client.inbound_events, loop)
        self.pools = BlockingPools(client.pools, loop)
        self.workers = BlockingWorkers(client.workers, loop)
        self.queues = BlockingQueues(client.queues, loop)
        self.bulk_actions = BlockingBulkActions(client.bulk_actions, loop)
        self.schedules = BlockingSchedules(client.schedules, loop)
        self.metrics = BlockingMetricQueries(client.metrics, loop)
        self.costs = BlockingCosts(client.costs, loop)
        self.budgets = BlockingBudgets(client.budgets, loop)
        self.connections = BlockingConnections(client.connections, loop)
        self.tenants = BlockingTenantProfiles(client.tenants, loop)
        self.api_keys = BlockingApiKeys(client.api_keys, loop)

    def scope_to(self, application: App) -> BlockingClient:
        return BlockingClient(self._wrapped.scope_to(application), self._loop)

    def limit_to(self, tenants: Iterable[str]) -> BlockingClient:
        return BlockingClient(self._wrapped.limit_to(tenants), self._loop)

    start = _blocking(Client.start)
    start_many = _blocking(Client.start_many)
    run = _blocking(Client.run)
    wait = _blocking(Client.wait)
    get_resource = _blocking(Client.get_resource)
    now = _blocking(Client.now)


@contextmanager
def connect(app: App | None, settings: Settings | None = None) -> Iterator[BlockingClient]:
    """Yield a blocking client, connected as `retoma.connect` does."""
    loop = LoopThread()
    try:
        opening = client.connect(app, settings)
        opened = loop.run(opening.__aenter__())
        try:
            yield BlockingClient(opened, loop)
        finally:
            loop.run(opening.__aexit__(None, None, None))
    finally:
        loop.close()
