"""Retoma: a durable pipeline engine for long, costly and failure-prone work, on PostgreSQL alone."""

from retoma import early_stop as _early_stop  # first, as the other imports take a moment  # noqa: F401

# isort: split
from retoma.app import App
from retoma.client import Client, connect
from retoma.define.context import Context
from retoma.define.durations import hours, minutes, seconds
from retoma.define.external_work import PollResult
from retoma.define.file import File
from retoma.define.isolation import Isolation
from retoma.define.items import FailedItem, Items, finished
from retoma.define.pipeline import Pipeline
from retoma.define.pool import Pool
from retoma.define.resources import PerWorker
from retoma.define.retry import Retry, exponential, fixed
from retoma.define.review import Comment, Feedback
from retoma.define.webhook import Webhook
from retoma.engine.reviews import Decision
from retoma.errors import (
    ExternalWorkFailed,
    FeedbackNotSupported,
    GiveUp,
    NeedsReview,
    ProviderDown,
    ProviderRejected,
    RateLimited,
    RetomaError,
    RetryLater,
    SubmissionUnknown,
)
from retoma.settings import Settings

__all__ = [
    "App",
    "Client",
    "Comment",
    "Context",
    "Decision",
    "ExternalWorkFailed",
    "FailedItem",
    "Feedback",
    "FeedbackNotSupported",
    "File",
    "GiveUp",
    "Isolation",
    "Items",
    "NeedsReview",
    "PerWorker",
    "Pipeline",
    "PollResult",
    "Pool",
    "ProviderDown",
    "ProviderRejected",
    "RateLimited",
    "RetomaError",
    "Retry",
    "RetryLater",
    "Settings",
    "SubmissionUnknown",
    "Webhook",
    "connect",
    "exponential",
    "finished",
    "fixed",
    "hours",
    "minutes",
    "seconds",
]
