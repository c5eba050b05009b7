import json
import subprocess
import sys
from pathlib import Path

from retoma.define.durations import minutes
from retoma.define.graph import Edge, Graph, StepShape
from retoma.define.pipeline import Pipeline
from retoma.define.retry import Retry

from .builders import Brief, get_edge, get_step, make_chain, make_function


def make_fan_out(queue: str = "default", timeout: float = 600, retry: Retry | None = None) -> Pipeline:
    pipeline = Pipeline("classify", inputs=Brief)
    pipeline.step(make_function("documents", "topic"))
    pipeline.step(make_function("taxonomy", "topic"))
    pipeline.each("documents", queue=queue, timeout=timeout, retry=retry or Retry(1))(make_function("text", "document"))
    pipeline.each("documents")(make_function("label", "text", "taxonomy"))
    pipeline.step(make_function("report", joins=["label"]))
    return pipeline


def test_every_kind_of_edge_has_a_name() -> None:
    graph = make_fan_out().graph
    assert graph.edges == (
        Edge("documents", "text", "expand"),
        Edge("documents", "label", "expand"),
        Edge("text", "label", "item", "text", 0, counted=True),
        Edge("taxonomy", "label", "shared", "taxonomy", 1, counted=True),
        Edge("label", "report", "join", "label", 0, counted=True),
    )


def test_a_step_is_compiled_to_the_form_the_engine_uses() -> None:
    graph = make_fan_out().graph
    assert get_step(graph, "label") == StepShape(
        name="label",
        queue="default",
        priority=0,
        each=True,
        source="documents",
        dependency_count=2,
        created_on="expansion",
        on_failure="continue",
        item_from="text",
    )
    assert get_step(graph, "report") == StepShape(
        name="report",
        queue="default",
        priority=0,
        each=False,
        source=None,
        dependency_count=1,
        created_on="start",
        on_failure="stop",
        item_from=None,
    )


def test_positions_count_all_data_parameters() -> None:
    pipeline = Pipeline("article", inputs=Brief)
    pipeline.step(make_function("outline"))
    pipeline.step(make_function("draft", "topic", "outline"))
    assert get_edge(pipeline.graph, "outline", "draft").position == 1


def test_a_parameter_with_a_default_makes_its_edge_optional() -> None:
    pipeline = Pipeline("article")

    @pipeline.step
    def image() -> str:
        return ""

    @pipeline.step
    def page(image: str = "") -> str:
        return image

    assert get_edge(pipeline.graph, "image", "page").optional


def test_after_creates_the_same_edges_without_a_parameter() -> None:
    pipeline = make_fan_out()
    pipeline.step(after=["report", "label"])(make_function("notice"))
    pipeline.each("documents", after=["text", "taxonomy"])(make_function("stamp", "document"))
    graph = pipeline.graph
    assert get_edge(graph, "report", "notice") == Edge("report", "notice", "value", counted=True)
    assert get_edge(graph, "label", "notice") == Edge("label", "notice", "join", counted=False)
    assert get_edge(graph, "text", "stamp").kind == "item"
    assert get_edge(graph, "taxonomy", "stamp").kind == "shared"


def test_after_accepts_a_single_step_and_a_step_defined_later() -> None:
    pipeline = Pipeline("article")
    pipeline.step(after="draft")(make_function("notice"))
    pipeline.step(make_function("draft"))
    assert pipeline.graph.edges == (Edge("draft", "notice", "value", counted=True),)


def test_a_dependency_named_twice_is_one_edge() -> None:
    pipeline = Pipeline("article")
    draft = pipeline.step(make_function("draft"))
    pipeline.step(after=[draft, "draft"])(make_function("page", "draft"))
    assert pipeline.graph.edges == (Edge("draft", "page", "value", "draft", 0, counted=True),)


