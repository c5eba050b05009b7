"""A need that another one implies is still counted where its lack of a result would go unnoticed."""

from __future__ import annotations

from retoma.define.pipeline import Pipeline


def list_counted_dependencies(pipeline: Pipeline, step: str) -> list[str]:
    return [edge.from_step for edge in pipeline.graph.edges if edge.to_step == step and edge.counted]


def test_a_dependency_is_not_counted_where_another_covers_its_absence() -> None:
    pipeline = Pipeline("chain")

    @pipeline.step
    def first() -> int:
        return 1

    @pipeline.step
    def second(first: int) -> int:
        return 2

    @pipeline.step
    def third(first: int, second: int) -> int:
        return 3

    assert list_counted_dependencies(pipeline, "third") == ["second"]


def test_a_dependency_is_counted_where_the_other_only_comes_after_it() -> None:
    pipeline = Pipeline("after")

    @pipeline.step
    def first() -> int:
        return 1

    @pipeline.step(after=[first])
    def second() -> int:
        return 2

    @pipeline.step
    def third(first: int, second: int) -> int:
        return 3

    assert list_counted_dependencies(pipeline, "third") == ["first", "second"]


def test_a_dependency_is_counted_where_the_other_can_run_without_it() -> None:
    pipeline = Pipeline("default")

    @pipeline.step
    def first() -> int:
        return 1

    @pipeline.step
    def second(first: int = 0) -> int:
        return 2

    @pipeline.step
    def third(first: int, second: int) -> int:
        return 3

    assert list_counted_dependencies(pipeline, "third") == ["first", "second"]


def test_an_optional_dependency_is_implied_only_by_its_end() -> None:
    pipeline = Pipeline("optional")

    @pipeline.step
    def first() -> int:
        return 1

    @pipeline.step
    def second(first: int = 0) -> int:
        return 2

    @pipeline.step
    def third(second: int, first: int = 0) -> int:
        return 3

    assert list_counted_dependencies(pipeline, "third") == ["second"]
