"""What should be true of runs and jobs, in plain Python: no counters, no locks, no database.

It decides from all edges of a graph, counted or not, whether a job can be made, so that it does not repeat the
engine's own way of counting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from retoma.define.graph import Edge, Graph, StepShape
from tests.model.external_work import Clock, JobResources

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
    stopping: bool = False  # its run was stopped while it ran or was parked
    failed_dependency: bool = False  # it was skipped for want of a result, not because it was not wanted
    resources: JobResources = field(default_factory=JobResources)

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def holds_slots(self) -> bool:
        return self.resources.held is not None and not self.is_final


@dataclass
class Run:
    graph: Graph
    clock: Clock = field(default_factory=Clock)
    jobs: dict[Name, Job] = field(default_factory=dict)
    items: dict[str, list[str]] = field(default_factory=dict)  # of the sources that have succeeded
    final_state: Literal["cancelled", "failed"] | None = None
    pending: bool = False
    has_errors: bool = False

    @property
    def state(self) -> str:
        alive = any(job.state in ("running", "parked") for job in self.jobs.values())
        if self.final_state == "cancelled":
            return "cancelling" if alive else "cancelled"
        if self.final_state == "failed":
            return "running" if alive else "failed"
        if self.pending:
            return "pending"
        if self.is_all_final():
            return "completed_with_errors" if self.has_errors else "completed"
        return "running"

    @property
    def is_over(self) -> bool:
        return self.state in ("cancelled", "failed", "completed", "completed_with_errors")

    def is_all_final(self) -> bool:
        return all(self._is_step_final(step) for step in self.graph.steps)

    def is_source(self, step: str) -> bool:
        return any(shape.source == step for shape in self.graph.steps)

    def grow(self) -> None:
        """Create every job whose dependencies have all ended, until there are no more."""
        while self.final_state is None and sum(self._create_jobs(step) for step in self.graph.steps):
            pass

    def stop(self, final_state: Literal["cancelled", "failed"]) -> None:
        self.final_state = final_state
        self.pending = False
        for job in self.jobs.values():
            if job.state in ("ready", "waiting"):
                job.resources.abandon(self.clock.now)
                job.state = "parked" if job.resources.is_looked_for else "cancelled"
                job.resources.pool = None if job.resources.is_looked_for else job.resources.pool
            if job.state in ("running", "parked"):
                job.stopping = True
            if job.resources.external_work is not None and job.resources.external_work.is_open:
                job.resources.external_work.due_at = self.clock.now

    def end(self, name: Name, state: str, items: list[str] | None = None) -> None:
        """End a job and apply the consequences."""
        job = self.jobs[name]
        job.state, job.holder = state, None
        if state != "succeeded":
            job.resources.abandon(self.clock.now)
        if state == "succeeded" and items is not None:
            self.items[name[0]] = items
        if state in ("failed", "quarantined"):
            self.has_errors = True
            if self.shape(name[0]).on_failure == "stop" and self.final_state is None:
                self.stop("failed")
        self.grow()

    def stop_job(self, name: Name) -> None:
        """A job of a stopping run ends, or is parked while a worker looks for what it left outside."""
        job = self.jobs[name]
        job.holder = None
        job.resources.abandon(self.clock.now)
        if job.resources.is_looked_for:
            job.state = "parked"
        else:
            self.end(name, "cancelled")

    def end_parked(self, name: Name) -> None:
        """What a job of a stopping run was parked for has ended."""
        job = self.jobs[name]
        work = job.resources.external_work
        if work is None or not work.is_open:
            self.stop_job(name)
            if job.is_final:
                job.resources.pool = job.resources.held = None

    def _create_jobs(self, step: StepShape) -> bool:
        """True if something was made."""
        made = False
        for item in self._items_of(step):
            name = step.name, item
            if name not in self.jobs and self._are_dependencies_final(step, item):
                state, failed_need = self._initial_state(step, item)
                self.jobs[name] = Job(
                    state, failed_dependency=failed_need, resources=JobResources(step.pool, slots=step.slots)
                )
                made = True
        return made

    def _items_of(self, step: StepShape) -> list[str]:
        if not step.each:
            return [""]
        return self.items.get(step.source or "", [])

    def _are_dependencies_final(self, step: StepShape, item: str) -> bool:
        return all(self._is_dependency_final(edge, item) for edge in self._into(step))

    def _is_dependency_final(self, edge: Edge, item: str) -> bool:
        if edge.kind == "join":
            return self._is_step_final(self.shape(edge.from_step))
        need = self.jobs.get((edge.from_step, item if edge.kind == "item" else ""))
        return need is not None and need.is_final

    def _initial_state(self, step: StepShape, item: str) -> tuple[str, bool]:
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
        return need.state in ("failed", "quarantined") or need.failed_dependency

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
