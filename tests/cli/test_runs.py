"""`retoma runs ...`."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from retoma.cli.runs import _COLUMNS
from tests.cli.terminal import FILM, Terminal, wait_until


def test_listings_are_machine_readable(terminal: Terminal) -> None:
    runs = [terminal.start("-i", "title==1+1"), terminal.start()]
    lines = [json.loads(line) for line in terminal.out("runs", "list", "-o", "jsonl").splitlines()]
    rows = list(csv.DictReader(io.StringIO(terminal.out("runs", "list", "-o", "csv"))))
    assert [run["id"] for run in terminal.json("runs", "list")] == runs[::-1]
    assert [run["id"] for run in lines] == runs[::-1]
    assert [run["id"] for run in rows] == runs[::-1]


def test_a_listing_does_not_cut_off_the_subject_of_a_run() -> None:
    (column,) = (each for each in _COLUMNS if each.key == "input")
    assert str(column.formatter({"style": "calm " * 20, "topic": "tea"})).startswith('{"topic": "tea"')


def test_a_listing_is_filtered_and_paged(terminal: Terminal) -> None:
    first = terminal.start("--tenant", "one")
    second = terminal.start("--tenant", "two", "--run-at", "+1h")

    def listed(*options: str) -> list[str]:
        return [run["id"] for run in terminal.json("runs", "list", *options)]

    assert listed("--state", "pending", "--state", "failed") == [second]
    assert listed("--tenant", "one") == [first]
    assert listed("--tenant", "nobody") == []
    assert listed("--pipeline", "other") == []
    assert listed("--limit", "1") == [second]
    assert listed("--before", second) == [first]


def test_an_empty_listing_says_what_to_do(terminal: Terminal) -> None:
    ended = terminal.run("runs", "list")
    assert ended.returncode == 0
    assert ended.stderr == "no runs yet; start one with `retoma start PIPELINE APP`\n"


def test_a_run_is_found_by_a_unique_prefix(terminal: Terminal) -> None:
    run = terminal.start()
    assert terminal.json("runs", "show", run[:10].upper())["run"]["id"] == run
    terminal.start()
    ambiguous = terminal.run("runs", "show", run[:2])
    assert ambiguous.returncode == 2
    assert "matches several runs" in ambiguous.stderr
    for unknown in ("ffff", "no id at all"):
        ended = terminal.run("runs", "show", unknown)
        assert (ended.returncode, ended.stderr) == (3, f"Error: run {unknown!r} not found\n")


def test_a_step_without_a_job_is_shown_as_waiting_like_a_waiting_job(terminal: Terminal) -> None:
    shown = terminal.out("runs", "show", terminal.start())
    assert re.search(r"^image +waiting ", shown, re.MULTILINE)


def test_show_prints_progress_errors_and_results(terminal: Terminal) -> None:
    with terminal.worker():
        run = terminal.run("start", "film", "film.py", "-i", "title=bad", "--wait").stdout.split()[0]
    shown = terminal.out("runs", "show", run)
    assert "image  failed" in shown
    assert "image of bad 0: ERROR: ValueError: no [bold]paint" in shown
    assert "(attempt 1)" in shown
    assert 'lines: ["bad 0", "bad 1"]' in shown
    facts = terminal.json("runs", "show", run)
    assert [step["step"] for step in facts["steps"]] == ["lines", "image", "cut"]
    assert facts["steps"][1]["jobs"] == {"failed": 2}
    assert facts["errors"][0]["attempt"] == 1


def test_user_text_cannot_inject_terminal_control_sequences(terminal: Terminal) -> None:
    with terminal.worker():
        run = terminal.run("start", "film", "film.py", "-i", "title=bad", "--wait").stdout.split()[0]
    hostile = "\x1b[31m\u202eevil[red]"
    terminal.start("-i", f"title={hostile}", "--tenant", hostile)
    for command in (
        ["runs", "list"],
        ["runs", "list", "-o", "csv"],
        ["runs", "list", "-o", "json"],
        ["runs", "show", run],
        ["runs", "events", run],
    ):
        printed = terminal.out(*command)
        assert not set(printed) & set("\x1b\u202e\x07")
    assert "no [bold]paint[/bold] \\x1b[2J left" in terminal.out("runs", "show", run)
    assert "evil[red]" in terminal.out("runs", "list")
    assert terminal.json("runs", "list", "--tenant", hostile)[0]["input"]["title"] == hostile


def test_a_formula_is_exported_as_text(terminal: Terminal) -> None:
    terminal.start("--tenant", "=cmd()")
    terminal.start("--tenant", "x;=cmd()")
    printed = terminal.out("runs", "list", "-o", "csv")
    assert [row["tenant"] for row in csv.DictReader(io.StringIO(printed))] == ["x;'=cmd()", "'=cmd()"]
    assert printed.startswith('"id",')


def test_show_reports_that_no_worker_serves_the_queue(terminal: Terminal) -> None:
    run = terminal.start()
    assert "lines: no running worker serves queue 'default'" in terminal.out("runs", "show", run)
    with terminal.worker("-q", "default"):
        terminal.out("runs", "events", run, "--after", "0")
        waits = _until_waits(terminal, run, "image")
    assert waits["reason"] == "no_worker"
    assert (waits["jobs"], waits["queue"]) == (2, "image")


def test_the_time_until_which_a_job_waits_is_local_and_has_its_zone(terminal: Terminal) -> None:
    run = terminal.start("--run-at", "2030-01-31T08:00Z")
    terminal.variables["TZ"] = "<-03>3"
    assert "lines: delayed until 2030-01-31 05:00:00 -03\n" in terminal.out("runs", "show", run, stdin="")
    (wait,) = terminal.json("runs", "show", run)["waits"]
    assert wait["explanation"] == "lines: delayed until 2030-01-31 08:00:00 UTC"


def test_show_reports_that_the_workers_are_full(terminal: Terminal) -> None:
    with terminal.worker("-c", "1"):
        run = terminal.start("-i", "title=slow")
        terminal.wait_for_images()
        assert "image of slow 1: waiting for capacity" in terminal.out("runs", "show", run)
        (terminal.folder / "go").touch()


def test_show_reports_that_no_worker_defines_the_step(terminal: Terminal) -> None:
    run = terminal.start()
    (terminal.folder / "film.py").write_text(FILM.replace("def cut(", "def edit("))
    with terminal.worker():
        waits = _until_waits(terminal, run, "cut")
    assert waits["reason"] == "undefined_step"
    assert "no worker defines the step 'cut'" in terminal.out("runs", "show", run)


def _until_waits(terminal: Terminal, run: str, step: str) -> dict[str, object]:
    for _ in range(50):
        for wait in terminal.json("runs", "show", run)["waits"]:
            if wait["step"] == step:
                return dict(wait)
    pytest.fail(f"{step} does not wait")


def test_events_are_printed_in_order_until_the_run_ends(terminal: Terminal) -> None:
    with terminal.worker():
        run = terminal.start()
        followed = terminal.out("runs", "events", run, "--follow", "-o", "jsonl")
    events = [json.loads(line) for line in followed.splitlines()]
    assert events[0]["kind"] == "start"
    assert events[-1]["data"] == {"state": "completed"}
    assert [event["id"] for event in events] == [event["id"] for event in terminal.json("runs", "events", run)]
    assert terminal.json("runs", "events", run, "--after", str(events[-2]["id"])) == [events[-1]]


def test_a_cancelled_run_stays_cancelled_and_an_ended_one_is_a_conflict(terminal: Terminal) -> None:
    run = terminal.start()
    assert terminal.out("runs", "cancel", run) == "cancelled\n"
    assert terminal.json("runs", "cancel", run) == {"run": run, "state": "cancelled"}
    with terminal.worker():
        done = terminal.run("start", "film", "film.py", "--wait").stdout.split()[0]
    ended = terminal.run("runs", "cancel", done)
    assert (ended.returncode, ended.stderr) == (4, f"Error: run {done} is already over: completed\n")


def test_failed_jobs_are_rerun_and_the_run_continues(terminal: Terminal) -> None:
    with terminal.worker():
        run = terminal.run("start", "film", "film.py", "-i", "title=bad", "--wait").stdout.split()[0]
    assert terminal.json("runs", "rerun", run)["revision"] == 2
    assert terminal.json("runs", "resume", run)["state"] == "running"
    refused = terminal.run("runs", "skip", run, "--step", "image", "--item", "x")
    assert refused.returncode == 4
    assert "only a run that has completed or failed" in refused.stderr


def test_an_empty_list_of_stuck_runs_is_a_sentence(terminal: Terminal) -> None:
    ended = terminal.run("runs", "stuck")
    assert (ended.returncode, ended.stderr) == (0, "no stuck runs\n")


def test_an_error_is_shown_with_its_type(terminal: Terminal) -> None:
    broken = 'film = Pipeline("film", retry=Retry(0))\n\n\n@film.step\ndef greeting() -> str:\n    return {}["v1"]\n'
    (terminal.folder / "film.py").write_text(f"from retoma import Pipeline, Retry\n\n{broken}")
    with terminal.worker() as worker:
        output = terminal.run("start", "film", "film.py", "--wait").stdout
        assert "greeting: ERROR: KeyError: 'v1'" in output
        assert "KeyError: 'v1'" in terminal.out("runs", "show", output.split()[0])
        assert "error=\"KeyError: 'v1'\"" in worker.wait_for_output("failed")


def test_workers_queues_and_recent_runs_are_listed(terminal: Terminal) -> None:
    assert terminal.json("workers") == []
    with terminal.worker("--name", "first"):
        (worker,) = terminal.json("workers")
        assert (worker["name"], worker["queues"]) == ("first", ["default", "image"])
        assert {queue["queue"]: queue["workers"] for queue in terminal.json("queues")} == {"default": 1, "image": 1}
        assert "first" in terminal.out("workers")
        assert "image" in terminal.out("queues")
    run = terminal.start()
    assert [each["id"] for each in terminal.json("runs", "list", "--since", "1h")] == [run]
    assert terminal.json("runs", "list", "--since", "2999-01-01") == []
    assert terminal.run("runs", "list", "--since", "soon").returncode == 2


def test_a_queue_is_paused_resumed_and_limited(terminal: Terminal) -> None:
    run = terminal.start()
    (paused,) = terminal.json("queues", "pause", "default", "--reason", "new GPU", "--by", "ana")
    assert (paused["paused_by"], paused["pause_reason"]) == ("ana", "new GPU")
    assert "new GPU" in terminal.out("queues")
    assert "queue 'default' is paused" in terminal.out("runs", "show", run)
    (resumed,) = terminal.json("queues", "resume", "default")
    assert resumed["paused_at"] is None
    (limited,) = terminal.json("queues", "update", "image", "--concurrency", "2")
    assert limited["concurrency_limit"] == 2
    assert terminal.run("queues", "pause", "nothing").returncode == 3
    assert terminal.run("queues", "update", "image").returncode == 2


def test_the_throughput_and_times_of_every_step_are_listed(terminal: Terminal) -> None:
    with terminal.worker():
        terminal.out("start", "film", "film.py", "--wait")
    found = {each["step"]: each["jobs_processed"] for each in terminal.json("metrics", "--window", "1h")}
    assert found == {"cut": 1, "image": 2, "lines": 1}
    assert "avg processing" in terminal.out("metrics")
    assert terminal.run("metrics", "--window", "soon").returncode == 2


def test_an_action_repeated_with_its_key_gets_its_first_answer(terminal: Terminal) -> None:
    with terminal.worker():
        run = terminal.run("start", "film", "film.py", "-i", "title=bad", "--wait").stdout.split()[0]
    acts = {
        "fork": ["fork", run, "title=calm", "--app", "film.py"],
        "skip": ["skip", run, "--step", "image", "--item", "bad 1"],
        "edit": ["edit", run, "image", '"A LAMP"', "--item", "bad 0", "--app", "film.py", "--no-downstream"],
        "a step": ["rerun", run, "lines"],
        "what failed": ["rerun", run],
        "resume": ["resume", run],
        "cancel": ["cancel", run],
    }
    first = {}
    for name, act in acts.items():
        if name in ("edit", "what failed"):
            with terminal.worker():
                wait_until(lambda: terminal.state(run) == "completed_with_errors")
        first[name] = terminal.json("runs", *act, "--key", name)
    assert {name: terminal.json("runs", *act, "--key", name) for name, act in acts.items()} == first


SERIES = """
from pydantic import BaseModel

