"""`retoma bulk` and `retoma workers stacks`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.terminal import Terminal, wait_until


def test_what_matches_is_shown_and_changed_after_confirmation(terminal: Terminal) -> None:
    run, other = terminal.start("--tenant", "shop"), terminal.start()
    refused = terminal.run("bulk", "start", "cancel_runs", "--tenant", "shop", stdin="n\n")
    assert refused.returncode == 1
    assert run[:8] in refused.stderr
    assert "cancel_runs: 1 match. Continue?" in refused.stderr
    assert terminal.state(run) == "running"
    (action,) = terminal.json("bulk", "start", "cancel_runs", "--tenant", "shop", "--by", "ana", "--yes")
    assert (action["total"], action["done"], action["requested_by"]) == (1, 1, "ana")
    assert (terminal.state(run), terminal.state(other)) == ("cancelled", "running")
    assert [each["id"] for each in terminal.json("bulk", "list")] == [action["id"]]
    assert terminal.json("bulk", "abort", action["id"])[0]["aborted_at"] is None
    assert terminal.run("bulk", "start", "cancel_runs", "--queue", "image", "--yes").returncode == 2


def test_the_stacks_of_a_worker_are_shown(terminal: Terminal) -> None:
    run = terminal.start("-i", "title=slow", "-i", "scenes=1")
    with terminal.worker():
        terminal.wait_for_images()
        (worker,) = terminal.json("workers")
        shown = wait_until(lambda: terminal.out("workers", "stacks", str(worker["id"])))
        assert f"run {run}, image slow 0, attempt 1:" in shown
        assert "await asyncio.sleep(0.02)" in shown
        (Path(terminal.folder) / "go").touch()
    assert terminal.run("workers", "stacks", "999999").returncode == 3
