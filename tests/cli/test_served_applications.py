"""Commands that need the application find the one that a running server of the same RETOMA_HOME serves."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retoma.cli.application import load
from retoma.cli.served_applications import load_served, record
from retoma.settings import Settings
from tests.cli.terminal import Process, Terminal
from tests.cli.test_reviews import ReviewTerminal, review_terminal

__all__ = ["review_terminal"]
HOME = "home"
REPOSITORY = str(Path(__file__).parents[2])


@contextmanager
def serve_application(review_terminal: ReviewTerminal) -> Iterator[Process]:
    """Let a server know the application, and no other command."""
    with review_terminal.process("serve", "--port", "0", PYTHONPATH=REPOSITORY) as server:
        server.wait_for_output("server_ready")
        del review_terminal.variables["RETOMA_APP"]
        yield server


def test_a_form_is_approved_while_the_server_that_defines_it_is_running(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    with serve_application(review_terminal):
        (approved,) = review_terminal.json("reviews", "approve", review, "--value", '"mine"')
        assert approved["state"] == "approved"
        review_terminal.work()
        (form,) = review_terminal.json("reviews", "list")
        refused = review_terminal.run("reviews", "approve", str(form["id"]), "--value", '{"title": "none"}')
        assert refused.returncode == 2
        (chosen,) = review_terminal.json("reviews", "approve", str(form["id"]), "--value", '{"title": 1}')
    assert chosen["state"] == "approved"


def test_all_open_forms_are_validated_while_the_server_that_defines_them_is_running(
    review_terminal: ReviewTerminal,
) -> None:
    review_terminal.start_until_review()
    with serve_application(review_terminal):
        outcomes = review_terminal.json(
            "reviews", "approve", "--all-open", "--step", "good_outline", "--value", '"mine"'
        )
    assert [each["state"] for each in outcomes] == ["approved"]


def test_work_is_sent_back_while_the_server_that_defines_its_steps_is_running(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    with serve_application(review_terminal):
        refused = review_terminal.run("reviews", "send-back", review, "--notes", "warmer", "--extra", '{"tone": 1}')
        assert refused.returncode == 2
        (back,) = review_terminal.json("reviews", "send-back", review, "--notes", "warmer")
    assert back["state"] == "sent_back"


def test_results_are_edited_and_runs_started_while_a_server_is_running(review_terminal: ReviewTerminal) -> None:
    run = review_terminal.run_to_completion()
    with serve_application(review_terminal):
        assert "not a valid result for" in review_terminal.run("runs", "edit", run, "outline", "7").stderr
        assert review_terminal.json("runs", "edit", run, "outline", '"mine"')["revision"] == 2
        assert review_terminal.json("start", "article", "-i", "topic=tea")["created"]
        assert review_terminal.run("start", "other").returncode == 2


def test_no_served_application_is_found_once_the_server_has_stopped(review_terminal: ReviewTerminal) -> None:
    review = review_terminal.start_until_review()
    with serve_application(review_terminal) as server:
        os.kill(server.pid, signal.SIGKILL)
        server.wait_for_exit()
    assert list((review_terminal.folder / HOME / "servers").iterdir())
    refused = review_terminal.run("reviews", "send-back", review, "--notes", "warmer")
    assert refused.returncode == 2
    assert "no application given" in refused.stderr
    assert not list((review_terminal.folder / HOME / "servers").iterdir())


def test_a_stopped_server_leaves_no_record(terminal: Terminal) -> None:
    with terminal.process("serve", "film.py", "--port", "0") as server:
        server.wait_for_output("server_ready")
        (recorded,) = (terminal.folder / HOME / "servers").iterdir()
        assert recorded.stat().st_mode & 0o077 == 0
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait_for_exit() == 0
    assert not recorded.exists()


def test_dev_registers_its_application_for_commands_in_another_folder(terminal: Terminal, tmp_path: Path) -> None:
    elsewhere = Terminal(tmp_path / "elsewhere", terminal.variables | {"RETOMA_HOME": str(terminal.folder / HOME)})
    elsewhere.folder.mkdir()
    with terminal.process("dev", "film.py") as dev:
        dev.wait_for_output("worker_ready")
        assert elsewhere.json("start", "film")["created"]


def test_an_ambiguous_pipeline_of_two_served_applications_is_not_guessed(terminal: Terminal) -> None:
    shutil.copy(terminal.folder / "film.py", terminal.folder / "other.py")
    with (
        terminal.process("serve", "film.py", "--port", "0") as one,
        terminal.process("serve", "other.py", "--port", "0") as other,
    ):
        one.wait_for_output("server_ready")
        other.wait_for_output("server_ready")
        refused = terminal.run("start", "film")
    assert refused.returncode == 2
    assert "film.py, other.py" in refused.stderr


def test_an_application_registered_by_another_user_is_not_loaded(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=terminal.folder / HOME)
    film = load(str(terminal.folder / "film.py"), settings)
    with record(settings.home, str(terminal.folder / "film.py"), film):
        assert load_served(settings, ["film"]) is not None
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert load_served(settings, ["film"]) is None
