"""Titles of runs on the command line: shown next to ids, and searchable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from retoma import Settings, minutes
from retoma.store import watchdog
from retoma.store.database import Database
from retoma.testing import Sandbox
from tests.cli.terminal import FILM, Terminal
from tests.server import titled


@pytest.fixture
def film_terminal(terminal: Terminal) -> Terminal:
    """A shell next to film.py, whose runs have titles."""
    titled_film = FILM.replace("inputs=Brief,", 'inputs=Brief, title="Film: {title}",')
    assert titled_film != FILM
    (terminal.folder / "film.py").write_text(titled_film)
    return terminal


def prepare(terminal: Terminal, action: Callable[[Sandbox], Awaitable[object]]) -> None:
    async def act() -> None:
        async with await Database.open(Settings(database_url=terminal.variables["RETOMA_DATABASE_URL"])) as database:
            sandbox = Sandbox(titled.app, database)
            try:
                await action(sandbox)
            finally:
                await sandbox.client.close()

    asyncio.run(act())


async def mark_stuck(sandbox: Sandbox) -> None:
    run = (await sandbox.client.start("news", {"topic": "milk"})).id
    last = await sandbox.client.runs.get_last_event_id(run)
    assert await watchdog.mark_stuck(sandbox.database, run, last, "no_worker", {}, minutes(5))


def test_runs_are_listed_and_shown_with_their_titles(film_terminal: Terminal) -> None:
    run = film_terminal.start("-i", "title=storm")
    header, line = film_terminal.out("runs", "list").splitlines()
    assert header.split()[:3] == ["run", "title", "pipeline"]
    assert line.startswith(f"{run}  Film: storm")
    assert film_terminal.json("runs", "list")[0]["title"] == "Film: storm"
    assert film_terminal.out("runs", "list", "-o", "csv").splitlines()[0].startswith('"id","title",')
    assert film_terminal.out("runs", "show", run).splitlines()[:2] == ["Film: storm", f"film  {run}  running"]
    assert film_terminal.json("runs", "show", run)["run"]["title"] == "Film: storm"


def test_a_run_is_found_by_a_part_of_its_title(film_terminal: Terminal) -> None:
    storm = film_terminal.start("-i", "title=A storm")
    calm = film_terminal.start("-i", "title=Calm")
    shown = film_terminal.run("runs", "show", "STORM")
    assert f"film  {storm}" in shown.stdout
    assert shown.stderr == f"run {storm}: Film: A storm\n"
    several = film_terminal.run("runs", "cancel", "film")
    assert several.returncode == 2
    assert storm in several.stderr
    assert calm in several.stderr
    assert film_terminal.json("runs", "cancel", "calm") == {"run": calm, "state": "cancelled"}
    assert film_terminal.run("runs", "show", "thunder").returncode == 3


def test_an_id_takes_precedence_over_a_title(film_terminal: Terminal) -> None:
    first = film_terminal.start("-i", "title=x")
    film_terminal.start("-i", f"title={first}")
    shown = film_terminal.run("runs", "show", first)
    assert f"film  {first}" in shown.stdout
    assert shown.stderr == ""


def test_reviews_and_stuck_runs_are_listed_with_titles(terminal: Terminal) -> None:
    prepare(terminal, titled.start_until_review)
    assert "News: tea" in terminal.out("reviews", "list")
    assert terminal.json("reviews", "list")[0]["run_title"] == "News: tea"
    prepare(terminal, mark_stuck)
    assert "News: milk" in terminal.out("runs", "stuck")
    assert terminal.json("runs", "stuck")[0]["run_title"] == "News: milk"


def test_a_hostile_title_cannot_inject_terminal_control_sequences(film_terminal: Terminal) -> None:
    run = film_terminal.start("-i", f"title={titled.HOSTILE}")
    prepare(film_terminal, lambda sandbox: titled.start_until_review(sandbox, titled.HOSTILE))
    for command in (["runs", "list"], ["runs", "show", run], ["reviews", "list"], ["runs", "show", "Film: <b>Bold"]):
        ended = film_terminal.run(*command)
        assert ended.returncode == 0, ended.stderr
        printed = ended.stdout + ended.stderr
        assert "<b>Bold</b>" in printed
        assert not set(printed) & set("\x1b\u202e\x07")
