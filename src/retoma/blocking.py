"""The client for programs without async: each call waits for its answer.

with blocking.connect(app) as client:
    run = client.start("article", {"topic": "fixed income"})
    print(client.wait(run.id).state)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from retoma import client
from retoma.app import App
from retoma.client import Client
from retoma.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="retoma-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What it returns or raises. If this wait is interrupted, the work is cancelled."""
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
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingClient, P], T]:
    def call(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._client, *args, **kwargs))

    return update_wrapper(call, method)


class BlockingClient:
    """A Client whose methods wait. Make it with `connect`; it may be used from any thread but those of steps' loops."""

    def __init__(self, client: Client, loop: LoopThread) -> None:
        self._client = client
        self._loop = loop

    start = _blocking(Client.start)
    start_many = _blocking(Client.start_many)
    started_by = _blocking(Client.started_by)
    wait = _blocking(Client.wait)
    run = _blocking(Client.run)
    show = _blocking(Client.show)
    runs = _blocking(Client.runs)
    find = _blocking(Client.find)
    results = _blocking(Client.results)
    jobs = _blocking(Client.jobs)
    progress = _blocking(Client.progress)
    step_jobs = _blocking(Client.step_jobs)
    job_events = _blocking(Client.job_events)
    tries = _blocking(Client.tries)
    files = _blocking(Client.files)
    file = _blocking(Client.file)
    sign_file_links = _blocking(Client.sign_file_links)
    check_file_link = _blocking(Client.check_file_link)
    items = _blocking(Client.items)
    item_totals = _blocking(Client.item_totals)
    item_codes = _blocking(Client.item_codes)
    profile = _blocking(Client.profile)
    profiles = _blocking(Client.profiles)
    set_profile = _blocking(Client.set_profile)
    drop_profile = _blocking(Client.drop_profile)
    now = _blocking(Client.now)
    waits = _blocking(Client.waits)
    errors = _blocking(Client.errors)
    error_count = _blocking(Client.error_count)
    error_counts = _blocking(Client.error_counts)
    events = _blocking(Client.events)
    last_event = _blocking(Client.last_event)
    cancel = _blocking(Client.cancel)
    rerun_failed = _blocking(Client.rerun_failed)
    was_done = _blocking(Client.was_done)
    rerun = _blocking(Client.rerun)
    stale = _blocking(Client.stale)
    made = _blocking(Client.made)
    fork = _blocking(Client.fork)
    edit = _blocking(Client.edit)
    skip = _blocking(Client.skip)
    reviews = _blocking(Client.reviews)
    review = _blocking(Client.review)
    find_review = _blocking(Client.find_review)
    review_counts = _blocking(Client.review_counts)
    review_figures = _blocking(Client.review_figures)
    pipeline_figures = _blocking(Client.pipeline_figures)
    subjects = _blocking(Client.subjects)
    decide = _blocking(Client.decide)
    decide_many = _blocking(Client.decide_many)
    undo = _blocking(Client.undo)
    claim_review = _blocking(Client.claim_review)
    assign_review = _blocking(Client.assign_review)
    stuck = _blocking(Client.stuck)
    resume = _blocking(Client.resume)
    resumes = _blocking(Client.resumes)
    workers = _blocking(Client.workers)
    lacks_worker = _blocking(Client.lacks_worker)
    deliveries = _blocking(Client.deliveries)
    delivery = _blocking(Client.delivery)
    find_delivery = _blocking(Client.find_delivery)
    redrive = _blocking(Client.redrive)
    redrive_all = _blocking(Client.redrive_all)
    endpoints = _blocking(Client.endpoints)
    endpoint = _blocking(Client.endpoint)
    enable_endpoint = _blocking(Client.enable_endpoint)
    rotate_secret = _blocking(Client.rotate_secret)
    subscribe = _blocking(Client.subscribe)
    subscription = _blocking(Client.subscription)
    subscriptions = _blocking(Client.subscriptions)
    unsubscribe = _blocking(Client.unsubscribe)
    began = _blocking(Client.began)
    pools = _blocking(Client.pools)
    set_pool = _blocking(Client.set_pool)
    charges = _blocking(Client.charges)
    charge_totals = _blocking(Client.charge_totals)
    spent = _blocking(Client.spent)
    prices = _blocking(Client.prices)
    set_price = _blocking(Client.set_price)
    outside = _blocking(Client.outside)
    call_back = _blocking(Client.call_back)
    figures = _blocking(Client.figures)
    standing = _blocking(Client.standing)
    queues = _blocking(Client.queues)
    estimate = _blocking(Client.estimate)
    make_key = _blocking(Client.make_key)
    keys = _blocking(Client.keys)
    revoke_key = _blocking(Client.revoke_key)
    rotate_key = _blocking(Client.rotate_key)
    key_of = _blocking(Client.key_of)


@contextmanager
def connect(app: App | None, settings: Settings | None = None) -> Iterator[BlockingClient]:
    """As `retoma.connect`, for programs without async."""
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
