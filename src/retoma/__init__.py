"""Retoma: a durable pipeline engine for long, costly and failure-prone work, using only PostgreSQL."""

from retoma import stop_before_start as _stop_before_start  # first, as the other imports take a moment

# isort: split
from retoma.app import App
from retoma.client import Client, connect
from retoma.define.context import Context
from retoma.define.durations import hours, minutes, seconds
from retoma.define.external_work import PollResult
from retoma.define.file import File
from retoma.define.isolation import Isolation
from retoma.define.items import FailedItem, Items, all_finished
from retoma.define.pipeline import Pipeline
from retoma.define.pool import Pool
from retoma.define.provider_chain import ProviderChain
from retoma.define.resources import PerWorker
from retoma.define.retry import Retry, exponential, fixed_delay
from retoma.define.webhook import Webhook
from retoma.errors import GiveUp, NeedsReview, RetryLater
from retoma.settings import Settings

__all__ = [
    "App",
    "Client",
    "Context",
    "FailedItem",
    "File",
    "GiveUp",
    "Isolation",
    "Items",
    "NeedsReview",
    "PerWorker",
    "Pipeline",
    "PollResult",
    "Pool",
    "ProviderChain",
    "Retry",
    "RetryLater",
    "Settings",
    "Webhook",
    "all_finished",
    "connect",
    "exponential",
    "fixed_delay",
    "hours",
    "minutes",
    "seconds",
]
