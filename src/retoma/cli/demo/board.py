"""Where `retoma dev` is seen: a board that moves on a terminal, plain lines elsewhere."""

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

from retoma.cli import output
from retoma.define.graph import Graph
from retoma.records import Job
from retoma.states import JobState
from retoma.texts import decimal, text


@dataclass(frozen=True)
class Snapshot:
    """What the board shows: the jobs of a run, and those that were lost with their worker and are not taken up yet."""

    graph: Graph
    jobs: Sequence[Job]
    lost: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    note: str = ""


class Board(Protocol):
    def say(self, line: str, style: str = "") -> None: ...
    def tell(self, line: str, style: str = "") -> None: ...
    def show(self, snapshot: Snapshot) -> None: ...
    def put(self, what: RenderableType) -> None: ...
    def clear(self) -> None: ...


@contextmanager
def open_board() -> Iterator[Board]:
    console = output.out()
    if not console.is_terminal:
        yield PlainBoard(console)
        return
    made = LiveBoard(console)
    try:
        yield made
    finally:
        made.clear()


class _Board:
    """`say` prints a line, `tell` one with the time since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def say(self, line: str, style: str = "") -> None:
        self.put(Text(line, style=style))

    def tell(self, line: str, style: str = "") -> None:
        self.put(Text.assemble((f"{decimal(time.monotonic() - self._began):>5} s  ", "dim"), (line, style)))

    def put(self, what: RenderableType) -> None:
        self._console.print(what)
        self._console.file.flush()


class PlainBoard(_Board):
    _last = ""

    def show(self, snapshot: Snapshot) -> None:
        line = "  ".join(f"{step} {_count(jobs)}" for step, jobs in _by_step(snapshot))
        if line != self._last:
            self._last = line
            self.tell(line)

    def clear(self) -> None:
        """Lines stay."""


class LiveBoard(_Board):
    """Lines scroll by above the board, which stays at the bottom and moves."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._glyphs = _GLYPHS if console.encoding.startswith("utf") else _ASCII

    def show(self, snapshot: Snapshot) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(self._board(snapshot), refresh=True)

    def clear(self) -> None:
        """Let the board stand as it is; what comes next is below it."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _board(self, snapshot: Snapshot) -> RenderableType:
        board = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for step, jobs in _by_step(snapshot):
            cells = Text()
            for job in jobs:
                cells.append(*self._cell(job, snapshot.lost))
                cells.append(" ")
            board.add_row(Text(step, style="bold"), cells or Text(self._glyphs["waiting"], style="dim"), _count(jobs))
        legend = Text(f"  {text('legend', **self._glyphs)}", style="dim")
        return Group(Text(), board, Text(), legend, Text(f"  {snapshot.note}" if snapshot.note else "", style="yellow"))

    def _cell(self, job: Job, lost: frozenset[tuple[str, str]]) -> tuple[str, str]:
        if (job.step, job.item) in lost:
            return self._glyphs["lost"], "bold red"
        if job.state is JobState.SUCCEEDED and job.attempt > 1:
            return self._glyphs["again"], "yellow"
        name, style = _LOOKS.get(job.state, ("waiting", "dim"))
        return self._glyphs[name], style


_GLYPHS = {"waiting": "·", "ready": "○", "running": "▶", "done": "●", "lost": "✗", "again": "◉"}
_ASCII = {"waiting": ".", "ready": "o", "running": ">", "done": "#", "lost": "x", "again": "@"}
_LOOKS = {
    JobState.READY: ("ready", "blue"),
    JobState.RUNNING: ("running", "bold cyan"),
    JobState.SUCCEEDED: ("done", "green"),
    JobState.FAILED: ("lost", "red"),
}


def _by_step(snapshot: Snapshot) -> Iterator[tuple[str, list[Job]]]:
    for shape in snapshot.graph.steps:
        if not shape.hidden:
            jobs = [job for job in snapshot.jobs if job.step == shape.name]
            yield shape.name, sorted(jobs, key=lambda job: job.position)


def _count(jobs: Sequence[Job]) -> str:
    done = sum(job.state is JobState.SUCCEEDED for job in jobs)
    return f"{done}/{len(jobs)}" if jobs else "-"
