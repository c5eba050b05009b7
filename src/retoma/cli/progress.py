"""Show the progress of a run: a bar on a terminal, otherwise a line for each change."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from retoma.cli import printing
from retoma.client import Client
from retoma.records import Run, StepProgress
from retoma.states import JOB_FINAL_STATES, JobState

POLL_SECONDS = 0.25


class Bar:
    """Show on stderr how many of the known jobs have ended."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._last_line = ""
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:g}/{task.total:g}  {task.fields[now]}", markup=False),
            TimeElapsedColumn(),
            console=printing.stderr(),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task(label, total=1, now="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def show(self, steps: Sequence[StepProgress]) -> None:
        ended, total = count_jobs(steps)
        now = ", ".join(step.step for step in steps if step.jobs.get(JobState.RUNNING))
        self._bar.update(self._task, completed=ended, total=max(total, 1), now=now)
        line = f"{self._label}: {ended}/{total}{f'  {now}' if now else ''}"
        if self._bar.disable and line != self._last_line:
            printing.stderr().print(line)
            self._last_line = line


def count_jobs(steps: Sequence[StepProgress]) -> tuple[int, int]:
    """Return the numbers of ended jobs and of all jobs. A step without jobs yet counts as one."""
    ended = sum(count for step in steps for state, count in step.jobs.items() if state in JOB_FINAL_STATES)
    return ended, sum(step.total or (0 if step.jobs else 1) for step in steps)


async def wait_with_bar(client: Client, run: UUID, label: str) -> Run:
    """Wait for the run with a progress bar, and return it."""
    with Bar(label) as bar:
        over = asyncio.ensure_future(client.wait(run))
        try:
            while not over.done():
                bar.show(await client.runs.get_progress(run))
                await asyncio.wait([over], timeout=POLL_SECONDS)
            bar.show(await client.runs.get_progress(run))
        finally:
            over.cancel()
    return await over
