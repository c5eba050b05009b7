"""Show the progress of a run: a bar on a terminal, otherwise a line for each change."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from retoma.cli import printing
from retoma.client import Client
from retoma.records import Run, StepProgress
from retoma.states import JobState

POLL_SECONDS = 0.25


class Bar(Progress):
    """Show how many of the known jobs have ended."""

    def __init__(self, label: str, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:g}/{task.total:g}  {task.fields[now]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._label = label
        self._last_line = ""
        self._job_bar = self.add_task(label, total=1, now="")

    def show_steps(self, steps: Sequence[StepProgress], note: str = "") -> None:
        """Show the progress and the steps that are running or, on a terminal, the note in their place."""
        ended, total = count_jobs(steps)
        now = ", ".join(step.step for step in steps if step.jobs.get(JobState.RUNNING))
        self.update(self._job_bar, completed=ended, total=max(total, 1), now=note or now)
        line = f"{self._label}: {ended}/{total}{f'  {now}' if now else ''}"
        if self.disable and line != self._last_line:
            self.console.print(line)
            self._last_line = line


def count_jobs(steps: Sequence[StepProgress]) -> tuple[int, int]:
    """Return the numbers of ended jobs and of all jobs. A step without jobs yet counts as one."""
    return sum(step.ended_count for step in steps), sum(step.total or (0 if step.jobs else 1) for step in steps)


async def wait_with_bar(client: Client, run: UUID, label: str) -> Run:
    """Wait for the run with a progress bar, and return it."""
    with Bar(label, printing.stderr()) as bar:
        over = asyncio.ensure_future(client.wait(run))
        try:
            while not over.done():
                bar.show_steps(await client.runs.get_progress(run))
                await asyncio.wait([over], timeout=POLL_SECONDS)
            bar.show_steps(await client.runs.get_progress(run))
        finally:
            over.cancel()
    return await over
