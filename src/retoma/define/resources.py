"""Resources that each worker opens for itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PerWorker:
    """A resource that each worker opens on its event loop at startup and closes at shutdown.

    `open` returns an async context manager, such as `httpx.AsyncClient` or the result of an `asynccontextmanager`
    function. Steps receive the value that entering it returns.
    """

    open: Callable[[], AbstractAsyncContextManager[Any]]
