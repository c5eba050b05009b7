"""Steps that are kept for runs under way alone."""

from __future__ import annotations

import pytest

from retoma import App, Items, Pipeline
from retoma.errors import DefinitionError
from retoma.store.database import Database
from retoma.testing import sandbox


def make_old_release() -> Pipeline:
    film = Pipeline("film")

    @film.step
    def scenes() -> list[str]:
        return ["sea", "town"]

    @film.each(scenes)
    def mail(scene: str) -> str:
        return f"mail of {scene}"

    return film


def make_new_release() -> Pipeline:
    film = Pipeline("film")

    @film.step
    def scenes() -> list[str]:
        return ["sea", "town"]

    @film.each(scenes, retired=True)
    def mail(scene: str) -> str:
        return f"mail of {scene}"

    @film.step
    def letter(scenes: list[str]) -> str:
        return f"letter of {len(scenes)}"

    return film


async def test_a_retired_step_runs_in_old_runs_and_not_in_new_ones(database: Database) -> None:
    async with sandbox(App("studio", pipelines=[make_old_release()]), database) as monday:
        old = (await monday.client.start("film")).id
    async with sandbox(App("studio", pipelines=[make_new_release()]), database) as tuesday:
        new = (await tuesday.client.start("film")).id
        await tuesday.work()
        assert [(await tuesday.client.runs.get(run)).state for run in (old, new)] == ["completed", "completed"]
        assert (await tuesday.client.runs.get_results(old))["mail"] == {
            "sea": "mail of sea",
            "town": "mail of town",
        }
        assert await tuesday.client.runs.get_results(new) == {"scenes": ["sea", "town"], "letter": "letter of 2"}


def test_a_step_cannot_depend_on_a_retired_one() -> None:
    film = make_new_release()

    @film.step
    def count(mail: Items[str]) -> int:
        return len(mail)

    with pytest.raises(DefinitionError, match="it depends on 'mail', which is retired"):
        film.check()


def test_the_internal_source_of_a_retired_step_is_not_in_new_runs() -> None:
    film = make_new_release()
    assert [step.name for step in film.graph.steps] == ["scenes", "letter"]


def test_the_error_for_an_unknown_pipeline_option_suggests_the_nearest() -> None:
    with pytest.raises(DefinitionError, match="Pipeline has no option 'schedule'; known: 'inputs'"):
        Pipeline("p", schedule="daily")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="did you mean 'timeout'"):
        Pipeline("p", timeot=3)  # type: ignore[arg-type]
