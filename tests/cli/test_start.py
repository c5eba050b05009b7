"""`retoma start`."""

from __future__ import annotations

import json
import re

import pytest
import typer
from pydantic import BaseModel

from retoma.cli.inputs import read_fields
from tests.cli.terminal import Terminal


def test_a_started_run_has_the_printed_id(terminal: Terminal) -> None:
    run = terminal.start("-i", "title=storm", "--tenant", "my-channel")
    (listed,) = terminal.json("runs", "list")
    assert (listed["id"], listed["state"], listed["tenant"]) == (run, "running", "my-channel")
    assert listed["input"] == {"title": "storm", "scenes": 2}


def test_fields_are_parsed_by_the_input_model(terminal: Terminal) -> None:
    terminal.start("-i", "title=12", "-i", "scenes=3")
    assert terminal.json("runs", "list")[0]["input"] == {"title": "12", "scenes": 3}


def test_fields_override_the_input_from_a_file_or_stdin(terminal: Terminal) -> None:
    (terminal.folder / "brief.json").write_text('{"title": "from the file", "scenes": 5}')
    terminal.start("--input", "@brief.json", "-i", "scenes=1")
    terminal.out("start", "film", "film.py", "--input", "-", stdin='{"title": "from stdin"}')
    assert [run["input"]["title"] for run in terminal.json("runs", "list")] == ["from stdin", "from the file"]
    assert [run["input"]["scenes"] for run in terminal.json("runs", "list")] == [2, 1]


def test_waiting_returns_the_outcome(terminal: Terminal) -> None:
    with terminal.worker():
        good = terminal.run("start", "film", "film.py", "--wait")
        bad = terminal.run("start", "film", "film.py", "-i", "title=bad", "--wait", "-o", "json")
    assert good.returncode == 0
    assert "completed in" in good.stdout
    assert "cut: CALM 0 CALM 1" in good.stdout
    assert "film: 4/4" in good.stderr
    assert bad.returncode == 1
    outcome = json.loads(bad.stdout)
    assert outcome["state"] == "completed_with_errors"
    assert {error["item"] for error in outcome["errors"]} >= {"bad 0"}


def test_a_key_returns_the_same_run_and_rejects_another_input(terminal: Terminal) -> None:
    first = terminal.json("start", "film", "film.py", "--key", "order-812")
    again = terminal.json("start", "film", "film.py", "--key", "order-812")
    assert (first["run"], first["created"], again["created"]) == (again["run"], True, False)
    other = terminal.run("start", "film", "film.py", "--key", "order-812", "-i", "title=other")
    assert other.returncode == 4
    assert "belongs to run" in other.stderr


def test_a_run_may_be_scheduled(terminal: Terminal) -> None:
    run = terminal.start("--run-at", "+10m")
    shown = terminal.out("runs", "show", run)
    assert "pending" in shown
    assert "lines: delayed until" in shown


def test_invalid_inputs_are_reported_in_one_sentence_as_usage_errors(terminal: Terminal) -> None:
    for options, sentence in (
        (["-i", "scenes=many"], "scenes: Input should be a valid integer"),
        (["-i", "scene=3"], "-i: the input has no field 'scene'; did you mean 'scenes'?"),
        (["-i", "scenes"], "-i must be key=value, not 'scenes'"),
        (["--input", "[1]"], "--input must be a JSON object"),
        (["--input", "@nowhere.json"], "nowhere.json"),
        (["--run-at", "tomorrow"], "--run-at must be an ISO time such as 2030-01-31T08:00, or a delay such as +10m"),
    ):
        ended = terminal.run("start", "film", "film.py", *options)
        assert ended.returncode == 2, ended.stderr
        assert sentence in ended.stderr
        assert "Traceback" not in ended.stderr


def test_an_unknown_pipeline_is_not_found_and_the_nearest_name_is_suggested(terminal: Terminal) -> None:
    ended = terminal.run("start", "flim", "film.py")
    assert ended.returncode == 3
    assert ended.stderr == "Error: the application 'film' has no pipeline 'flim'; did you mean 'film'?\n"


def test_a_list_must_be_json_and_the_error_shows_how() -> None:
    class Menu(BaseModel):
        dishes: list[str]
        prices: dict[str, int] | None = None

    assert read_fields("-i", Menu, ['dishes=["a", "b"]', 'prices={"a": 1}']) == {
        "dishes": ["a", "b"],
        "prices": {"a": 1},
    }
    for field, example in (("dishes=a,b", """-i 'dishes=["a", "b"]'"""), ("prices=1:2", """-i 'prices={"a": "b"}'""")):
        with pytest.raises(typer.BadParameter, match=re.escape(f"must be JSON, such as {example}, not")):
            read_fields("-i", Menu, [field])
