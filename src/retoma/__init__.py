"""Retoma: runs long, costly, failure-prone production work to its end, on PostgreSQL alone."""

from retoma import early_stop as _early_stop  # before the rest, which takes a moment  # noqa: F401

# isort: split
from retoma.app import App
from retoma.client import Client, connect
from retoma.define.context import Context
from retoma.define.durations import hours, minutes, seconds
from retoma.define.file import File
from retoma.define.isolation import Isolation
from retoma.define.items import Failed, Items, finished
from retoma.define.outside import Report
from retoma.define.pipeline import Pipeline
from retoma.define.pool import Pool
from retoma.define.resources import PerWorker
from retoma.define.retry import Retry, exponential, fixed
from retoma.define.review import Comment, Feedback
from retoma.define.webhook import Webhook
from retoma.engine.reviews import Decision
from retoma.errors import (
    CannotFollow,
    GiveUp,
    NeedsReview,
    OutcomeUnknown,
    OutsideFailed,
    ProviderDown,
    ProviderRefuses,
    RateLimited,
    RetomaError,
    RetryLater,
)
from retoma.settings import Settings

__all__ = [
    "App",
    "CannotFollow",
    "Client",
    "Comment",
    "Context",
    "Decision",
    "Failed",
    "Feedback",
    "File",
    "GiveUp",
    "Isolation",
    "Items",
    "NeedsReview",
    "OutcomeUnknown",
    "OutsideFailed",
    "PerWorker",
    "Pipeline",
    "Pool",
    "ProviderDown",
    "ProviderRefuses",
    "RateLimited",
    "Report",
    "RetomaError",
    "Retry",
    "RetryLater",
    "Settings",
    "Webhook",
    "connect",
    "exponential",
    "finished",
    "fixed",
    "hours",
    "minutes",
    "seconds",
]
