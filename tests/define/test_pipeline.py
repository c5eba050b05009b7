from datetime import timedelta
from typing import Any

from retoma.define.durations import minutes
from retoma.define.items import ItemCounts, Items, all_finished
from retoma.define.pipeline import Pipeline
from retoma.define.retry import DEFAULT_RETRY, Retry
from retoma.define.step import Binding, Policy, Resource

from .builders import Brief, Document


class Llm: ...


class Context: ...


async def plainly(topic: str) -> str:
    return topic


def test_a_decorator_returns_the_function_unchanged() -> None:
    pipeline = Pipeline("article", inputs=Brief)
    assert pipeline.step(plainly) is plainly
    assert Pipeline("article", inputs=Brief).step(queue="text")(plainly) is plainly
    assert Pipeline("article", inputs=Brief).step()(plainly) is plainly


def test_an_each_decorator_returns_the_function_unchanged() -> None:
    def greeting(language: str) -> str:
        return f"hello in {language}"

    assert Pipeline("article", inputs=Brief).each("languages")(greeting) is greeting


def test_parameters_before_the_star_are_data_and_after_it_resources() -> None:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.step
    def outline(words: int, tone: str, *, llm: Llm, ctx: Context, trace: Any = None) -> str:
        return tone * words

    step = pipeline.steps["outline"]
    assert step.bindings == (
        Binding("words", "input", "words", 0, int),
        Binding("tone", "input", "tone", 1, str),
    )
    assert step.inputs == ("words", "tone")
    assert step.resources == (
        Resource("llm", Llm),
        Resource("ctx", Context),
        Resource("trace", Any, optional=True),
    )
    assert step.returns is str


def test_a_parameter_with_a_default_is_optional() -> None:
    pipeline = Pipeline("article")

    @pipeline.step
    def image() -> str:
        return "image"

    @pipeline.step
    def page(image: str | None = "none") -> str:
        return image or ""

    (binding,) = pipeline.steps["page"].bindings
    assert (binding.kind, binding.optional, binding.default) == ("step", True, "none")


def test_a_step_without_options_has_the_defaults() -> None:
    pipeline = Pipeline("article", inputs=Brief)
    pipeline.step(plainly)
    policy = pipeline.steps["plainly"].policy
    assert policy == Policy("default", 0, DEFAULT_RETRY, minutes(10), None, "stop")


def test_a_step_inherits_the_defaults_of_its_pipeline() -> None:
    pipeline = Pipeline("article", inputs=Brief, queue="text", retry=Retry(0), timeout=30)
    pipeline.step(plainly)
    policy = pipeline.steps["plainly"].policy
    assert policy == Policy(queue="text", retry=Retry(0), timeout=timedelta(seconds=30))


def test_the_options_of_a_step_override_those_of_its_pipeline() -> None:
    pipeline = Pipeline("article", inputs=Brief, queue="text", retry=Retry(0))
    pipeline.step(
        queue="image", priority=5, retry=Retry(3), timeout=60, total_timeout=minutes(9), on_failure="continue"
    )(plainly)
    policy = pipeline.steps["plainly"].policy
    assert policy == Policy("image", 5, Retry(3), minutes(1), minutes(9), "continue")


def test_a_failed_item_does_not_stop_the_others_by_default() -> None:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.each("languages")
    def title(language: str) -> str:
        return language

    @pipeline.each("languages", on_failure="stop")
    def body(language: str) -> str:
        return language

    assert pipeline.steps["title"].policy.on_failure == "continue"
    assert pipeline.steps["body"].policy.on_failure == "stop"


def test_the_only_unknown_parameter_of_an_each_step_is_its_item() -> None:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.each("languages")
    def title(topic: str, target: str) -> str:
        return topic + target

    assert pipeline.steps["title"].bindings == (
        Binding("topic", "input", "topic", 0, str),
        Binding("target", "item", "languages", 1, str),
    )


def make_story() -> Pipeline:
    pipeline = Pipeline("story")

    @pipeline.step
    def scenes() -> list[Document]:
        return []

    @pipeline.step
    def languages() -> list[str]:
        return []

    return pipeline


def test_pair_parameters_follow_the_order_of_the_sources() -> None:
    pipeline = make_story()

    @pipeline.each("scenes", "languages")
    def translation(first: Document, second: str) -> str:
        return second

    bindings = pipeline.steps["translation"].bindings
    assert [(binding.name, binding.part) for binding in bindings] == [("scenes", 0), ("languages", 1)]


