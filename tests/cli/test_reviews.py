"""`retoma reviews ...`, and `retoma runs rerun`, `edit`, `fork` and `diff`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import pytest

from retoma import Decision, Settings
from retoma.records import Review
from retoma.store.database import Database
from retoma.testing import Sandbox
from tests.cli.terminal import Terminal
from tests.server.articles import app

T = TypeVar("T")


class Desk(Terminal):
    """A shell beside an application that asks people."""

    def work(self) -> None:
        """Run all that is ready now."""
        asyncio.run(self._in_sandbox(_work))

    def asked(self, topic: str = "tea") -> str:
        """The open review of a run that has come to it."""
        return str(asyncio.run(self._in_sandbox(lambda sandbox: _asked(sandbox, topic))).id)

    def completed(self) -> str:
        """A run with both decisions taken."""
        return str(asyncio.run(self._in_sandbox(_completed)))

    def open(self, run: str) -> str:
        (review,) = self.json("reviews", "list", "--run", run)
        return str(review["id"])

    async def _in_sandbox(self, act: Callable[[Sandbox], Awaitable[T]]) -> T:
        async with await Database.open(Settings(database_url=self.variables["RETOMA_DATABASE_URL"])) as database:
            sandbox = Sandbox(app, database)
            try:
                return await act(sandbox)
            finally:
                await sandbox.client.close()


async def _work(sandbox: Sandbox) -> int:
    return await sandbox.work(until_later=False)


async def _asked(sandbox: Sandbox, topic: str = "tea") -> Review:
    started = await sandbox.client.start("article", {"topic": topic})
    await _work(sandbox)
    (review,) = await sandbox.client.reviews(run=started.id)
    return review


async def _completed(sandbox: Sandbox) -> UUID:
    run = (await _asked(sandbox)).run
    for decision in (Decision("approve", by="ana"), Decision("approve", by="ana", value={"title": 0})):
        (review,) = await sandbox.client.reviews(run=run)
        await sandbox.client.decide(review.id, decision)
        await _work(sandbox)
    return run


@pytest.fixture
def desk(terminal: Terminal) -> Desk:
    (terminal.folder / "article.py").write_text("from tests.server.articles import app\n")
    return Desk(terminal.folder, terminal.variables | {"RETOMA_APP": "article.py:app"})


def test_reviews_are_listed_for_people_and_programs(desk: Desk) -> None:
    review = desk.asked()
    listed = desk.out("reviews", "list")
    assert ("good_outline" in listed, " tea " in listed) == (True, True)
    (line,) = desk.out("reviews", "list", "-o", "jsonl").splitlines()
    (row,) = csv.DictReader(io.StringIO(desk.out("reviews", "list", "-o", "csv")))
    assert json.loads(line)["id"] == row["id"] == review
    assert desk.json("reviews", "list", "--step", "choice") == []
    assert desk.run("reviews", "list", "--state", "approved").stderr == "nothing waits for a person\n"


def test_a_review_is_found_by_a_beginning_that_is_unique(desk: Desk) -> None:
    review = desk.asked()
    shown = desk.out("reviews", "show", review[:8].upper())
    assert '"calm outline of tea"' in shown
    assert "may go back to  outline, facts; went back 0 of 2 times" in shown
    assert desk.json("reviews", "show", review)["history"][0]["data"]["what"] == "opened"
    missing = desk.run("reviews", "show", "no id")
    assert (missing.returncode, missing.stderr) == (3, "Error: there is no review 'no id'\n")


def test_a_run_goes_on_with_what_a_person_approves(desk: Desk) -> None:
    review = desk.asked()
    run = desk.json("reviews", "show", review)["run"]
    (decided,) = desk.json("reviews", "approve", review, "--value", '"mine"', "--by", "ana")
    assert (decided["state"], decided["decided_by"], decided["via"]) == ("approved", "ana", "cli")
    desk.work()
    form = desk.open(run)
    assert desk.run("reviews", "approve", form).returncode == 2
    desk.out("reviews", "approve", form, "--value", '{"title": 1}')
    desk.work()
    assert desk.json("runs", "show", run)["results"]["page"] == "mine?"


def test_work_goes_back_and_differs_from_what_it_was(desk: Desk) -> None:
    review = desk.asked()
    run = desk.json("reviews", "show", review)["run"]
    desk.out("reviews", "send-back", review, "--notes", "shorter", "--to", "outline")
    desk.work()
    assert desk.json("reviews", "show", desk.open(run))["sent_back"] == 1
    said = desk.out("runs", "diff", run, "outline")
    assert said.splitlines()[:2] == ["--- revision 1", "+++ revision 2"]
    assert '-"calm outline of tea"\n+"calm outline of tea, shorter"' in said
    assert desk.out("runs", "diff", run, "outline", "2", "1").startswith("--- revision 2")
    assert desk.run("runs", "diff", run, "outline", "1", "7").returncode == 3
    assert desk.run("runs", "diff", run, "outline", "1").returncode == 2
    assert "has no step 'outlne'; it has 'facts', 'outline'" in desk.run("runs", "diff", run, "outlne").stderr
    same = desk.run("runs", "diff", run, "outline", "1", "1")
    assert (same.stdout, same.stderr) == ("", "revisions 1 and 1 are the same\n")


def test_work_goes_back_with_what_its_feedback_form_asks(desk: Desk) -> None:
    review = desk.asked()
    run = desk.json("reviews", "show", review)["run"]
    back = ("reviews", "send-back", review, "--notes", "warmer", "--extra")
    assert desk.run(*back, '["warm"]').returncode == 2
    assert desk.run(*back, '{"tone": 1}').returncode == 2
    desk.out(*back, '{"tone": "warm"}')
    desk.work()
    assert desk.json("reviews", "show", desk.open(run))["subjects"][0]["value"] == "warm outline of tea, warmer"


def test_feedback_that_a_step_cannot_follow_is_refused_with_the_reason(desk: Desk) -> None:
    review = desk.asked()
    refused = desk.run("reviews", "send-back", review, "--notes", "add music", "--to", "outline")
    assert (refused.returncode, "an outline has no music: ask for other words" in refused.stderr) == (2, True)
    assert desk.json("reviews", "show", review)["state"] == "open"


def test_work_goes_back_with_comments_about_moments(desk: Desk) -> None:
    review = desk.asked()
    (back,) = desk.json("reviews", "send-back", review, "--comment", "0:12 too loud", "--comment", "1:23-1:40 cut")
    assert [(each["text"], each["at"], each["to"]) for each in back["feedback"]["comments"]] == [
        ("too loud", 12, None),
        ("cut", 83, 100),
    ]


def test_others_see_who_looks_at_a_review(desk: Desk) -> None:
    review = desk.asked()
    for by in ("ana", "rui"):
        (claimed,) = desk.json("reviews", "claim", review, "--by", by)
        assert claimed["claimed_by"] == "ana"
    assert "ana" in desk.out("reviews", "claim", review, "--by", "rui")


def test_who_comes_second_is_told_who_was_first(desk: Desk) -> None:
    review = desk.asked()
    desk.out("reviews", "reject", review, "--notes", "no", "--by", "rui")
    late = desk.run("reviews", "approve", review)
    assert (late.returncode, late.stderr) == (4, f"Error: review {review} was rejected by rui already\n")


def test_a_decision_is_undone_and_a_review_assigned(desk: Desk) -> None:
    review = desk.asked()
    desk.out("reviews", "approve", review, "--undo", "10m")
    (undone,) = desk.json("reviews", "undo", review)
    assert undone["state"] == "open"
    (assigned,) = desk.json("reviews", "assign", review, "ana")
    assert assigned["assignee"] == "ana"
    desk.out("reviews", "approve", review)
    assert desk.run("reviews", "undo", review).returncode == 4


def test_all_that_is_open_of_a_step_is_approved_with_a_line_for_each(desk: Desk) -> None:
    made = {desk.asked(), desk.asked()}
    lines = desk.out("reviews", "approve", "--all-open", "--step", "good_outline", "-o", "jsonl").splitlines()
    assert {json.loads(line)["review"] for line in lines} == made
    assert {json.loads(line)["state"] for line in lines} == {"approved"}
    desk.work()
    refused = desk.run("reviews", "approve", "--all-open", "--step", "choice")
    assert refused.returncode == 1
    assert refused.stdout.count("title") == 2
    assert desk.run("reviews", "approve", "--all-open").returncode == 2


def test_named_work_is_made_anew(desk: Desk) -> None:
    run = desk.completed()
    assert desk.json("runs", "rerun", run, "outline", "--why", "news") == {"run": run, "revision": 2, "jobs": 1}
    desk.work()
    assert desk.json("runs", "rerun", run, "--group", "texts")["jobs"] == 2
    desk.work()
    assert desk.json("runs", "rerun", run, "--from", "page")["revision"] == 4
    desk.work()
    assert desk.out("runs", "rerun", run, "--stale") == "nothing to be made anew\n"
    for wrong in (["--alone"], ["page", "--step", "page"]):
        assert desk.run("runs", "rerun", run, *wrong).returncode == 2
    assert desk.run("runs", "rerun", run, "pages").returncode == 3


def test_a_result_is_put_right_and_what_depends_on_it_made_anew_or_left_stale(desk: Desk) -> None:
    run = desk.completed()
    (desk.folder / "titles.json").write_text('["mine", "other"]')
    assert desk.json("runs", "edit", run, "titles", "@titles.json", "--stay") == {"run": run, "revision": 2, "jobs": 0}
    shown = desk.out("runs", "show", run)
    assert f"stale    choice, page; `retoma runs rerun {run} --stale` makes it anew\n" in shown
    assert {"step": "page", "item": ""} in desk.json("runs", "show", run)["stale"]
    assert desk.json("runs", "edit", run, "choice", '{"title": 1}')["jobs"] > 0
    desk.work()
    after = desk.json("runs", "show", run)
    assert (after["results"]["page"], after["stale"]) == ("other", [])
    for value, code in (("[1]", 2), ("no json", 2)):
        assert desk.run("runs", "edit", run, "titles", value).returncode == code
    assert desk.run("runs", "edit", run, "title", "[]").returncode == 3


def test_a_result_is_put_right_while_its_run_waits_for_a_person(desk: Desk) -> None:
    run = desk.json("reviews", "show", desk.asked())["run"]
    desk.out("runs", "edit", run, "outline", '"mine"')
    desk.work()
    assert desk.json("reviews", "show", desk.open(run))["subjects"][0]["value"] == "mine"


def test_a_fork_is_another_run_with_another_input(desk: Desk) -> None:
    run = desk.completed()
    forked = desk.json("runs", "fork", run, "tone=loud")
    assert forked["forked_from"] == run
    assert f"revision 2, forked from {run}" in desk.out("runs", "show", forked["run"])
    desk.work()
    assert desk.json("runs", "show", forked["run"])["results"]["outline"] == "loud outline of tea"
    assert desk.run("runs", "fork", run, "tone").returncode == 2


def test_what_users_wrote_cannot_act_on_the_terminal(desk: Desk) -> None:
    hostile = "\x1b[31m\u202eevil[red]"
    review = desk.asked(hostile)
    desk.out("reviews", "assign", review, hostile)
    run = desk.json("reviews", "show", review)["run"]
    desk.out("reviews", "send-back", review, "--notes", hostile, "--by", hostile)
    desk.work()
    for command in (
        ["reviews", "list", "--state", "sent_back"],
        ["reviews", "show", review],
        ["runs", "diff", run, "outline"],
    ):
        printed = desk.out(*command)
        assert "evil[red]" in printed
        assert not set(printed) & set("\x1b\u202e")


def test_a_review_that_was_decided_shows_what_was_said_and_chosen(desk: Desk) -> None:
    review = desk.asked()
    run = desk.json("reviews", "show", review)["run"]
    back = (
        "--notes",
        "louder",
        "--item",
        "2",
        "--item",
        "5",
        "--comment",
        "0:12 too low",
        "--extra",
        '{"tone": "warm"}',
    )
    desk.out("reviews", "send-back", review, *back)
    desk.work()
    shown = desk.out("reviews", "show", review)
    assert "went back to  outline; only 2, 5\n" in shown
    assert all(each in shown for each in ('"tone": "warm"', '"text": "too low"', '"at": 12.0'))
    assert "louder; items: 2, 5" in desk.out("reviews", "show", desk.open(run))
    desk.out("reviews", "approve", desk.open(run))
    desk.work()
    choice = desk.open(run)
    desk.out("reviews", "approve", choice, "--value", '{"title": 1}')
    assert 'approved was\n  {\n    "title": 1' in desk.out("reviews", "show", choice)


def test_what_needs_no_form_is_approved_without_the_application(desk: Desk) -> None:
    review = desk.asked()
    del desk.variables["RETOMA_APP"]
    assert desk.json("reviews", "approve", review, "--by", "ana")[0]["state"] == "approved"
    desk.work()
    (titled,) = desk.json("reviews", "list")
    refused = desk.run("reviews", "approve", str(titled["id"]))
    assert refused.returncode == 2
    assert "has a form" in refused.stderr
    assert "--app APP" in refused.stderr


def test_a_value_that_no_application_can_check_is_refused(desk: Desk) -> None:
    review = desk.asked()
    del desk.variables["RETOMA_APP"]
    refused = desk.run("reviews", "approve", review, "--value", '"mine"')
    assert refused.returncode == 2
    assert "defines pipeline 'article'" in refused.stderr
    assert "--app APP" in refused.stderr
    all_open = desk.run("reviews", "approve", "--all-open", "--step", "good_outline", "--value", "7", "-o", "json")
    assert all_open.returncode == 1
    assert "--app APP" in json.loads(all_open.stdout)[0]["error"]
    assert [each["id"] for each in desk.json("reviews", "list")] == [review]
