"""Verify the demo: finished jobs did not run again, and interrupted jobs did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from rich.table import Table
from rich.text import Text

from retoma import demo
from retoma.cli.demo.board import Board
from retoma.cli.messages import format_decimal, gettext
from retoma.client import Client
from retoma.records import Job
from retoma.states import JobState

JobName = tuple[str, str]  # a job's step and item


def get_job_name(job: Job) -> JobName:
    return job.step, job.item


@dataclass
class Proof:
    """The jobs that the killed worker had finished, and those whose step it had begun."""

    finished: frozenset[JobName] = frozenset()
    interrupted: frozenset[JobName] = frozenset()

    def record_jobs(self, jobs: Iterable[Job], calls: Counter[JobName]) -> None:
        by_state = [(job.state, get_job_name(job)) for job in jobs]
        self.finished = frozenset(name for state, name in by_state if state is JobState.SUCCEEDED)
        self.interrupted = frozenset(name for state, name in by_state if state is JobState.RUNNING and calls[name])

    def record_late_results(self, jobs: Iterable[Job]) -> None:
        """The last results of the worker may have been committed just after its death."""
        late = self.interrupted & {get_job_name(job) for job in jobs if job.attempt == 1}
        self.finished |= late
        self.interrupted -= late

    async def show(self, client: Client, run: UUID, board: Board) -> bool:
        """Compare with the side effects of the steps, and print the result. Return False on a violation."""
        file = demo.effects_path(run)
        calls = count_calls(file)
        board.print_line("")
        if violations := list(self.find_violations(calls)):
            _show_violations(violations, file, board)
            return False
        board.print_renderable(self._build_table(calls))
        board.print_line(
            gettext("Counted in %(file)s, where each step writes a line, outside the database.", file=file), style="dim"
        )
        await _show_film(client, run, board)
        return True

    def find_violations(self, calls: Counter[JobName]) -> Iterator[str]:
        if not self.interrupted or not self.finished:
            yield gettext("the worker was not killed in the middle of the run")
        for name, times in calls.items():
            if name in self.interrupted and times < 2:
                yield gettext("%(job)s was interrupted but ran only once", job=_format_name(name))
            elif name not in self.interrupted and times != 1:
                yield gettext("%(job)s ran %(times)s times", job=_format_name(name), times=times)
        for name in sorted(self.finished - set(calls)):
            yield gettext("%(job)s was finished but left no trace", job=_format_name(name))

    def _build_table(self, calls: Counter[JobName]) -> Table:
        rest = frozenset(calls) - self.finished - self.interrupted
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
        table.add_column(gettext("What the kill cost"))
        table.add_column(gettext("jobs"), justify="right")
        table.add_column(gettext("executions"), justify="right")
        table.add_column("")
        for kind, names, verdict in (
            (gettext("finished before the kill"), self.finished, gettext("none was run again")),
            (gettext("running when the worker died"), self.interrupted, gettext("each was run again")),
            (gettext("not started at the kill"), rest, gettext("each was run once")),
        ):
            times = sum(calls[name] for name in names)
            table.add_row(kind, str(len(names)), str(times), Text(verdict, style="green"))
        return table


def count_calls(file: Path) -> Counter[JobName]:
    """Count the calls of each step's function by the lines that it wrote."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return Counter((line["step"], line["item"]) for line in lines)


def _format_name(name: JobName) -> str:
    return " ".join(name).strip()


def _show_violations(violations: Iterable[str], file: Path, board: Board) -> None:
    board.print_line(gettext("This should not happen:"), style="bold red")
    for violation in violations:
        board.print_line(f"  {violation}", style="red")
    board.print_line(gettext("Please report this, with %(file)s.", file=file))


async def _show_film(client: Client, run: UUID, board: Board) -> None:
    film = demo.Film.model_validate((await client.runs.get_results(run))["film"])
    board.print_line("")
    board.print_line(
        gettext(
            "%(title)s: %(scenes)s scenes, %(seconds)s s",
            title=film.title,
            scenes=len(film.frames),
            seconds=format_decimal(film.seconds),
        ),
        style="bold",
    )
    for frame in film.frames:
        board.print_line(f"  {frame.picture}  {frame.text}")