from film import film
from retoma import App, Context, Pipeline


class Plan(BaseModel):
    topic: str = "tea"
    titles: list[str] = ["calm", "bad"]


series = Pipeline("series", Plan)


@series.each("titles", on_failure="continue")
async def episode(title: str, *, ctx: Context) -> str:
    return (await ctx.run_child(film, {"title": title}))["cut"]


app = App("series", pipelines=[film, series])
"""


def test_child_runs_are_counted_and_listed_by_their_parent(terminal: Terminal) -> None:
    (terminal.folder / "series.py").write_text(SERIES)
    with terminal.process("worker", "series.py"):
        run = terminal.run("start", "series", "series.py", "--wait").stdout.split()[0]
    children = terminal.json("runs", "list", "--parent", run)
    assert [(each["parent"], each["pipeline"]) for each in children] == [(run, "film")] * 2
    child = children[0]["id"]
    assert terminal.run("runs", "list", "--parent", child).stderr == "no matching runs\n"
    assert terminal.json("runs", "show", run)["children"] == {"completed": 1, "completed_with_errors": 1}
    assert "\nchildren completed 1, completed_with_errors 1\n" in terminal.out("runs", "show", run)
    assert f"\nchild of “tea” ({run})\n" in terminal.out("runs", "show", child)
