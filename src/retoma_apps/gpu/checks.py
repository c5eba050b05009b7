"""What `retoma doctor` checks for this application."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma.checks import Finding, check_extra
from retoma_apps.providers.gpu import GpuHost


class UnusedVariables(BaseSettings):
    """Variables that earlier orchestrators needed."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore")

    redis_url: str = ""


def check_environment(host: GpuHost) -> Iterator[Finding]:
    if UnusedVariables().redis_url:
        yield Finding(
            "ok",
            "REDIS_URL",
            "set but not needed: PostgreSQL holds queue, leases and webhooks, and changes them in one transaction",
            "remove it",
        )
    yield check_extra("media")
    yield host.check()
