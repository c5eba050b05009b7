"""What should be true of reviews and revisions, in plain Python: no counters, no locks, no database.

A job that is `due` runs as soon as its dependencies have ended, whether for the first time or as a rerun. A job that
is `asking` waits for a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from typing import Any

from retoma.define.graph import Edge, Graph, StepShape

FINAL = {"succeeded", "failed", "skipped", "cancelled"}
Name = tuple[str, str]  # a step and an item; None for the item means all items of a list that is to come
Names = set[tuple[str, str | None]]


@dataclass
class Review:
    planned: bool
    state: str = "open"
    effective_at: datetime | None = None
    expires_at: datetime | None = None
    value: str | None = None
    back_to: str | None = None
    in_effect: bool = False
    on_expiry: str | None = None

    @property
    def decision(self) -> str:
        return self.on_expiry or self.state

    @property
    def is_open(self) -> bool:
        return self.state == "open"


@dataclass
class Job:
    revision: int
    state: str = "due"
    value: Any = None
    code: str | None = None
    keeps: bool = False  # it keeps its former result if it would be made of the same
    kept: bool = False
    used: Any = None  # the content that it was made of
    of: dict[Name, int] = field(default_factory=dict)  # the revisions of that
    review: Review | None = None
    by_a_person: bool = False
    isolated_rerun: bool = False
    is_rerun: bool = False
    holder: Any = None  # the claim that may end it
    at_once: bool = False  # it was made by the act itself: whether it lacks something is noticed when it is attempted

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def is_live(self) -> bool:
        return self.state in ("ready", "running", "asking")


@dataclass
class Run:
    """`expiry` returns when a review of a step that opens now would expire."""

    graph: Graph
    expiry: Callable[[str], datetime | None]
    revision: int = 1
    jobs: dict[Name, list[Job]] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    final_state: str | None = None
    pending_reruns: dict[int, tuple[bool, set[Name]]] = field(default_factory=dict)  # by each act: all afresh, or these

    # What stands

    def start(self) -> None:
        for step in self.graph.steps:
            if not step.each:
                self.jobs[step.name, ""] = [Job(1)]
        self.grow()

    def names(self) -> Iterator[Name]:
        """Of the current jobs: those whose item is on a current list."""
        for step, item in self.jobs:
            source = self.shape(step).source
            if source is None or item in self.lists.get(source, []):
                yield step, item

    def is_known(self, name: Name) -> bool:
        """Return whether there is anything that could be rerun."""
        shape = self.shape(name[0])
        since = self.job((shape.source, "")).revision if shape.source else 1
        return shape.created_on != "dependency" or any(
            job.is_rerun and job.revision >= since for job in self.jobs[name]
        )

    def times_sent_back(self, name: Name) -> int:
        return sum(job.review is not None and job.review.state == "sent_back" for job in self.jobs[name])

    def job(self, name: Name) -> Job:
        return self.jobs[name][-1]

    def current_jobs(self) -> dict[Name, Job]:
        return {name: self.job(name) for name in self.names()}

    @property
    def state(self) -> str:
        jobs = self.current_jobs().values()
        running = any(job.state == "running" for job in jobs)
        if self.final_state is not None:
            return ("cancelling" if self.final_state == "cancelled" else "running") if running else self.final_state
        if any(job.state in ("ready", "running") for job in jobs):
            return "running"
        open_review = [job.review for job in jobs if job.state == "asking" and job.review]
        if open_review:
            return "paused" if all(review.planned for review in open_review) else "needs_review"
        if any(job.state == "due" for job in jobs):
            return "hangs"
        return "completed_with_errors" if self.lacks() else "completed"

    @property
    def is_over(self) -> bool:
        return self.state in ("cancelled", "rejected", "completed", "completed_with_errors")

    def lacks(self) -> bool:
        return any(job.state == "failed" and not self.is_resolved(name) for name, job in self.current_jobs().items())

    def is_resolved(self, name: Name) -> bool:
        """A person has supplied the result for its item."""
        chain = self.same_item(name[0])
        return any(
            other in chain and item == name[1] and job.by_a_person and job.state == "succeeded"
            for (other, item), job in self.current_jobs().items()
        )

    def same_item(self, step: str) -> set[str]:
        reached = {edge.to_step for edge in self.graph.edges if edge.from_step == step and edge.kind == "item"}
        return reached | {far for near in reached for far in self.same_item(near)}

    def left(self, step: StepShape) -> int:
        """How many ends are to come until a step is final as a whole; a list that is to come counts as one."""
        if step.each and step.source not in self.lists:
            return 1
        return sum(not job.is_final for name, job in self.current_jobs().items() if name[0] == step.name)

    # What happens automatically

    def grow(self) -> None:
        """Create every due job whose dependencies have all ended, until there are no more."""
        while self.final_state is None and sum(self.create_or_rerun(name) for name in list(self.names())):
            pass

    def create_or_rerun(self, name: Name) -> bool:
        job = self.job(name)
        if job.state != "due" or not self.is_ready(name):
            return False
        missing = self.missing(name)
        job.is_rerun = True
        if missing and not job.at_once:
            failed = any(self.is_failed(edge, name[1]) for edge in missing)
            job.state, job.code = "skipped", "DEPENDENCY_FAILED" if failed else "SKIPPED"
            return True
        self.begin(name, job)
        return True

    def is_ready(self, name: Name) -> bool:
        return all(self.is_settled(edge, name[1]) for edge in self.into(self.shape(name[0])))

    def missing(self, name: Name) -> list[Edge]:
        return [edge for edge in self.into(self.shape(name[0])) if self.is_missing(edge, name[1])]

    def begin(self, name: Name, job: Job) -> None:
        """All that it is made of is there."""
        job.state, job.used, job.of = "ready", self.content(name), self.origins(name)
        since = [*takewhile(lambda one: one.state == "cancelled", reversed(self.jobs[name][:-1]))]
        previous = self.jobs[name][-2 - len(since)] if len(self.jobs[name]) > 1 + len(since) else None
        keeps = job.keeps and all(one.keeps for one in since)
        if keeps and previous is not None and previous.state == "succeeded" and previous.used == job.used:
            job.kept = not self.came_after(name, previous.revision)
            job.value = previous.value if job.kept else None
        step = self.shape(name[0])
        if step.opens_review and not job.kept:
            self.open_review(name, job, planned=True)

    def open_review(self, name: Name, job: Job, *, planned: bool) -> None:
        job.state = "asking"
        job.review = Review(planned, expires_at=self.expiry(name[0]) if planned else None)

    def came_after(self, name: Name, since: int) -> bool:
        """Return whether an ordering-only dependency was rerun since then, or is due to be rerun."""
        return any(
            one.revision > since and not one.kept
            for edge in self.into(self.shape(name[0]))
            if edge.parameter is None
            for one in self.jobs[edge.from_step, ""]
        )

    def end(self, name: Name, state: str, value: Any = None, code: str | None = None) -> None:
        job = self.job(name)
        job.state, job.value, job.code = state, value, code
        source = name[0]
        if state == "succeeded" and self.is_source(source) and self.final_state is None:
            self.list_items(source, value, job.revision)
        self.grow()

    def list_items(self, source: str, items: list[str], revision: int) -> None:
        self.lists[source] = items
        for step in self.graph.steps:
            for item in items if step.source == source else ():
                name = step.name, item
                fresh, targets = self.pending_reruns.get(revision, (True, set()))
                keeps = not fresh and name not in targets
                self.jobs.setdefault(name, []).append(Job(revision, keeps=keeps))

    # What people do

    def stop(self, final_state: str) -> None:
        self.final_state = final_state
        for job in self.current_jobs().values():
            if job.state in ("due", "ready", "asking"):
                self.cancel_job(job)

    def cancel_job(self, job: Job) -> None:
        job.state = "cancelled"
        if job.review is not None and not job.review.in_effect:
            job.review.state, job.review.in_effect = "withdrawn", True

    def affected(self, targets: Iterable[Name]) -> Names:
        found: Names = set()
        left: list[tuple[str, str | None]] = list(targets)
        while left:
            step, item = left.pop()
            if (step, item) in found:
                continue
            found.add((step, item))
            for edge in self.graph.edges:
                if edge.from_step == step:
                    left += self.reached(edge, item)
        return found

    def reached(self, edge: Edge, item: str | None) -> list[tuple[str, str | None]]:
        if edge.kind == "expand":
            return [(edge.to_step, None)]
        if edge.kind == "item":
            return [(edge.to_step, item)]
        if edge.kind == "shared":
            return [name for name in self.names() if name[0] == edge.to_step]
        return [(edge.to_step, "")]

    def touched(self, affected: Names) -> list[Name]:
        return [name for name in self.names() if name in affected or (name[0], None) in affected]

    def is_busy(self, affected: Names) -> bool:
        return any(self.job(name).state == "running" for name in self.touched(affected))

    def waits_for_others(self, targets: Iterable[Name], affected: Names) -> bool:
        """Whether a target's needs, its list, or the items that share it are yet to be made by an earlier act."""
        soon = {edge.to_step for edge in self.graph.edges if edge.kind == "shared" and (edge.from_step, "") in affected}
        if any(self.shape(step).source not in self.lists and (step, None) not in affected for step in soon):
            return True
        return any(
            not self.is_settled(edge, item) and not self.is_affected(edge, item, affected)
            for step, item in targets
            for edge in self.graph.edges
            if edge.to_step == step
        )

    def is_affected(self, edge: Edge, item: str, affected: Names) -> bool:
        return any(
            step == edge.from_step and (edge.kind == "join" or one in (item, "", None)) for step, one in affected
        )

    def rerun(
        self, targets: set[Name], *, edited: Iterable[Name] = (), keeps: set[Name] | None = None, fresh: bool = False
    ) -> None:
        """Make the targets and all that depends on them at the next revision; `keeps` are targets that need not be."""
        affected = {name for name in self.affected({*targets, *edited}) if name not in set(edited)}
        self.revision += 1
        self.final_state = None
        self.pending_reruns[self.revision] = fresh, targets
        touched = self.touched(affected)
        for name in touched:
            if not self.job(name).is_final:
                self.cancel_job(self.job(name))
        relisted = {step.source for step in self.graph.steps if (step.name, None) in affected}
        for source in relisted:
            self.lists.pop(source or "", None)
        for name in touched:
            if (name[0], None) not in affected:
                keeps_result = not fresh and (name not in targets or name in (keeps or ()))
                self.jobs[name].append(Job(self.revision, keeps=keeps_result))
        for name in touched:
            job = self.job(name)
            job.at_once = job.state == "due" and self.is_ready(name)
        self.grow()

    def rerun_isolated(self, targets: set[Name]) -> None:
        self.revision += 1
        for name in targets:
            self.jobs[name].append(Job(self.revision, isolated_rerun=True, is_rerun=True))
        for name in targets:
            self.begin(name, self.job(name))

    def put(self, name: Name, value: Any) -> None:
        """A person's result, at the next revision."""
        used, of = self.content(name), self.origins(name)
        edited = Job(self.revision + 1, "succeeded", value, used=used, of=of, by_a_person=True, is_rerun=True)
        self.jobs[name].append(edited)

    def stale(self) -> set[Name]:
        return {
            name
            for name, job in self.current_jobs().items()
            if job.state == "succeeded" and any(self.is_newer(need, revision) for need, revision in job.of.items())
        }

    def is_newer(self, dependency: Name, revision: int) -> bool:
        return (
            dependency in set(self.names())
            and self.job(dependency).state == "succeeded"
            and self.job(dependency).revision > revision
        )

    def fork(self) -> Run:
        """Its current results as those of a new run's first revision."""
        new = replace(self, revision=1, lists=dict(self.lists), final_state=None, pending_reruns={})
        new.jobs = {
            name: [replace(job, revision=1, of=dict.fromkeys(job.of, 1), review=None, isolated_rerun=False, kept=False)]
            for name in self.names()
            for job in [next((one for one in reversed(self.jobs[name]) if one.is_rerun), self.job(name))]
        }
        return new

    # What it is made of

    def content(self, name: Name) -> dict[str, Any]:
        """By parameter."""
        found = {
            edge.parameter: self.content_of(edge, name[1]) for edge in self.into(self.shape(name[0])) if edge.parameter
        }
        return found | ({"element": name[1]} if name[1] else {})

    def content_of(self, edge: Edge, item: str) -> Any:
        if edge.kind == "join":
            jobs = [(one, self.job((edge.from_step, one))) for one in self.items_of(edge.from_step)]
            return tuple((one, job.state, job.code, job.value) for one, job in jobs)
        return self.job(self.dependency(edge, item)).value

    def origins(self, name: Name) -> dict[Name, int]:
        edges = [edge for edge in self.into(self.shape(name[0])) if edge.parameter]
        needs = [need for edge in edges for need in self.dependencies(edge, name[1])]
        return {need: self.job(need).revision for need in needs}

    def dependencies(self, edge: Edge, item: str) -> list[Name]:
        if edge.kind == "join":
            return [(edge.from_step, one) for one in self.items_of(edge.from_step)]
        return [self.dependency(edge, item)]

    def dependency(self, edge: Edge, item: str) -> Name:
        return edge.from_step, item if edge.kind == "item" else ""

    def is_settled(self, edge: Edge, item: str) -> bool:
        if edge.kind == "expand":
            return edge.from_step in self.lists
        if edge.kind == "join":
            return self.left(self.shape(edge.from_step)) == 0
        return self.job(self.dependency(edge, item)).is_final

    def is_missing(self, edge: Edge, item: str) -> bool:
        if edge.optional or edge.parameter is None or edge.kind == "join":
            return False
        return self.job(self.dependency(edge, item)).state != "succeeded"

    def is_failed(self, edge: Edge, item: str) -> bool:
        need = self.job(self.dependency(edge, item))
        return need.state == "failed" or need.code == "DEPENDENCY_FAILED"

    def items_of(self, step: str) -> list[str]:
        return self.lists.get(self.shape(step).source or "", [])

    def into(self, step: StepShape) -> list[Edge]:
        return [edge for edge in self.graph.edges if edge.to_step == step.name and edge.kind != "expand"]

    def is_source(self, step: str) -> bool:
        return any(shape.source == step for shape in self.graph.steps)

    def shape(self, name: str) -> StepShape:
        return next(step for step in self.graph.steps if step.name == name)
