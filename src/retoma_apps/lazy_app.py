"""Applications that are created on first access."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_app(package: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of an application's package, which creates `app` on first access: tests and child
    processes import parts of the package without all of it."""

    @cache
    def get_attribute(name: str) -> Any:
        if name != "app":
            raise AttributeError(name)
        return import_module(f"{package}.application").from_environment()

    return get_attribute
