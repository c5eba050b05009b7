"""Mistakes in a definition fail at import, with a message that says where they are and how to fix them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from retoma.app import App
from retoma.define.items import Items, all_finished
from retoma.define.pipeline import Pipeline
from retoma.define.rejection import Rejection
from retoma.errors import DefinitionError

from .builders import Brief, Document, make_chain, make_function

if TYPE_CHECKING:
    from decimal import Decimal


@contextmanager
def mistake(*parts: str) -> Iterator[None]:
    """Expect a mistake whose message has all these parts."""
    with pytest.raises(DefinitionError) as caught:
        yield
    missing = [part for part in parts if part not in str(caught.value)]
    assert not missing, str(caught.value)


@pytest.fixture
def article() -> Pipeline:
    pipeline = Pipeline("article", inputs=Brief)

    @pipeline.step
    def outline(topic: str) -> str:
        return topic

    @pipeline.step
    def documents() -> list[Document]:
        return []

    @pipeline.each("documents")
    def text(document: Document) -> str:
        return document.sha256

    @pipeline.each("languages")
    def greeting(language: str) -> str:
        return language

    return pipeline


def test_the_error_for_an_unknown_parameter_suggests_the_nearest_step(article: Pipeline) -> None:
    with mistake("pipeline 'article', step 'draft'", "'outlin'", "did you mean 'outline'?"):
        article.step(make_function("draft", "outlin"))


def test_the_error_for_an_unknown_parameter_suggests_the_nearest_input(article: Pipeline) -> None:
    with mistake("'tonne'", "did you mean 'tone'?"):
        article.step(make_function("draft", "tonne"))


def test_the_error_for_an_unknown_parameter_without_a_near_match_lists_the_known_names(article: Pipeline) -> None:
    with mistake("known: 'topic', 'tone', 'words', 'languages', 'outline'"):
        article.step(make_function("draft", "xyz"))


def test_the_error_for_an_unknown_parameter_of_the_first_step_says_that_nothing_precedes_it() -> None:
    with mistake("none is defined"):
        Pipeline("empty").step(make_function("draft", "xyz"))


def test_a_step_defined_below_is_unknown() -> None:
    with mistake("step 'draft'", "'outline' names neither an input nor a step above"):
        make_chain(draft=["outline"], outline=[])


def test_a_step_cannot_depend_on_itself(article: Pipeline) -> None:
    with mistake("'draft' names the step itself"):
        article.step(make_function("draft", "draft"))
    with mistake("'label' names the step itself"):
        article.each("documents")(make_function("label", "label"))
    with mistake("after= names the step itself"):
        article.step(after=["draft"])(make_function("draft"))


def test_an_each_step_has_no_more_items_than_sources(article: Pipeline) -> None:
    with mistake("step 'label'", "'document', 'outlin'", "provides only 1", "did you mean 'outline'?"):
        article.each("documents")(make_function("label", "document", "outlin"))


def test_only_the_misspelt_parameter_of_an_each_step_gets_a_suggestion(article: Pipeline) -> None:
    with mistake("provides only 1 of them; 'outlin': did you mean 'outline'?"):
        article.each("documents")(make_function("label", "document", "outlin"))


def test_an_ambiguous_part_of_a_pair_must_be_named(article: Pipeline) -> None:
    with mistake("which of 'documents', 'languages' 'target' is", "take one parameter for each of them"):
        article.each("documents", "languages")(make_function("label", "target"))


def test_variadic_parameters_are_rejected(article: Pipeline) -> None:
    def draft(*parts: str) -> None: ...
    def page(**parts: str) -> None: ...

    with mistake("step 'draft'", "'*parts'"):
        article.step(draft)
    with mistake("step 'page'", "'**parts'"):
        article.step(page)


def test_positional_only_parameters_are_rejected(article: Pipeline) -> None:
    def draft(topic: str, /) -> None: ...

    with mistake("'topic'", "positional-only"):
        article.step(draft)


def test_the_context_cannot_be_a_data_parameter(article: Pipeline) -> None:
    with mistake("'ctx' is not data; put it right of '*'"):
        article.step(make_function("draft", "ctx"))
    with mistake("'ctx' is not data"):
        article.each("documents")(make_function("label", "ctx"))


def test_two_steps_cannot_share_a_name(article: Pipeline) -> None:
    with mistake("step 'outline'", "already"):
        article.step(make_function("outline"))


def test_a_step_cannot_have_the_name_of_an_input(article: Pipeline) -> None:
    with mistake("step 'topic'", "is already an input"):
        article.step(make_function("topic"))


def test_the_error_for_an_unknown_option_suggests_the_nearest(article: Pipeline) -> None:
    with mistake("step 'draft'", "no option 'retries'", "did you mean 'retry'?"):
        article.step(retries=3)(make_function("draft"))  # type: ignore[call-overload]


def test_the_error_for_an_unknown_review_option_suggests_the_nearest(article: Pipeline) -> None:
    options: Any = {"remnid": "1h"}
    article.step(make_function("draft", "topic"))
    with mistake("step 'approved'", "no option 'remnid'", "did you mean 'remind'?"):
        article.review("approved", of="draft", **options)


def test_only_the_rejection_of_an_item_can_be_told_to_end_the_run(article: Pipeline) -> None:
    article.step(make_function("draft", "topic"))
    with mistake("step 'approved'", "rejection_ends_run= is only for a review of an each step"):
        article.review("approved", of="draft", rejection_ends_run=True)


def test_the_error_for_an_unknown_application_option_suggests_the_nearest(article: Pipeline) -> None:
    options: Any = {"resource": {}}
    with mistake("App 'docs'", "no option 'resource'", "did you mean 'resources'?"):
        App("docs", pipelines=[article], **options)


def test_proceed_when_is_not_an_option_of_each(article: Pipeline) -> None:
    with mistake("step 'label'", "no option 'proceed_when'"):
        article.each("documents", proceed_when=all_finished())(make_function("label", "document"))  # type: ignore[call-arg]


def test_proceed_when_needs_a_join(article: Pipeline) -> None:
    article.step(proceed_when=all_finished())(make_function("draft", "outline"))
    with mistake("step 'draft'", "proceed_when= is only for a join"):
        article.check()


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("queue", "two words", "is not a valid queue name"),
        ("queue", "q" * 101, "at most 100 characters"),
        ("priority", "high", "pass an int"),
        ("retry", 3, "pass a Retry, such as Retry(3)"),
        ("timeout", 0, "pass a duration above zero"),
        ("timeout", None, "pass a duration above zero"),
        ("total_timeout", "1m", "pass a duration above zero"),
        ("on_failure", "retry", "'stop', 'continue', 'review'"),
        ("proceed_when", 0.5, "pass all_finished(...)"),
        ("when", True, "pass a plain function"),
    ],
)
def test_the_error_for_an_invalid_option_says_what_is_valid(
    article: Pipeline, option: str, value: Any, reason: str
) -> None:
    options: Any = {option: value}
    with mistake("pipeline 'article', step 'draft'", reason):
        article.step(**options)(make_function("draft", "topic"))


def test_the_defaults_of_a_pipeline_are_validated_too() -> None:
    with mistake("pipeline 'article': ", "above zero"):
        Pipeline("article", timeout=-1)


def test_a_condition_takes_only_data_of_its_step(article: Pipeline) -> None:
    with mistake("step 'draft'", "when= takes 'tone'", "known: 'topic', 'words'"):
        article.step(when=lambda tone: bool(tone))(make_function("draft", "topic", "words"))
    with mistake("none is defined"):
        article.step(when=lambda tone: bool(tone))(make_function("draft"))


def test_a_condition_cannot_be_async(article: Pipeline) -> None:
    async def wanted(topic: str) -> bool:
        return bool(topic)

    with mistake("step 'draft'", "pass a plain function"):
        article.step(when=wanted)(make_function("draft", "topic"))  # type: ignore[arg-type]


def test_a_condition_names_its_parameters(article: Pipeline) -> None:
    with mistake("step 'draft'", "'**values' of when="):
        article.step(when=lambda **values: True)(make_function("draft", "topic"))


def test_a_plain_step_takes_an_each_step_as_items(article: Pipeline) -> None:
    with mistake("step 'report'", "'text' is an each step", "annotate it as Items[...]"):
        article.step(make_function("report", "text"))


def test_a_plain_step_cannot_be_taken_as_items(article: Pipeline) -> None:
    with mistake("step 'report'", "'outline' is a plain step"):
        article.step(make_function("report", joins=["outline"]))
    with mistake("step 'report'", "'topic' is an input"):
        article.step(make_function("report", joins=["topic"]))


def test_an_each_step_cannot_join(article: Pipeline) -> None:
    with mistake("step 'label'", "cannot take Items[...] of 'text'", "join it first in a plain step"):
        article.each("documents")(make_function("label", "document", joins=["text"]))


def test_an_each_step_over_other_items_must_be_joined_first(article: Pipeline) -> None:
    with mistake("step 'label'", "'greeting' is an each step over 'languages'", "join it first"):
        article.each("documents")(make_function("label", "greeting"))


def test_an_each_step_cannot_wait_for_an_each_step_over_other_items(article: Pipeline) -> None:
    article.each("documents", after=["greeting"])(make_function("label", "document"))
    with mistake("step 'label'", "'greeting' is an each step over 'languages'"):
        article.check()


def test_each_cannot_fan_out_over_an_each_step(article: Pipeline) -> None:
    with mistake("step 'word'", "'text', which is itself an each step", "return a flat list from a plain step"):
        article.each("text")(make_function("word", "it"))


def test_each_fans_out_over_lists_only(article: Pipeline) -> None:
    with mistake("step 'letter'", "'outline', which does not return a list"):
        article.each("outline")(make_function("letter", "it"))
    with mistake("step 'letter'", "'topic', which does not return a list"):
        article.each("topic")(make_function("letter", "it"))


def test_the_error_for_an_unknown_source_suggests_the_nearest(article: Pipeline) -> None:
    with mistake("step 'label'", "each goes over 'document'", "did you mean 'documents'?"):
        article.each("document")(make_function("label", "it"))


def test_each_needs_parentheses_and_a_source(article: Pipeline) -> None:
    with mistake("step 'label'", "@...each(step)"):
        article.each(make_function("label"))
    with mistake("@...each(step)"):
        article.each()


def test_each_cannot_fan_out_over_one_list_twice(article: Pipeline) -> None:
    with mistake("step 'match'", "'documents' twice"):
        article.each("documents", "documents")(make_function("match", "one", "other"))


def test_an_each_step_needs_a_parameter(article: Pipeline) -> None:
    with mistake("step 'label'", "neither its item nor anything else"):
        article.each("documents")(make_function("label"))


def test_a_function_of_another_pipeline_is_not_a_step(article: Pipeline) -> None:
    outline = make_function("outline")
    Pipeline("other").step(outline)
    with mistake("step 'draft'", "after= names 'outline', which is not a step of this pipeline"):
        article.step(after=[outline])(make_function("draft"))


def test_only_functions_can_be_steps(article: Pipeline) -> None:
    with mistake("'draft' cannot be a step"):
        article.step("draft")  # type: ignore[call-overload]
    with mistake("'<lambda>' is not a valid step name"):
        article.step(lambda: None)


def test_the_error_for_after_with_an_unknown_step_suggests_the_nearest(article: Pipeline) -> None:
    article.step(after=["outlines"])(make_function("draft"))
    with mistake("step 'draft'", "after= names 'outlines'", "did you mean 'outline'?"):
        article.check()


def test_steps_that_wait_for_each_other_are_reported() -> None:
    pipeline = Pipeline("article")
    pipeline.step(after=["page"])(make_function("draft"))
    pipeline.step(make_function("page", "draft"))
    with mistake("pipeline 'article'", "can never run", "'draft' -> 'page'"):
        pipeline.check()


def test_a_source_cannot_wait_for_its_own_items() -> None:
    pipeline = Pipeline("article")
    pipeline.step(after=["text"])(make_function("documents"))
    pipeline.each("documents")(make_function("text", "document"))
    with mistake("can never run", "'documents'", "'text'"):
        _ = pipeline.graph


def test_a_pipeline_needs_a_step() -> None:
    with mistake("pipeline 'article'", "no steps"):
        Pipeline("article").check()


@pytest.mark.parametrize("name", ["", "two words", "2nd", "a/b", "a" * 101, None])
def test_a_pipeline_needs_a_valid_name(name: Any) -> None:
    with pytest.raises(DefinitionError):
        Pipeline(name)


def test_inputs_must_be_a_model() -> None:
    with mistake("pipeline 'article'", "subclass of pydantic's BaseModel"):
        Pipeline("article", inputs=dict)  # type: ignore[arg-type]


def test_the_type_of_a_parameter_must_match_the_step(article: Pipeline) -> None:
    with mistake("step 'draft'", "'outline' expects int, but step 'outline' returns str"):

        @article.step
        def draft(outline: int) -> int:
            return outline


def test_the_type_of_a_parameter_must_match_the_input(article: Pipeline) -> None:
    with mistake("step 'draft'", "'words' expects str, but input 'words' is int"):

        @article.step
        def draft(words: str) -> str:
            return words


def test_the_type_of_an_item_must_match_the_list(article: Pipeline) -> None:
    with mistake("step 'label'", "'document' expects str, but an element of 'documents' is Document"):

        @article.each("documents")
        def label(document: str) -> str:
            return document


def test_the_type_of_a_join_must_match_the_each_step(article: Pipeline) -> None:
    with mistake("step 'report'", "'text' expects int, but each step 'text' returns str"):

        @article.step
        def report(text: Items[int]) -> int:
            return len(text)


def test_an_annotation_that_cannot_be_resolved_is_not_checked(article: Pipeline) -> None:
    @article.step
    def draft(outline: Decimal, words: int) -> Decimal:
        return outline * words

    assert article.steps["draft"].bindings[0].annotation is Any
    assert article.steps["draft"].bindings[1].annotation is int


def test_a_join_is_recognised_even_if_its_type_cannot_be_resolved(article: Pipeline) -> None:
    @article.step
    def report(text: Items[Decimal]) -> int:
        return len(text)

    assert article.steps["report"].bindings[0].kind == "items"


def test_a_rejected_step_leaves_nothing_behind(article: Pipeline) -> None:
    before = list(article.steps)
    with mistake("step 'label'"):
        article.each("documents", "languages")(make_function("label", "x", "y", "z"))
    assert list(article.steps) == before


def test_what_follows_a_rejection_is_a_pipeline() -> None:
    with mistake("pipeline 'article'", "on_rejected= is 'cleanup'; pass a pipeline that is defined above it"):
        Pipeline("article", on_rejected="cleanup")  # type: ignore[arg-type]


def test_what_follows_a_rejection_takes_the_rejection() -> None:
    with mistake("pipeline 'article'", "whose input is not a Rejection", "Pipeline('cleanup', Rejection)"):
        Pipeline("article", on_rejected=Pipeline("cleanup", Brief))


def test_what_follows_a_rejection_has_no_title_of_its_own() -> None:
    with mistake("pipeline 'article'", "on_rejected= is 'cleanup', which has a title"):
        Pipeline("article", on_rejected=Pipeline("cleanup", Rejection, title="{run}"))


def test_what_follows_a_rejection_belongs_to_the_application() -> None:
    cleanup = Pipeline("cleanup", Rejection)
    cleanup.step(make_function("cleaned", "notes"))
    article = Pipeline("article", on_rejected=cleanup)
    article.step(make_function("text"))
    with mistake("on_rejected= is 'cleanup'", "add it to App(pipelines=[...])"):
        App("test", pipelines=[article])
    App("test", pipelines=[article, cleanup])
