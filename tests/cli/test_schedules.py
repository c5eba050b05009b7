"""`retoma schedules`."""

from __future__ import annotations

import os
import signal
from collections import Counter

from tests.cli.terminal import Terminal, wait_until

RULE = ("--cron", "0 3 * * *", "--time-zone", "America/Sao_Paulo")


def test_a_schedule_is_managed_from_the_terminal(terminal: Terminal) -> None:
    created = terminal.json("schedules", "create", "nightly", "film", "--app", "film.py", *RULE, "--by", "ana")
    assert (created["cron"], created["changed_by"], created["state"]) == ("0 3 * * *", "ana", "active")
    assert [each["name"] for each in terminal.json("schedules", "list")] == ["nightly"]
    changed = terminal.json("schedules", "update", "nightly", "--app", "film.py", "--every", "6h", "--jitter", "10m")
    assert (changed["every_seconds"], changed["jitter_seconds"], changed["cron"]) == (21_600, 600, None)
    assert terminal.json("schedules", "pause", "nightly", "--by", "ana")["paused_by"] == "ana"
    assert terminal.json("schedules", "resume", "nightly")["state"] == "active"
    run = terminal.json("schedules", "trigger", "nightly", "--app", "film.py", "--key", "now")
    assert terminal.json("schedules", "trigger", "nightly", "--app", "film.py", "--key", "now")["run"] == run["run"]
    shown = terminal.json("schedules", "show", "nightly")
    assert (len(shown["next"]), [each["run"] for each in shown["occurrences"]]) == (5, [run["run"]])
    assert "nightly" in terminal.out("schedules", "show", "nightly")
    assert terminal.run("schedules", "delete", "nightly", stdin="n\n").returncode == 1
    assert terminal.run("schedules", "delete", "nightly", "--yes").returncode == 0
    assert terminal.run("schedules", "show", "nightly").returncode == 3


def test_the_next_times_of_a_rule_are_previewed(terminal: Terminal) -> None:
    assert len(terminal.json("schedules", "preview", *RULE, "--limit", "3")) == 3
    assert "03:00:00 America/Sao_Paulo  (" in terminal.out("schedules", "preview", *RULE)
    assert terminal.run("schedules", "preview", "--cron", "0 99 * * *").returncode == 2


def test_workers_that_are_killed_and_compete_start_each_run_once(terminal: Terminal) -> None:
    """Every second a run is due; one of the workers dies while it starts them."""
    terminal.json("schedules", "create", "often", "film", "--app", "film.py", "--every", "1s", "--catch-up", "all")

    def list_runs() -> list[str]:
        shown = terminal.json("schedules", "show", "often", "--limit", "1000")
        return [each["run"] for each in shown["occurrences"] if each["run"]]

    with terminal.worker() as victim, terminal.worker():
        wait_until(lambda: len(list_runs()) >= 2)
        os.kill(victim.pid, signal.SIGKILL)
        before = len(list_runs())
        with terminal.worker():
            wait_until(lambda: len(list_runs()) >= before + 3)
    terminal.run("schedules", "pause", "often")
    shown = terminal.json("schedules", "show", "often", "--limit", "1000")["occurrences"]
    assert max(Counter(each["due_at"] for each in shown).values()) == 1
    started = [each["id"] for each in terminal.json("runs", "list", "--limit", "1000")]
    assert sorted(list_runs()) == sorted(started)
