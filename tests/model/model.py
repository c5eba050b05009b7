"""What should be true of runs and jobs, in plain Python: no counters, no locks, no database.

It decides from all edges of a graph, counted or not, whether a job can be made, so that it does not repeat the
engine's own way of counting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from retoma.define.graph import Edge, Graph, StepShape
from tests.model.outside import Beside, Clock

FINAL = {"succeeded", "failed", "skipped", "cancelled", "quarantined"}
Name = tuple[str, str]  # a step and an item


@dataclass
class Job:
    state: str
    holder: int | None = None
    fence: int = 0
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    deaths: int = 0
    delayed: bool = False
    failed_need: bool = False  # it was skipped for want of a result, not because it was not wanted
    beside: Beside = field(default_factory=Beside)

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def holds_slots(self) -> bool:
        return self.beside.held is not None and not self.is_final


@dataclass
class Run:
    graph: Graph
    clock: Clock = field(default_factory=Clock)
    jobs: dict[Name, Job] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)  # of the sources that have succeeded
    ends_as: Literal["cancelled", "failed"] | None = None
    pending: bool = False
    with_errors: bool = False

    @property
    def state(self) -> str:
        alive = any(job.state in ("running", "parked") for job in self.jobs.values())
        if self.ends_as == "cancelled":
            return "cancelling" if alive else "cancelled"
        if self.ends_as == "failed":
            return "running" if alive else "failed"
        if self.pending:
            return "pending"
        if self.is_all_final():
            return "completed_with_errors" if self.with_errors else "completed"
        return "running"

    @property
    def is_over(self) -> bool:
        return self.state in ("cancelled", "failed", "completed", "completed_with_errors")

    def is_all_final(self) -> bool:
        return all(self._is_step_final(step) for step in self.graph.steps)

    def is_source(self, step: str) -> bool:
        return any(shape.source == step for shape in self.graph.steps)

    def grow(self) -> None:
        """Make every job whose needs have all ended, until there are no more."""
        while self.ends_as is None and sum(self._make(step) for step in self.graph.steps):
            pass

    def stop(self, ends_as: Literal["cancelled", "failed"]) -> None:
        self.ends_as = ends_as
        self.pending = False
        for job in self.jobs.values():
            if job.state in ("ready", "waiting"):
                job.state = "cancelled"
            if job.beside.outside is not None and job.beside.outside.is_open:
                job.beside.outside.due_at = self.clock.now

    def end(self, name: Name, state: str, items: list[str] | None = None) -> None:
        """A job is final, and what that sets in motion."""
        job = self.jobs[name]
        job.state, job.holder = state, None
        if state == "succeeded" and items is not None:
            self.items[name[0]] = items
        if state in ("failed", "quarantined"):
            self.with_errors = True
            if self.shape(name[0]).on_failure == "stop" and self.ends_as is None:
                self.stop("failed")
        self.grow()

    def _make(self, step: StepShape) -> bool:
        """True if something was made."""
        made = False
        for item in self._items_of(step):
            name = step.name, item
            if name not in self.jobs and self._needs_final(step, item):
                state, failed_need = self._birth(step, item)
                self.jobs[name] = Job(state, failed_need=failed_need, beside=Beside(step.pool, slots=step.slots))
                made = True
        return made

    def _items_of(self, step: StepShape) -> list[str]:
        if not step.each:
            return [""]
        return self.items.get(step.source or "", [])

    def _needs_final(self, step: StepShape, item: str) -> bool:
        return all(self._is_need_final(edge, item) for edge in self._into(step))

    def _is_need_final(self, edge: Edge, item: str) -> bool:
        if edge.kind == "join":
            return self._is_step_final(self.shape(edge.from_step))
        need = self.jobs.get((edge.from_step, item if edge.kind == "item" else ""))
        return need is not None and need.is_final

    def _birth(self, step: StepShape, item: str) -> tuple[str, bool]:
        missing = [edge for edge in self._into(step) if self._is_missing(edge, item)]
        if not missing:
            return "ready", False
        return "skipped", any(self._is_failed(edge, item) for edge in missing)

    def _is_missing(self, edge: Edge, item: str) -> bool:
        if edge.optional or edge.parameter is None:
            return False
        if edge.kind == "join":
            return not self._has_items(edge.from_step)
        return self.jobs[edge.from_step, item if edge.kind == "item" else ""].state != "succeeded"

    def _is_failed(self, edge: Edge, item: str) -> bool:
        if edge.kind == "join":
            need = self.jobs[self.shape(edge.from_step).source or "", ""]
        else:
            need = self.jobs[edge.from_step, item if edge.kind == "item" else ""]
        return need.state in ("failed", "quarantined") or need.failed_need

    def _is_step_final(self, step: StepShape) -> bool:
        if step.each and step.source not in self.items:
            source = self.jobs.get((step.source or "", ""))
            return source is not None and source.is_final
        made = [self.jobs.get((step.name, item)) for item in self._items_of(step)]
        return all(job is not None and job.is_final for job in made)

    def _has_items(self, step: str) -> bool:
        return self.shape(step).source in self.items

    def _into(self, step: StepShape) -> list[Edge]:
        return [edge for edge in self.graph.edges if edge.to_step == step.name and edge.kind != "expand"]

    def shape(self, name: str) -> StepShape:
        return next(step for step in self.graph.steps if step.name == name)
