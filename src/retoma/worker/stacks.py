"""Where the jobs of a worker are now: the stacks that an operator asks for."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

from retoma.worker import attempt

MAX_STACK_LENGTH = 8_000


def format_task_stack(task: asyncio.Task[Any], loop_thread: int) -> str:
    """Return where a task is: in which call it waits or, while it runs, what it calls. For other threads."""
    frames = list(_list_awaited_frames(task.get_coro()))
    called = _list_thread_frames(loop_thread)
    if frames and frames[-1] in called:  # it runs at this moment
        frames += called[called.index(frames[-1]) + 1 :]
    return _format_frames(frames)


def format_thread_stack(thread: int) -> str:
    """Return where a thread is, or nothing if it has just ended."""
    return _format_frames(_list_thread_frames(thread))


def _list_awaited_frames(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine, of the one that it awaits, and so on."""
    while awaited is not None:
        frame, following = _get_first(awaited, "frame"), _get_first(awaited, "await", "yieldfrom")
        if isinstance(frame, FrameType):
            yield frame
        awaited = following


def _get_first(awaited: Any, *names: str) -> Any:
    """Return the attribute of a coroutine (`cr_`), an asynchronous generator (`ag_`) or a generator (`gi_`)."""
    found = (getattr(awaited, f"{kind}_{name}", None) for kind in ("cr", "ag", "gi") for name in names)
    return next((each for each in found if each is not None), None)


def _list_thread_frames(thread: int) -> list[FrameType]:
    """Return the frames of a thread, the outermost first."""
    frame = sys._current_frames().get(thread)
    return [] if frame is None else [each for each, _ in traceback.walk_stack(frame)][::-1]


def _format_frames(frames: list[FrameType]) -> str:
    """Return the frames from the step's function on, masked like the stack of an error."""
    ours = [index for index, frame in enumerate(frames) if frame.f_globals.get("__name__") == attempt.__name__]
    shown = frames[ours[-1] + 1 :] if ours else frames
    text = "".join(traceback.StackSummary.extract((frame, frame.f_lineno) for frame in shown or frames).format())
    return attempt.clean_text(text)[-MAX_STACK_LENGTH:]
