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

from retoma import App, Settings
from retoma.records import Review
from retoma.reviews import Decision
from retoma.store.database import Database
from retoma.testing import Sandbox
from tests.cli.terminal import Terminal
from tests.server import pictures
from tests.server.articles import app

T = TypeVar("T")


class Keyboard(io.StringIO):
    """A terminal at which a person has typed this."""

    def isatty(self) -> bool:
        return True


class ReviewTerminal(Terminal):
    """A shell next to an application with reviews."""

    def work(self) -> None:
        """Run all that is ready now."""
        asyncio.run(self._in_sandbox(_work))

    def start_until_review(self, topic: str = "tea") -> str:
        """The open review of a run that has come to it."""
        return str(asyncio.run(self._in_sandbox(lambda sandbox: _start_until_review(sandbox, topic))).id)

    def run_to_completion(self) -> str:
        """A run with both decisions taken."""
        return str(asyncio.run(self._in_sandbox(_run_to_completion)))

    def get_open_review(self, run: str) -> str:
        (review,) = self.json("reviews", "list", "--run", run)
        return str(review["id"])

    def start_until_reviews_of_items(self, pipeline: str = "album") -> tuple[Review, Review]:
        return asyncio.run(
            self._in_sandbox(lambda sandbox: pictures.start_until_reviews(sandbox, pipeline), pictures.app)
        )

    def approve_and_end(self, review: Review) -> str:
        return str(
            asyncio.run(self._in_sandbox(lambda sandbox: pictures.approve_and_end(sandbox, review), pictures.app))
        )

    async def _in_sandbox(self, action: Callable[[Sandbox], Awaitable[T]], application: App = app) -> T:
        async with await Database.open(Settings(database_url=self.variables["RETOMA_DATABASE_URL"])) as database:
            sandbox = Sandbox(application, database)
            try:
                return await action(sandbox)
            finally:
                await sandbox.client.close()


async def _work(sandbox: Sandbox) -> int:
    return await sandbox.work(advance_clock=False)


async def _start_until_review(sandbox: Sandbox, topic: str = "tea") -> Review:
    started = await sandbox.client.start("article", {"topic": topic})
    await _work(sandbox)
    (review,) = await sandbox.client.reviews.list(run=started.id)
    return review


async def _run_to_completion(sandbox: Sandbox) -> UUID:
    run = (await _start_until_review(sandbox)).run
    for decision in (Decision("approve", by="ana"), Decision("approve", by="ana", value={"title": 0})):
        (review,) = await sandbox.client.reviews.list(run=run)
        await sandbox.client.reviews.decide(review.id, decision)
        await _work(sandbox)
    return run


@pytest.fixture
def review_terminal(terminal: Terminal) -> ReviewTerminal:
    (terminal.folder / "article.py").write_text("from tests.server.articles import app\n")
    return ReviewTerminal(terminal.folder, terminal.variables | {"RETOMA_APP": "article.py:app"})


