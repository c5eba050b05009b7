"""The port to whatever renders video: a GPU provider, its stand-in, or ffmpeg on this machine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, Protocol, get_args

from retoma import PollResult, ProviderDown

Operation = Literal["img2vid", "caption", "addaudio"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)


class GpuHost(Protocol):
    """Renders video elsewhere. `input` is one of the orders of orders.py, as plain JSON.

    An `img2vid` gives `{"videos": [{"id", "video_url", "filename"}], "failed": [{"id", "code", "message"}]}`, the other
    operations give `{"video_url", "filename"}`. Work that gives no video at all is reported as failed.
    `gpu_seconds`, beside them, is how long a GPU was at it that has to be paid for.
    """

    async def submit(
        self,
        operation: Operation,
        input: dict[str, Any],  # noqa: A002, the provider's own word
        *,
        key: str,
        callback_url: str | None = None,
        timeout: timedelta,
    ) -> str:
        """Hand work over, and give the handle to ask after it by. `timeout` bounds its running, not its queueing.

        Raises OutcomeUnknown where the work may have been taken: ask `find` before submitting again.
        """

    async def status(self, external_id: str) -> PollResult: ...

    async def cancel(self, external_id: str) -> None:
        """Ask for the end of this work. It has ended only when `status` says so; what ended before stays as it is."""

    async def find(self, key: str) -> str | None:
        """The handle of work with this key that still goes on or has succeeded."""


class HostUnavailable(ProviderDown):
    """The host gave no usable answer to a question that may be asked again. It uses up no attempt."""

    code = "HOST_UNAVAILABLE"