def test_a_source_may_also_be_taken_as_a_whole() -> None:
    pipeline = Pipeline("article")
    pipeline.step(make_function("documents"))
    pipeline.each("documents")(make_function("text", "document", "documents"))
    assert pipeline.graph.edges == (
        Edge("documents", "text", "expand"),
        Edge("documents", "text", "shared", "documents", 1, counted=False),
    )


def test_sinks_are_the_steps_without_dependents() -> None:
    pipeline = make_fan_out()
    pipeline.each("documents")(make_function("thumbnail", "document"))
    assert pipeline.graph.sinks == ("report", "thumbnail")


def test_a_plain_step_is_created_at_the_start_unless_a_single_dependency_creates_it() -> None:
    graph = make_chain(a=[], b=["a"], c=["a"], d=["b", "c"]).graph
    assert {step.name: (step.created_on, step.dependency_count) for step in graph.steps} == {
        "a": ("start", 0),
        "b": ("dependency", 1),
        "c": ("dependency", 1),
        "d": ("start", 2),
    }


def test_an_each_step_is_created_with_its_items_unless_a_single_item_creates_it() -> None:
    pipeline = Pipeline("classify")
    pipeline.step(make_function("documents"))
    pipeline.each("documents")(make_function("text", "document"))
    pipeline.each("documents")(make_function("label", "text"))
    pipeline.each("documents")(make_function("image", "document"))
    pipeline.each("documents")(make_function("card", "label", "image"))
    born = {
        step.name: (step.created_on, step.dependency_count, step.item_from)
        for step in pipeline.graph.steps
        if step.each
    }
    assert born == {
        "text": ("expansion", 0, "text"),
        "label": ("dependency", 1, "text"),
        "image": ("expansion", 0, "text"),
        "card": ("expansion", 2, "text"),
    }


def test_a_fanned_out_input_is_an_internal_step_of_the_graph() -> None:
    pipeline = Pipeline("article", inputs=Brief)
    pipeline.each("languages")(make_function("title", "language"))
    graph = pipeline.graph
    assert [step.name for step in graph.steps] == ["languages", "title"]
    assert get_step(graph, "languages").internal
    assert graph.edges == (Edge("languages", "title", "expand"),)


def test_pairs_come_from_an_internal_step_that_depends_on_its_sources() -> None:
    pipeline = Pipeline("story", inputs=Brief)
    pipeline.step(make_function("scenes"))
    pipeline.each("scenes", "languages")(make_function("translation", "scene", "language"))
    pipeline.each("scenes", "languages")(make_function("voice", "translation"))
    graph = pipeline.graph
    pair = "scenes*languages"
    assert [step.name for step in graph.steps] == ["scenes", "languages", pair, "translation", "voice"]
    assert get_step(graph, pair).dependency_count == 2
    assert graph.edges[:3] == (
        Edge("scenes", pair, "value", "scenes", 0, counted=True),
        Edge("languages", pair, "value", "languages", 1, counted=True),
        Edge(pair, "translation", "expand"),
    )
    assert get_step(graph, "voice").source == pair
    assert get_step(graph, "voice").created_on == "dependency"


def test_a_graph_survives_a_json_round_trip() -> None:
    graph = make_fan_out().graph
    again = Graph.from_json(json.loads(json.dumps(graph.to_json())))
    assert again == graph
    assert again.digest == graph.digest


def test_the_digest_is_the_same_in_every_process() -> None:
    code = "from define.test_graph import make_fan_out; print(make_fan_out().graph.digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {make_fan_out().graph.digest}


def test_the_digest_changes_with_the_shape() -> None:
    graph = make_fan_out().graph
    assert make_fan_out(queue="slow").graph.digest != graph.digest
    longer = make_fan_out()
    longer.step(make_function("notice", "report"))
    assert longer.graph.digest != graph.digest


def test_the_digest_does_not_change_with_anything_else() -> None:
    other = make_fan_out(timeout=minutes(1).total_seconds(), retry=Retry(9))
    assert other.graph.digest == make_fan_out().graph.digest
