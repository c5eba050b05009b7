"""Resources that every worker opens for itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PerWorker:
    """A resource that each worker opens on its event loop when it starts, and closes when it ends.

    `open` returns an async context manager, such as `httpx.AsyncClient` or what `asynccontextmanager` makes. Steps get
    what entering it returns.
    """

    open: Callable[[], AbstractAsyncContextManager[Any]]
