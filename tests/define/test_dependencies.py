"""Counted dependencies are minimal, and still nothing ever starts before its dependencies have ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from retoma.define.graph import Edge, Graph, StepShape
from retoma.define.pipeline import Pipeline

from .builders import get_step, list_counted_dependencies, make_chain, make_function


def test_a_transitively_implied_dependency_is_not_counted() -> None:
    graph = make_chain(a=[], b=["a"], c=["a", "b"]).graph
    assert list_counted_dependencies(graph, "c") == {"b"}
    assert get_step(graph, "c").created_on == "dependency"


def test_a_dependency_is_implied_over_any_distance() -> None:
    graph = make_chain(a=[], b=["a"], c=["b"], d=["c"], e=["a", "d"]).graph
    assert list_counted_dependencies(graph, "e") == {"d"}


def test_both_sides_of_a_diamond_are_counted_and_its_top_is_not() -> None:
    graph = make_chain(a=[], b=["a"], c=["a"], d=["a", "b", "c"]).graph
    assert list_counted_dependencies(graph, "d") == {"b", "c"}


def test_a_step_without_dependencies_counts_none() -> None:
    assert get_step(make_chain(a=[]).graph, "a").dependency_count == 0


def make_fan_out() -> Pipeline:
    """`settings` comes before the source, `taxonomy` does not."""
    pipeline = make_chain(settings=[], documents=["settings"], taxonomy=["settings"])
    pipeline.each("documents")(make_function("text", "document"))
    return pipeline


def test_a_shared_dependency_before_the_source_is_implied_by_the_items() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("label", "document", "settings"))
    assert list_counted_dependencies(pipeline.graph, "label") == set()
    assert get_step(pipeline.graph, "label").created_on == "expansion"


def test_a_shared_dependency_parallel_to_the_source_is_counted() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("label", "document", "taxonomy"))
    assert list_counted_dependencies(pipeline.graph, "label") == {"taxonomy"}


def test_a_shared_dependency_that_another_implies_is_not_counted() -> None:
    pipeline = make_fan_out()
    pipeline.step(make_function("rules", "taxonomy"))
    pipeline.each("documents")(make_function("label", "document", "taxonomy", "rules"))
    assert list_counted_dependencies(pipeline.graph, "label") == {"rules"}


def test_a_shared_dependency_of_the_preceding_item_step_is_implied_by_it() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("label", "text", "taxonomy"))
    pipeline.each("documents")(make_function("note", "label", "taxonomy"))
    assert list_counted_dependencies(pipeline.graph, "label") == {"text", "taxonomy"}
    assert list_counted_dependencies(pipeline.graph, "note") == {"label"}
    assert get_step(pipeline.graph, "note").created_on == "dependency"


def test_an_item_dependency_that_another_implies_is_not_counted() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("label", "text"))
    pipeline.each("documents")(make_function("note", "text", "label"))
    assert list_counted_dependencies(pipeline.graph, "note") == {"label"}


def test_a_join_implies_everything_before_the_source() -> None:
    pipeline = make_fan_out()
    pipeline.step(make_function("report", "documents", "settings", joins=["text"]))
    assert list_counted_dependencies(pipeline.graph, "report") == {"text"}
    assert get_step(pipeline.graph, "report").created_on == "start"


def test_a_join_does_not_imply_shared_item_dependencies_as_there_may_be_no_items() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("label", "document", "taxonomy"))
    pipeline.step(make_function("report", "taxonomy", joins=["label"]))
    assert list_counted_dependencies(pipeline.graph, "report") == {"taxonomy", "label"}


def test_a_join_does_not_imply_another_one() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("label", "text"))
    pipeline.step(make_function("report", joins=["text", "label"]))
    assert list_counted_dependencies(pipeline.graph, "report") == {"text", "label"}


def test_a_join_is_implied_by_a_step_that_joined_before() -> None:
    pipeline = make_fan_out()
    pipeline.step(make_function("summary", joins=["text"]))
    pipeline.step(make_function("report", "summary", joins=["text"]))
    assert list_counted_dependencies(pipeline.graph, "report") == {"summary"}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any pipeline of up to eight steps in addition to its two sources."""
    pipeline = make_chain(first=[], seconds=["first"], thirds=[])
    for number in range(draw(st.integers(1, 8))):
        _add_step(draw, pipeline, f"s{number}")
    return pipeline.graph


def _add_step(draw: st.DrawFn, pipeline: Pipeline, name: str) -> None:
    source = draw(st.sampled_from([None, "seconds", "thirds"]))
    plain = [step.name for step in pipeline.steps.values() if not step.each]
    items = [step.name for step in pipeline.steps.values() if step.each and source in (None, step.source)]
    needs = draw(st.lists(st.sampled_from(plain), unique=True, max_size=4))
    fan = draw(st.lists(st.sampled_from(items), unique=True, max_size=4)) if items else []
    if source is None:
        pipeline.step(make_function(name, *needs, joins=fan))
    else:
        pipeline.each(source)(make_function(name, "item", *needs, *fan))


Job = tuple[str, int]


@dataclass
class Simulation:
    """Runs a graph by its counted needs alone, one job at a time in a random order."""

    graph: Graph
    items: dict[str, int]
    random: Random
    ended: set[Job] = field(default_factory=set)

    def run(self) -> None:
        while ready := [job for job in self._jobs() if job not in self.ended and self._holds(job, counted=True)]:
            job = self.random.choice(ready)
            assert self._holds(job, counted=False), f"{job} started too early"
            self.ended.add(job)
        assert all(self._is_over(step) for step in self.graph.steps)

    def _jobs(self) -> list[Job]:
        return [(step.name, item) for step in self.graph.steps for item in self._items_of(step)]

    def _items_of(self, step: StepShape) -> range:
        if step.source is None:
            return range(1)
        return range(self.items[step.source] if (step.source, 0) in self.ended else 0)

    def _holds(self, job: Job, counted: bool) -> bool:
        needs = [edge for edge in self.graph.edges if edge.to_step == job[0] and edge.kind != "expand"]
        return all(self._is_met(edge, job[1]) for edge in needs if edge.counted or not counted)

    def _is_met(self, edge: Edge, item: int) -> bool:
        if edge.kind == "join":
            return self._is_over(get_step(self.graph, edge.from_step))
        return (edge.from_step, item if edge.kind == "item" else 0) in self.ended

    def _is_over(self, step: StepShape) -> bool:
        if step.source is not None and (step.source, 0) not in self.ended:
            return False
        return all((step.name, item) in self.ended for item in self._items_of(step))


@settings(deadline=None)
@given(graphs(), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2**32))
def test_nothing_starts_before_its_dependencies_have_ended(graph: Graph, some: int, others: int, seed: int) -> None:
    Simulation(graph, {"seconds": some, "thirds": others}, Random(seed)).run()


@settings(deadline=None)
@given(graphs())
def test_a_step_created_by_its_dependency_has_exactly_one(graph: Graph) -> None:
    for step in graph.steps:
        kinds = [edge.kind for edge in graph.edges if edge.to_step == step.name and edge.counted]
        assert step.dependency_count == len(kinds)
        assert (step.created_on == "dependency") == (kinds == ["item" if step.each else "value"])
