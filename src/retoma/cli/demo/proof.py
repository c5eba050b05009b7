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
from retoma.client import Client
from retoma.records import Job
from retoma.states import JobState
from retoma.texts import decimal, text

JobName = tuple[str, str]  # a job's step and item


def get_job_name(job: Job) -> JobName:
    return job.step, job.item


@dataclass
class Proof:
    """The jobs that the killed worker had finished, and those it was running."""

    finished: frozenset[JobName] = frozenset()
    interrupted: frozenset[JobName] = frozenset()

    def record_jobs(self, jobs: Iterable[Job]) -> None:
        by_state = [(job.state, get_job_name(job)) for job in jobs]
        self.finished = frozenset(name for state, name in by_state if state is JobState.SUCCEEDED)
        self.interrupted = frozenset(name for state, name in by_state if state is JobState.RUNNING)

    async def show(self, client: Client, run: UUID, board: Board) -> bool:
        """Compare with the side effects of the steps, and print the result. Return False on a violation."""
        file = demo.effects_path(run)
        calls = count_calls(file)
        board.print_line("")
        if violations := list(self.find_violations(calls)):
            _show_violations(violations, file, board)
            return False
        board.print_renderable(self._build_table(calls))
        board.print_line(text("counted", file=file), style="dim")
        await _show_film(client, run, board)
        return True

    def find_violations(self, calls: Counter[JobName]) -> Iterator[str]:
        if not self.interrupted or not self.finished:
            yield text("not killed")
        for name, times in calls.items():
            if name in self.interrupted and times < 2:
                yield text("only once", job=_format_name(name))
            elif name not in self.interrupted and times != 1:
                yield text("too often", job=_format_name(name), times=times)
        for name in sorted(self.finished - set(calls)):
            yield text("no trace", job=_format_name(name))

    def _build_table(self, calls: Counter[JobName]) -> Table:
        rest = frozenset(calls) - self.finished - self.interrupted
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
        table.add_column(text("proof"))
        table.add_column(text("jobs"), justify="right")
        table.add_column(text("bodies"), justify="right")
        table.add_column("")
        for kind, names, verdict in (
            ("finished", self.finished, "not again"),
            ("interrupted", self.interrupted, "again"),
            ("rest", rest, "once"),
        ):
            times = sum(calls[name] for name in names)
            table.add_row(text(kind), str(len(names)), str(times), Text(text(verdict), style="green"))
        return table


def count_calls(file: Path) -> Counter[JobName]:
    """Count the calls of each step's function by the lines that it wrote."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return Counter((line["step"], line["item"]) for line in lines)


def _format_name(name: JobName) -> str:
    return " ".join(name).strip()


def _show_violations(violations: Iterable[str], file: Path, board: Board) -> None:
    board.print_line(text("not proven"), style="bold red")
    for violation in violations:
        board.print_line(f"  {violation}", style="red")
    board.print_line(text("report", file=file))


async def _show_film(client: Client, run: UUID, board: Board) -> None:
    film = demo.Film.model_validate((await client.runs.get_results(run))["film"])
    board.print_line("")
    board.print_line(
        text("result", title=film.title, scenes=len(film.frames), seconds=decimal(film.seconds)), style="bold"
    )
    for frame in film.frames:
        board.print_line(f"  {frame.picture}  {frame.text}")
