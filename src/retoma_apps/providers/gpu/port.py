"""The port for rendering video: a GPU provider, its stand-in, or ffmpeg on this machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, Protocol, Self, get_args

from retoma import PollResult, Settings
from retoma.checks import Finding
from retoma.errors import ProviderDown
from retoma.files import FileSettings
from retoma_apps.providers.provider import Provider

Operation = Literal["img2vid", "caption", "addaudio"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class GpuHost(Protocol):
    """Renders video elsewhere. `input` is a request from render_requests.py as plain JSON.

    The result of `img2vid` is `{"videos": [{"id", "video_url", "filename"}], "failed": [{"id", "code", "message"}]}`;
    that of the other operations is `{"video_url", "filename"}`. Work without any video is reported as failed.
    `gpu_seconds`, next to them, is the billable GPU time. `name` is how charges name the host, and
    `poll_interval` how often its work should be polled. `is_offline` if this machine renders, without a provider.
    """

    name: str
    is_offline: bool
    poll_interval: timedelta

    async def submit(
        self,
        operation: Operation,
        input: dict[str, Any],  # noqa: A002, the provider's own name
        *,
        key: str,
        callback_url: str | None = None,
        timeout: timedelta,
    ) -> str:
        """Submit work and return its external id. `timeout` limits its execution, not its time in the queue.

        Raise SubmissionUnknown if the work may have been accepted: call `find` before submitting again.
        """

    async def status(self, external_id: str) -> PollResult: ...

    async def cancel(self, external_id: str) -> None:
        """Request cancellation. The work has ended only when `status` says so; finished work is unaffected."""

    async def find(self, key: str) -> str | None:
        """Return the external id of work with this key that is running or has succeeded."""

    def check(self) -> Finding:
        """Check its settings, for `retoma doctor`."""


class GpuHostProvider(GpuHost, Provider, Protocol):
    """What a class needs to be registered."""

    @classmethod
    def from_environment(cls, settings: Settings, files: FileSettings) -> Self | None:
        """Return None if it is not configured. A host on this machine stores its outputs as `files` says."""


class HostUnavailable(ProviderDown):
    """The host gave no usable answer to a request that can be repeated. Uses up no attempt."""

    code = "HOST_UNAVAILABLE"
