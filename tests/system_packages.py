"""System packages that some tests need. A missing one skips the test with an install hint, and fails in CI."""

from __future__ import annotations

import os

import pytest


def require(present: bool, what: str) -> None:
    """`what` names the missing package and how to install it."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"missing: {what}")
    pytest.skip(f"missing: {what}")