def test_reviews_are_listed_for_people_and_programs(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    listed = review_terminal.out("reviews", "list")
    assert ("good_outline" in listed, " tea " in listed) == (True, True)
    (line,) = review_terminal.out("reviews", "list", "-o", "jsonl").splitlines()
    (row,) = csv.DictReader(io.StringIO(review_terminal.out("reviews", "list", "-o", "csv")))
    assert json.loads(line)["id"] == row["id"] == review
    assert review_terminal.json("reviews", "list", "--step", "choice") == []
    assert review_terminal.run("reviews", "list", "--state", "approved").stderr == "no matching reviews\n"


def test_a_review_is_found_by_a_unique_prefix(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    shown = review_terminal.out("reviews", "show", review[:8].upper())
    assert '"calm outline of tea"' in shown
    assert "can be sent back to  outline, facts (sent back: 0 of at most 2)" in shown
    assert review_terminal.json("reviews", "show", review)["history"][0]["data"]["what"] == "opened"
    missing = review_terminal.run("reviews", "show", "no id")
    assert (missing.returncode, missing.stderr) == (3, "Error: review 'no id' not found\n")


def test_a_run_continues_with_the_approved_result(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    run = review_terminal.json("reviews", "show", review)["run"]
    (decided,) = review_terminal.json("reviews", "approve", review, "--value", '"mine"', "--by", "ana")
    assert (decided["state"], decided["decided_by"], decided["via"]) == ("approved", "ana", "cli")
    review_terminal.work()
    form = review_terminal.get_open_review(run)
    assert review_terminal.run("reviews", "approve", form).returncode == 2
    review_terminal.out("reviews", "approve", form, "--value", '{"title": 1}')
    review_terminal.work()
    assert review_terminal.json("runs", "show", run)["results"]["page"] == "mine?"


def test_work_is_sent_back_and_the_new_result_differs(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    run = review_terminal.json("reviews", "show", review)["run"]
    review_terminal.out("reviews", "send-back", review, "--notes", "shorter", "--to", "outline")
    review_terminal.work()
    assert review_terminal.json("reviews", "show", review_terminal.get_open_review(run))["times_sent_back"] == 1
    output = review_terminal.out("runs", "diff", run, "outline")
    assert output.splitlines()[:2] == ["--- revision 1", "+++ revision 2"]
    assert '-"calm outline of tea"\n+"calm outline of tea, shorter"' in output
    assert review_terminal.out("runs", "diff", run, "outline", "2", "1").startswith("--- revision 2")
    assert review_terminal.run("runs", "diff", run, "outline", "1", "7").returncode == 3
    assert review_terminal.run("runs", "diff", run, "outline", "1").returncode == 2
    assert (
        "has no step 'outlne'; it has 'facts', 'outline'" in review_terminal.run("runs", "diff", run, "outlne").stderr
    )
    same = review_terminal.run("runs", "diff", run, "outline", "1", "1")
    assert (same.stdout, same.stderr) == ("", "revisions 1 and 1 are identical\n")


def test_work_is_sent_back_with_the_fields_of_its_feedback_form(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    run = review_terminal.json("reviews", "show", review)["run"]
    back = ("reviews", "send-back", review, "--notes", "warmer", "--extra")
    assert review_terminal.run(*back, '["warm"]').returncode == 2
    assert review_terminal.run(*back, '{"tone": 1}').returncode == 2
    review_terminal.out(*back, '{"tone": "warm"}')
    review_terminal.work()
    assert (
        review_terminal.json("reviews", "show", review_terminal.get_open_review(run))["subjects"][0]["value"]
        == "warm outline of tea, warmer"
    )


def test_feedback_that_a_step_cannot_follow_is_rejected_with_the_reason(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    refused = review_terminal.run("reviews", "send-back", review, "--notes", "add music", "--to", "outline")
    assert (refused.returncode, "an outline has no music: ask for other words" in refused.stderr) == (2, True)
    assert review_terminal.json("reviews", "show", review)["state"] == "open"


def test_work_is_sent_back_with_timed_comments(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    (back,) = review_terminal.json(
        "reviews", "send-back", review, "--comment", "0:12 too loud", "--comment", "1:23-1:40 cut"
    )
    assert [(each["text"], each["at"], each["to"]) for each in back["feedback"]["comments"]] == [
        ("too loud", 12, None),
        ("cut", 83, 100),
    ]


def test_others_see_who_is_viewing_a_review(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    for by in ("ana", "rui"):
        (claimed,) = review_terminal.json("reviews", "claim", review, "--by", by)
        assert claimed["claimed_by"] == "ana"
    assert "ana" in review_terminal.out("reviews", "claim", review, "--by", "rui")


def test_the_second_reviewer_sees_who_decided_first(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    review_terminal.out("reviews", "reject", review, "--notes", "no", "--by", "rui")
    late = review_terminal.run("reviews", "approve", review)
    assert (late.returncode, late.stderr) == (4, f"Error: review {review} was already rejected by rui\n")


@pytest.mark.parametrize(
    ("pipeline", "language", "question"),
    [
        ("album", "en_GB", "Rejects this item; the other items continue. Reject? [y/N]:"),
        ("passport", "en_GB", "Ends the run. Reject? [y/N]:"),
        ("passport", "pt_BR", "Encerra a execução. Rejeitar? [y/N]:"),
    ],
)
def test_a_person_at_a_terminal_reads_what_a_rejection_does_before_it_happens(
    review_terminal: ReviewTerminal, monkeypatch: pytest.MonkeyPatch, pipeline: str, language: str, question: str
) -> None:
    cup, _ = review_terminal.start_until_reviews_of_items(pipeline)
    review_terminal.variables["LC_ALL"] = language
    command = ("reviews", "reject", str(cup.id), "--notes", "blurred")
    monkeypatch.setattr("sys.stdin", Keyboard("n\n"))
    asked = review_terminal.run(*command)
    assert (asked.returncode, asked.stderr.startswith(question)) == (1, True)
    assert review_terminal.json("reviews", "show", str(cup.id))["state"] == "open"
    monkeypatch.setattr("sys.stdin", Keyboard("y\n"))
    assert review_terminal.run(*command).returncode == 0
    assert review_terminal.json("reviews", "show", str(cup.id))["state"] == "rejected"


def test_a_rejection_is_not_confirmed_with_yes_or_without_a_terminal(
    review_terminal: ReviewTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    cup, leaf = review_terminal.start_until_reviews_of_items()
    assert review_terminal.run("reviews", "reject", str(cup.id), "--notes", "blurred").returncode == 0
    monkeypatch.setattr("sys.stdin", Keyboard(""))
    assert review_terminal.run("reviews", "reject", str(leaf.id), "--notes", "blurred", "--yes").returncode == 0


def test_a_run_shows_who_rejected_an_item_and_why(review_terminal: ReviewTerminal) -> None:
    cup, leaf = review_terminal.start_until_reviews_of_items()
    assert "a rejection  Rejects this item; the other items continue." in review_terminal.out(
        "reviews", "show", str(cup.id)
    )
    review_terminal.out("reviews", "reject", str(cup.id), "--notes", "blurred", "--by", "rui")
    run = review_terminal.approve_and_end(leaf)
    assert review_terminal.state(run) == "completed_with_errors"
    assert "good_picture of cup: REJECTED: rejected by rui: blurred" in review_terminal.out("runs", "show", run)


def test_a_decision_is_undone_and_a_review_is_assigned(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    review_terminal.out("reviews", "approve", review, "--undo", "10m")
    (undone,) = review_terminal.json("reviews", "undo", review)
    assert undone["state"] == "open"
    (assigned,) = review_terminal.json("reviews", "assign", review, "ana")
    assert assigned["assignee"] == "ana"
    review_terminal.out("reviews", "approve", review)
    assert review_terminal.run("reviews", "undo", review).returncode == 4


def test_all_open_reviews_of_a_step_are_approved_with_a_line_for_each(review_terminal: ReviewTerminal) -> None:
    made = {review_terminal.start_until_review(), review_terminal.start_until_review()}
    lines = review_terminal.out(
        "reviews", "approve", "--all-open", "--step", "good_outline", "-o", "jsonl"
    ).splitlines()
    assert {json.loads(line)["review"] for line in lines} == made
    assert {json.loads(line)["state"] for line in lines} == {"approved"}
    review_terminal.work()
    refused = review_terminal.run("reviews", "approve", "--all-open", "--step", "choice")
    assert refused.returncode == 1
    assert refused.stdout.count("title") == 2
    assert review_terminal.run("reviews", "approve", "--all-open").returncode == 2


def test_named_steps_are_rerun(review_terminal: ReviewTerminal) -> None:
    run = review_terminal.run_to_completion()
    assert review_terminal.json("runs", "rerun", run, "outline", "--reason", "news") == {
        "run": run,
        "revision": 2,
        "jobs": 1,
    }
    review_terminal.work()
    assert review_terminal.json("runs", "rerun", run, "--group", "texts")["jobs"] == 2
    review_terminal.work()
    assert review_terminal.json("runs", "rerun", run, "--from-step", "page")["revision"] == 4
    review_terminal.work()
    assert review_terminal.out("runs", "rerun", run, "--stale") == "nothing to rerun\n"
    for wrong in (["--no-downstream"], ["page", "--step", "page"]):
        assert review_terminal.run("runs", "rerun", run, *wrong).returncode == 2
    assert review_terminal.run("runs", "rerun", run, "pages").returncode == 3


def test_an_edit_reruns_dependents_or_leaves_them_stale(review_terminal: ReviewTerminal) -> None:
    run = review_terminal.run_to_completion()
    (review_terminal.folder / "titles.json").write_text('["mine", "other"]')
    assert review_terminal.json("runs", "edit", run, "titles", "@titles.json", "--no-downstream") == {
        "run": run,
        "revision": 2,
        "jobs": 0,
    }
    shown = review_terminal.out("runs", "show", run)
    assert f"stale    choice, page; rerun with `retoma runs rerun {run} --stale`\n" in shown
    assert {"step": "page", "item": ""} in review_terminal.json("runs", "show", run)["stale"]
    assert review_terminal.json("runs", "edit", run, "choice", '{"title": 1}')["jobs"] > 0
    review_terminal.work()
    after = review_terminal.json("runs", "show", run)
    assert (after["results"]["page"], after["stale"]) == ("other", [])
    for value, code in (("[1]", 2), ("no json", 2)):
        assert review_terminal.run("runs", "edit", run, "titles", value).returncode == code
    assert review_terminal.run("runs", "edit", run, "title", "[]").returncode == 3


def test_a_result_is_edited_while_its_run_waits_for_a_person(review_terminal: ReviewTerminal) -> None:
    run = review_terminal.json("reviews", "show", review_terminal.start_until_review())["run"]
    review_terminal.out("runs", "edit", run, "outline", '"mine"')
    review_terminal.work()
    assert (
        review_terminal.json("reviews", "show", review_terminal.get_open_review(run))["subjects"][0]["value"] == "mine"
    )


def test_a_fork_is_another_run_with_another_input(review_terminal: ReviewTerminal) -> None:
    run = review_terminal.run_to_completion()
    forked = review_terminal.json("runs", "fork", run, "tone=loud")
    assert forked["forked_from"] == run
    assert f"revision 2, forked from “tea” ({run})" in review_terminal.out("runs", "show", forked["run"])
    review_terminal.work()
    assert review_terminal.json("runs", "show", forked["run"])["results"]["outline"] == "loud outline of tea"
    assert review_terminal.run("runs", "fork", run, "tone").returncode == 2


def test_user_text_cannot_inject_terminal_control_sequences(review_terminal: ReviewTerminal) -> None:
    hostile = "\x1b[31m\u202eevil[red]"
    review = review_terminal.start_until_review(hostile)
    review_terminal.out("reviews", "assign", review, hostile)
    run = review_terminal.json("reviews", "show", review)["run"]
    review_terminal.out("reviews", "send-back", review, "--notes", hostile, "--by", hostile)
    review_terminal.work()
    for command in (
        ["reviews", "list", "--state", "sent_back"],
        ["reviews", "show", review],
        ["runs", "diff", run, "outline"],
    ):
        printed = review_terminal.out(*command)
        assert "evil[red]" in printed
        assert not set(printed) & set("\x1b\u202e")


def test_a_decided_review_shows_its_comments_and_choices(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    run = review_terminal.json("reviews", "show", review)["run"]
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
    review_terminal.out("reviews", "send-back", review, *back)
    review_terminal.work()
    shown = review_terminal.out("reviews", "show", review)
    assert "sent back to  outline; only 2, 5\n" in shown
    assert all(each in shown for each in ('"tone": "warm"', '"text": "too low"', '"at": 12.0'))
    assert "louder; items: 2, 5" in review_terminal.out("reviews", "show", review_terminal.get_open_review(run))
    review_terminal.out("reviews", "approve", review_terminal.get_open_review(run))
    review_terminal.work()
    choice = review_terminal.get_open_review(run)
    review_terminal.out("reviews", "approve", choice, "--value", '{"title": 1}')
    assert 'approved value\n  {\n    "title": 1' in review_terminal.out("reviews", "show", choice)


def test_a_review_without_a_form_is_approved_without_the_application(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    del review_terminal.variables["RETOMA_APP"]
    assert review_terminal.json("reviews", "approve", review, "--by", "ana")[0]["state"] == "approved"
    review_terminal.work()
    (titled,) = review_terminal.json("reviews", "list")
    refused = review_terminal.run("reviews", "approve", str(titled["id"]))
    assert refused.returncode == 2
    assert "has a form" in refused.stderr
    assert "--app APP" in refused.stderr


def test_a_value_that_no_application_can_validate_is_rejected(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    del review_terminal.variables["RETOMA_APP"]
    refused = review_terminal.run("reviews", "approve", review, "--value", '"mine"')
    assert refused.returncode == 2
    assert "defines pipeline 'article'" in refused.stderr
    assert "--app APP" in refused.stderr
    all_open = review_terminal.run(
        "reviews", "approve", "--all-open", "--step", "good_outline", "--value", "7", "-o", "json"
    )
    assert all_open.returncode == 1
    assert "--app APP" in json.loads(all_open.stdout)[0]["error"]
    assert [each["id"] for each in review_terminal.json("reviews", "list")] == [review]
