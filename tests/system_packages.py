"""System parts that some tests need. A missing one is a skip that says what to install, and in CI a failure."""

from __future__ import annotations

import os

import pytest


def require(present: bool, what: str) -> None:
    """`what` says what is missing and how to get it."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing: {what}")
    pytest.skip(f"missing: {what}")
