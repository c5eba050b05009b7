"""What the demo proves: what was finished before the kill is not run again, and what was interrupted is."""

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
from retoma.cli.stage import Stage
from retoma.client import Client
from retoma.records import Job
from retoma.states import JobState
from retoma.texts import decimal, text

Name = tuple[str, str]  # a job's step and item


def name_of(job: Job) -> Name:
    return job.step, job.item


@dataclass
class Proof:
    """The jobs that the killed worker had finished, and those that it was at."""

    finished: frozenset[Name] = frozenset()
    interrupted: frozenset[Name] = frozenset()

    def take_stock(self, jobs: Iterable[Job]) -> None:
        by_state = [(job.state, name_of(job)) for job in jobs]
        self.finished = frozenset(name for state, name in by_state if state is JobState.SUCCEEDED)
        self.interrupted = frozenset(name for state, name in by_state if state is JobState.RUNNING)

    async def show(self, client: Client, run: UUID, stage: Stage) -> bool:
        """Compare with what the steps wrote outside the database. False if it is not as promised."""
        file = demo.effects_of(run)
        bodies = counted(file)
        stage.say("")
        for objection in self.objections(bodies):
            stage.say(text("not proven", why=objection, file=file), style="bold red")
            return False
        stage.put(self._table(bodies))
        stage.say(text("counted", file=file), style="dim")
        await _show_film(client, run, stage)
        return True

    def objections(self, bodies: Counter[Name]) -> Iterator[str]:
        if not self.interrupted or not self.finished:
            yield "the worker was not killed in the middle of the run"
        for name, times in bodies.items():
            said = " ".join(name).strip()
            if name in self.interrupted and times < 2:
                yield f"{said} was interrupted and yet was run once"
            elif name not in self.interrupted and times != 1:
                yield f"{said} was run {times} times"
        for name in self.finished - set(bodies):
            yield f"{' '.join(name).strip()} was finished and yet left no trace"

    def _table(self, bodies: Counter[Name]) -> Table:
        rest = frozenset(bodies) - self.finished - self.interrupted
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
            times = sum(bodies[name] for name in names)
            table.add_row(text(kind), str(len(names)), str(times), Text(text(verdict), style="green"))
        return table


def counted(file: Path) -> Counter[Name]:
    """How often each step's function began, by the lines that it wrote."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return Counter((line["step"], line["item"]) for line in lines)


async def _show_film(client: Client, run: UUID, stage: Stage) -> None:
    film = demo.Film.model_validate((await client.results(run))["film"])
    stage.say("")
    stage.say(text("result", title=film.title, scenes=len(film.frames), seconds=decimal(film.seconds)), style="bold")
    for frame in film.frames:
        stage.say(f"  {frame.picture}  {frame.text}")
