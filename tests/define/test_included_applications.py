"""An application that includes others knows which one owns what, and rejects what would be ambiguous."""

from __future__ import annotations

from typing import Any

import pytest

from retoma import App, Pipeline
from retoma.errors import DefinitionError, NotFound


def a_pipeline(name: str, queue: str = "default") -> Pipeline:
    pipeline = Pipeline(name)

    @pipeline.step(queue=queue)
    def answer() -> int:
        return 42

    return pipeline


def an_app(name: str, *pipelines: str, **options: Any) -> App:
    return App(name, pipelines=[a_pipeline(each) for each in pipelines], **options)


def test_an_application_without_others_is_its_own_only_one() -> None:
    films = an_app("films", "film")
    assert films.applications == (films,)
    assert films.find_owner("film") is films
    assert films.find_owner("book") is None


def test_included_applications_keep_their_pipelines() -> None:
    films, books = an_app("films", "film", "cut"), an_app("books", "book")
    both = App("both", includes=[films, books])
    assert both.applications == (films, books)
    assert list(both.pipelines) == ["film", "cut", "book"]
    assert (both.own_pipelines, list(books.pipelines)) == ({}, ["book"])
    assert (both.find_owner("cut"), both.find_owner("book")) == (films, books)
    with pytest.raises(NotFound, match="'both' has no pipeline 'bok'; did you mean 'book'"):
        both.pipeline("bok")


def test_an_application_may_have_pipelines_of_its_own_and_be_included_twice() -> None:
    films = an_app("films", "film")
    one, other = an_app("one", "first", includes=[films]), an_app("other", "second", includes=[films])
    all_of_them = App("all", includes=[one, other])
    assert all_of_them.applications == (one, films, other)
    assert one.applications == (one, films)


def test_queues_are_those_of_all() -> None:
    images = App("images", pipelines=[a_pipeline("image", "gpu")])
    assert App("both", includes=[images, an_app("books", "book")]).queues == ["default", "gpu"]


def test_two_applications_with_one_pipeline_name_are_named() -> None:
    with pytest.raises(DefinitionError, match="'films' and 'books' both define a pipeline 'cut'; rename one"):
        App("both", includes=[an_app("films", "cut"), an_app("books", "cut")])


def test_two_applications_with_one_name_are_rejected() -> None:
    with pytest.raises(DefinitionError, match="'both' includes two applications named 'films'; rename one"):
        App("both", includes=[an_app("films", "film"), an_app("films", "cut")])


def test_an_application_of_nothing_is_rejected() -> None:
    with pytest.raises(DefinitionError, match="'nothing' has no pipelines"):
        App("nothing", includes=[])


def test_resources_and_labels_are_checked_in_their_own_application() -> None:
    needs_host = Pipeline("film")

    @needs_host.step
    def film(*, host: str) -> str:
        return host

    with pytest.raises(DefinitionError, match="no resource 'host'"):
        App("films", pipelines=[needs_host], includes=[an_app("books", "book", resources={"host": "paper"})])
    with pytest.raises(DefinitionError, match="'films' has no step 'answer'"):
        App(
            "films",
            pipelines=[needs_host],
            resources={"host": "reel"},
            labels={"answer": "Answer"},
            includes=[an_app("books", "book")],
        )


def test_the_title_is_the_name_unless_it_is_given() -> None:
    assert an_app("films", "film").title == "films"
    assert an_app("films", "film", title="Films").title == "Films"
