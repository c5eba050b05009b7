"""Connections: credentials of outside services, without their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True)
class Connection:
    """The credentials of a service, for one tenant or for all. Secrets are never shown, only which of them are set."""

    tenant: Annotated[str | None, Field(description="Null if it is for all tenants.")]
    service: str
    account: Annotated[str, Field(description="Of a service with several, such as a site; otherwise empty.")]
    settings: Annotated[Mapping[str, str], Field(description="The fields that are not secret.")]
    secret_fields: Annotated[tuple[str, ...], Field(description="The names of the secret fields that are set.")]
    key_id: Annotated[str, Field(description="Which key has encrypted the secrets.")]
    version: int
    created_at: datetime
    created_by: str
    updated_at: datetime
    updated_by: str
    tested_at: Annotated[datetime | None, Field(description="When its current values were last tested.")]
    tested_by: str | None
    test_error: Annotated[str | None, Field(description="Why the test failed; null if it succeeded.")]


@dataclass(frozen=True)
class ConnectionTest:
    """The result of a test. `message` says what was reached, or what is wrong and how to fix it."""

    is_ok: bool
    message: str
