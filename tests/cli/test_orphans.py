"""`retoma runs show`, `orphans` and `resolve-orphan`, for calls that may still be going on at a provider."""

from __future__ import annotations

from getpass import getuser

from tests.cli.terminal import Terminal

LOSING = """
from retoma import Context, Pipeline, Retry

film = Pipeline("film", retry=Retry(0))


def cancel_order(order):
    pass


def lose_answer():
    raise ConnectionError("the answer was lost")


@film.step
async def order(*, ctx: Context) -> None:
    await ctx.once("a book", lose_answer, cancel=cancel_order)
"""


def test_an_orphan_is_shown_and_resolved(terminal: Terminal) -> None:
    (terminal.folder / "film.py").write_text(LOSING)
    with terminal.worker():
        run = terminal.run("start", "film", "film.py", "--wait").stdout.split()[0]
    assert "order, revision 1, a book, begun" in terminal.out("runs", "show", run)
    resolve = ("runs", "resolve-orphan", run, "order", "a book")
    assert terminal.out(*resolve, "nothing_found") == f"nothing_found by {getuser()}\n"
    assert terminal.json(*resolve, "nothing_found")["resolution"] == "nothing_found"
    refused = terminal.run(*resolve, "cancelled_by_hand")
    assert (refused.returncode, f"{getuser()} resolved it as nothing_found" in refused.stderr) == (4, True)
    assert terminal.run(*resolve, "lost").returncode == 2
    assert terminal.run("runs", "resolve-orphan", run, "order", "other", "nothing_found").returncode == 3
    assert f"nothing_found by {getuser()}" in terminal.out("runs", "show", run)


def test_the_orphans_of_all_runs_are_listed_until_they_are_resolved(terminal: Terminal) -> None:
    (terminal.folder / "film.py").write_text(LOSING)
    with terminal.worker():
        first, second = (terminal.run("start", "film", "film.py", "--wait").stdout.split()[0] for _ in range(2))
    assert [orphan["run"] for orphan in terminal.json("runs", "orphans")] == [first, second]
    page = terminal.run("runs", "orphans", "--limit", "1")
    assert (first in page.stdout, second in page.stdout, "a book" in page.stdout) == (True, False, True)
    (hint,) = page.stderr.splitlines()
    assert second in terminal.out("runs", "orphans", *hint.removeprefix("for newer orphans: ").split())
    assert terminal.json("runs", "orphans", "--tenant", "other") == []
    for run in (first, second):
        terminal.out("runs", "resolve-orphan", run, "order", "a book", "nothing_found")
    assert terminal.run("runs", "orphans").stderr == "no orphans\n"