def test_singular_names_match_their_source_in_any_order() -> None:
    pipeline = make_story()

    @pipeline.each("scenes", "languages")
    def translation(language: str, scene: Document) -> str:
        return language

    @pipeline.each("scenes", "languages")
    def voice(translation: str, language: str) -> str:
        return language

    parts = {binding.parameter: binding.part for binding in pipeline.steps["translation"].bindings}
    assert parts == {"language": 1, "scene": 0}
    assert pipeline.steps["voice"].bindings[1].part == 1


def test_an_each_step_may_depend_on_others_without_taking_its_item() -> None:
    pipeline = make_story()

    @pipeline.each("scenes")
    def image(scene: Document) -> str:
        return scene.sha256

    @pipeline.each("scenes")
    def clip(image: str) -> str:
        return image

    assert [binding.kind for binding in pipeline.steps["clip"].bindings] == ["step"]


def test_a_fanned_out_input_list_comes_from_an_internal_step() -> None:
    pipeline = Pipeline("article", inputs=Brief, queue="text")

    @pipeline.each("languages")
    def title(language: str) -> str:
        return language

    hidden = pipeline.steps["languages"]
    assert hidden.internal
    assert hidden.policy.queue == "text"
    assert hidden.inputs == ("languages",)
    assert hidden.function(languages=["en", "pt"]) == ["en", "pt"]


def test_pairs_come_from_an_internal_step_in_order() -> None:
    pipeline = make_story()

    @pipeline.each("scenes", "languages")
    def translation(scene: Document, language: str) -> str:
        return language

    hidden = pipeline.steps["scenes*languages"]
    assert hidden.internal
    assert [binding.name for binding in hidden.bindings] == ["scenes", "languages"]
    assert hidden.function(languages=["en", "pt"], scenes=[1, 2]) == [
        [1, "en"],
        [1, "pt"],
        [2, "en"],
        [2, "pt"],
    ]


def test_three_sources_produce_every_combination() -> None:
    pipeline = Pipeline("grid")

    @pipeline.step
    def a() -> list[int]:
        return [1, 2]

    @pipeline.step
    def b() -> list[int]:
        return [3]

    @pipeline.step
    def c() -> list[int]:
        return [4, 5]

    @pipeline.each(a, b, c)
    def total(x: int, y: int, z: int) -> int:
        return x + y + z

    product = pipeline.steps["a*b*c"].function(a=[1, 2], b=[3], c=[4, 5])
    assert product == [[1, 3, 4], [1, 3, 5], [2, 3, 4], [2, 3, 5]]


def test_a_fanned_out_input_stays_an_input_for_other_steps() -> None:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.each("languages")
    def title(language: str) -> str:
        return language

    @pipeline.step
    def count(languages: list[str]) -> int:
        return len(languages)

    assert pipeline.steps["count"].bindings[0].kind == "input"


def test_a_condition_is_called_with_its_named_parameters() -> None:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.step(when=lambda words: words > 100)
    def summary(topic: str, words: int) -> str:
        return topic * words

    step = pipeline.steps["summary"]
    assert step.should_run({"topic": "tea", "words": 101})
    assert not step.should_run({"topic": "tea", "words": 100})


def test_a_step_without_a_condition_is_always_wanted() -> None:
    pipeline = Pipeline("article", inputs=Brief)
    pipeline.step(plainly)
    assert pipeline.steps["plainly"].should_run({"topic": "tea"})


def test_a_join_evaluates_its_own_condition() -> None:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.each("languages")
    def title(language: str) -> str:
        return language

    @pipeline.step(proceed_when=all_finished(allow_failed=0.5))
    def strict(title: Items[str]) -> int:
        return len(title)

    @pipeline.step
    def lenient(title: Items[str]) -> int:
        return len(title)

    mostly_failed = ItemCounts(total=4, failed=3)
    assert not pipeline.steps["strict"].should_proceed(mostly_failed)
    assert pipeline.steps["lenient"].should_proceed(mostly_failed)


def test_the_graph_is_compiled_once_until_a_step_is_added() -> None:
    pipeline = Pipeline("article", inputs=Brief)
    pipeline.step(plainly)
    before = pipeline.graph
    assert pipeline.graph is before

    @pipeline.step
    def more(plainly: str) -> str:
        return plainly

    assert [step.name for step in pipeline.graph.steps] == ["plainly", "more"]


def test_pipeline_names_may_have_dashes_and_dots() -> None:
    assert Pipeline("blog-2.article").name == "blog-2.article"
