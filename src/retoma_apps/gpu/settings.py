"""The orchestrator's settings, under their established names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from retoma import Webhook, hours, minutes, seconds
from retoma.outgoing import Guard

LIMITS: Mapping[str, timedelta] = {"img2vid": minutes(60), "caption": minutes(10), "addaudio": minutes(5)}
DEFAULT_LIMIT = minutes(30)
MAX_QUEUE_TIME = hours(7 * 24)  # before its first part begins
RUNPOD_POLL_INTERVAL, OFFLINE_POLL_INTERVAL = seconds(8), seconds(1)
SHORT_SCHEDULE_ATTEMPTS, MAX_ATTEMPTS = 5, 14  # of the two schedules


class GpuSettings(BaseSettings):
    """WEBHOOK_SECRET and RUNPOD_* are read where they are used."""

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
        None, gt=0, le=600, description="Interval for polling the host. Default: 8 seconds, or 1 offline."
    )


@dataclass(frozen=True)
class Rules:
    """The configuration of this deployment. `offline` means that ffmpeg on this machine replaces the GPUs."""

    offline: bool
    poll_interval: timedelta
    chunk_seconds: float = 60.0
    webhook_attempts: int = MAX_ATTEMPTS
    limits: Mapping[str, timedelta] = field(default_factory=lambda: LIMITS)
    default_limit: timedelta = DEFAULT_LIMIT
    guard: Guard = field(default_factory=Guard)

    @classmethod
    def from_settings(cls, settings: GpuSettings, *, offline: bool, guard: Guard | None = None) -> Rules:
        usual = OFFLINE_POLL_INTERVAL if offline else RUNPOD_POLL_INTERVAL
        interval = usual if settings.gpu_poll_seconds is None else seconds(settings.gpu_poll_seconds)
        part_seconds, attempts = settings.gpu_part_seconds, settings.webhook_retry_max
        rules = cls(offline, interval, part_seconds, attempts, guard=guard or Guard())
        if settings.job_timeout_ms is None:
            return rules
        return replace(rules, limits={}, default_limit=timedelta(milliseconds=settings.job_timeout_ms))

    def limit(self, operation: str) -> timedelta:
        """Return how long a part may wait at the host, and how long it may then run there."""
        return self.limits.get(operation, self.default_limit)

    def total_limit(self, operation: str) -> timedelta:
        """Return the limit for the whole job with all parts and retries, from its first submission: twice its limit."""
        return 2 * self.limit(operation)

    def webhook(self, url: str) -> Webhook:
        """Return the webhook. The standard schedule starts with the documented five attempts; `short` ends with
        them."""
        profile = "short" if self.webhook_attempts <= SHORT_SCHEDULE_ATTEMPTS else "standard"
        return Webhook(url, schedule=profile, retries=self.webhook_attempts - 1)
