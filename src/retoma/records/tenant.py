"""What an application stores about a tenant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Profile:
    """What an application stores about a tenant (a channel, a blog, a project). Each change increments `revision`."""

    tenant: str
    value: Any
    revision: int
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class Fact:
    """A fact that the application stored. `source` is JSON; `confidence` is from 0 to 1."""

    text: str
    source: Any
    confidence: float = 0.5
