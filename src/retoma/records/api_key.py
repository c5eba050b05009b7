"""API keys and their scopes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Scope(StrEnum):
    """What an API key may do. `admin` includes everything."""

    RUNS_READ = "runs:read"
    RUNS_WRITE = "runs:write"
    POOLS_READ = "pools:read"
    POOLS_WRITE = "pools:write"
    DELIVERIES_READ = "deliveries:read"
    DELIVERIES_WRITE = "deliveries:write"
    METRICS_READ = "metrics:read"
    REVIEWS_WRITE = "reviews:write"
    SCHEDULES_WRITE = "schedules:write"
    BUDGETS_WRITE = "budgets:write"
    CONNECTIONS_WRITE = "connections:write"
    PEOPLE_WRITE = "people:write"
    AUDIT_READ = "audit:read"
    ADMIN = "admin"


# These reach beyond a tenant, so the key of one tenant cannot have them.
CROSS_TENANT_SCOPES = frozenset({Scope.POOLS_WRITE, Scope.METRICS_READ, Scope.ADMIN})


@dataclass(frozen=True)
class ApiKey:
    """An API key without its secret, which begins with `hint`. Without a tenant it covers all; `used_at` is coarse."""

    id: int
    name: str
    tenant: str | None
    scopes: frozenset[Scope]
    hint: str
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class NewApiKey:
    """`secret` is the key itself. It is not stored, so it can only be shown now."""

    key: ApiKey
    secret: str = field(repr=False)
