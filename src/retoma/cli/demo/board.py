"""The output of `retoma dev`: a live board on a terminal, otherwise plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from retoma.cli import printing
from retoma.cli.messages import format_decimal, gettext
from retoma.define.graph import Graph
from retoma.records import Job
from retoma.states import JobState


@dataclass(frozen=True)
class Snapshot:
    """The content of the board. `lost` are the jobs of the killed worker that were not retried yet."""

    graph: Graph
    jobs: Sequence[Job]
    lost: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    note: str = ""


class Board(Protocol):
    def print_line(self, line: str, style: str = "") -> None: ...
    def print_timed(self, line: str, style: str = "") -> None: ...
    def show(self, snapshot: Snapshot) -> None: ...
    def print_renderable(self, renderable: RenderableType) -> None: ...
    def clear(self) -> None: ...


@contextmanager
def open_board() -> Iterator[Board]:
    console = printing.stdout()
    if not console.is_terminal:
        yield PlainBoard(console)
        return
    board = LiveBoard(console)
    try:
        yield board
    finally:
        board.clear()


class _BaseBoard:
    """Print lines. `print_timed` adds the time since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_at = time.monotonic()

    def print_line(self, line: str, style: str = "") -> None:
        self.print_renderable(Text(line, style=style))

    def print_timed(self, line: str, style: str = "") -> None:
        self.print_renderable(
            Text.assemble((f"{format_decimal(time.monotonic() - self._started_at):>5} s  ", "dim"), (line, style))
        )

    def print_renderable(self, renderable: RenderableType) -> None:
        self._console.print(renderable)
        self._console.file.flush()


class PlainBoard(_BaseBoard):
    _last = ""

    def show(self, snapshot: Snapshot) -> None:
        line = "  ".join(f"{step} {_format_count(jobs)}" for step, jobs in _group_by_step(snapshot))
        if line != self._last:
            self._last = line
            self.print_timed(line)

    def clear(self) -> None:
        """Do nothing: printed lines stay."""


class LiveBoard(_BaseBoard):
    """A board at the bottom of the terminal, with lines scrolling above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._glyphs = _GLYPHS if console.encoding.startswith("utf") else _ASCII

    def show(self, snapshot: Snapshot) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self._render(snapshot), refresh=True)

    def clear(self) -> None:
        """Leave the board as it is; later lines follow below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render(self, snapshot: Snapshot) -> RenderableType:
        board = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for step, jobs in _group_by_step(snapshot):
            cells = Text()
            for job in jobs:
                cells.append(*self._render_cell(job, snapshot.lost))
                cells.append(" ")
            board.add_row(
                Text(step, style="bold"), cells or Text(self._glyphs["waiting"], style="dim"), _format_count(jobs)
            )
        legend = gettext(
            "%(ready)s ready   %(running)s running   %(done)s done   %(lost)s lost with its worker   "
            "%(again)s done at the second attempt",
            **self._glyphs,
        )
        note = Text(f"  {snapshot.note}" if snapshot.note else "", style="yellow")
        return Group(Text(), board, Text(), Text(f"  {legend}", style="dim"), note)

    def _render_cell(self, job: Job, lost: frozenset[tuple[str, str]]) -> tuple[str, str]:
        if (job.step, job.item) in lost:
            return self._glyphs["lost"], "bold red"
        if job.state is JobState.SUCCEEDED and job.attempt > 1:
            return self._glyphs["again"], "yellow"
        name, style = _STYLES.get(job.state, ("waiting", "dim"))
        return self._glyphs[name], style


_GLYPHS = {"waiting": "·", "ready": "○", "running": "▶", "done": "●", "lost": "✗", "again": "◉"}
_ASCII = {"waiting": ".", "ready": "o", "running": ">", "done": "#", "lost": "x", "again": "@"}
_STYLES = {
    JobState.READY: ("ready", "blue"),
    JobState.RUNNING: ("running", "bold cyan"),
    JobState.SUCCEEDED: ("done", "green"),
    JobState.FAILED: ("lost", "red"),
}


def _group_by_step(snapshot: Snapshot) -> Iterator[tuple[str, list[Job]]]:
    for step in snapshot.graph.steps:
        if not step.internal:
            jobs = [job for job in snapshot.jobs if job.step == step.name]
            yield step.name, sorted(jobs, key=lambda job: job.position)


def _format_count(jobs: Sequence[Job]) -> str:
    done = sum(job.state is JobState.SUCCEEDED for job in jobs)
    return f"{done}/{len(jobs)}" if jobs else "-"
