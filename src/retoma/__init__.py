"""Retoma: runs long, costly, failure-prone production work to its end, on PostgreSQL alone."""

from retoma.app import App
from retoma.client import Client, connect
from retoma.define.context import Context
from retoma.define.durations import hours, minutes, seconds
from retoma.define.isolation import Isolation
from retoma.define.items import Failed, Items, finished
from retoma.define.pipeline import Pipeline
from retoma.define.retry import Retry, exponential, fixed
from retoma.errors import GiveUp, RetomaError, RetryLater
from retoma.settings import Settings

__all__ = [
    "App",
    "Client",
    "Context",
    "Failed",
    "GiveUp",
    "Isolation",
    "Items",
    "Pipeline",
    "RetomaError",
    "Retry",
    "RetryLater",
    "Settings",
    "connect",
    "exponential",
    "finished",
    "fixed",
    "hours",
    "minutes",
    "seconds",
]
