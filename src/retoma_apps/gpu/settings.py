"""The orchestrator's settings, under their established names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import Webhook, hours, minutes, seconds
from retoma.outgoing import Guard

LIMITS: Mapping[str, timedelta] = {"img2vid": minutes(60), "caption": minutes(10), "addaudio": minutes(5)}
DEFAULT_LIMIT = minutes(30)
MAX_QUEUE_TIME = hours(7 * 24)  # before its first part begins
SHORT_SCHEDULE_ATTEMPTS, MAX_ATTEMPTS = 5, 14  # of the two schedules


class GpuSettings(BaseSettings):
    """WEBHOOK_SECRET and the settings of the host are read where they are used."""

    model_config = SettingsConfigDict(env_file=".env", extra="ignore")

    job_timeout_ms: int | None = Field(
        None, ge=1_000, le=7 * 86_400_000, description="Time limit for every operation. Default: 60, 10 and 5 minutes."
    )
    webhook_retry_max: int = Field(
        MAX_ATTEMPTS,
        ge=1,
        le=MAX_ATTEMPTS,
        description="Attempts to deliver a callback. Default: 14, over three days.",
    )
    gpu_part_seconds: float = Field(60.0, gt=0, le=3600, description="Seconds of video in each part of a job.")
    gpu_poll_seconds: float | None = Field(
        None, gt=0, le=600, description="Interval for polling the host. Default: the host's own."
    )


@dataclass(frozen=True)
class Rules:
    """The configuration of this deployment. `offline` means that ffmpeg on this machine replaces the GPUs."""

    settings: GpuSettings
    offline: bool
    guard: Guard = field(default_factory=Guard)

    @property
    def poll_interval(self) -> timedelta | None:
        """The interval for polling the host; without one, the host's own applies."""
        interval = self.settings.gpu_poll_seconds
        return None if interval is None else seconds(interval)

    def limit(self, operation: str) -> timedelta:
        """Return how long a part may wait at the host, and how long it may then run there."""
        milliseconds = self.settings.job_timeout_ms
        return timedelta(milliseconds=milliseconds) if milliseconds else LIMITS.get(operation, DEFAULT_LIMIT)

    def total_limit(self, operation: str) -> timedelta:
        """Return the limit for the whole job with all parts and retries, from its first submission: twice its limit."""
        return 2 * self.limit(operation)

    def webhook(self, url: str) -> Webhook:
        """Return the webhook. The standard schedule starts with the documented five attempts; `short` ends with
        them."""
        attempts = self.settings.webhook_retry_max
        schedule = "short" if attempts <= SHORT_SCHEDULE_ATTEMPTS else "standard"
        return Webhook(url, schedule=schedule, retries=attempts - 1)
