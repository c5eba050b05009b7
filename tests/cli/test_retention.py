"""`retoma retention`, and holding and erasing runs and tenants."""

from __future__ import annotations

from tests.cli.terminal import Terminal


def test_rules_are_set_shown_and_removed(terminal: Terminal) -> None:
    terminal.out("retention", "set", "30d", "--pipeline", "film")
    terminal.out("retention", "set", "forever", "--state", "failed")
    listed = terminal.json("retention", "show")
    assert [(rule["pipeline"], rule["final_class"], rule["keep"]) for rule in listed] == [
        (None, "failed", None),
        ("film", "ended", 2592000.0),
        (None, "ended", 7776000.0),
        (None, "failed", 31536000.0),
    ]
    shown = terminal.out("retention", "show")
    assert "forever" in shown
    assert "30 d" in shown
    terminal.out("retention", "unset", "--pipeline", "film")
    assert terminal.run("retention", "unset", "--pipeline", "film").returncode == 3
    assert terminal.run("retention", "set", "soon").returncode == 2


def test_what_would_be_removed_is_shown_and_then_removed(terminal: Terminal) -> None:
    run = terminal.start()
    terminal.out("runs", "cancel", run)
    assert "would remove 0 runs" in terminal.out("retention", "preview")
    terminal.out("retention", "set", "0s")
    assert "would remove 1 runs" in terminal.out("retention", "preview")
    assert terminal.json("retention", "preview")["runs"] == 1
    assert terminal.json("retention", "run") == {"runs": 1}
    assert terminal.run("runs", "show", run).returncode == 3


def test_a_run_is_held_released_and_erased_after_confirmation(terminal: Terminal) -> None:
    run = terminal.start()
    terminal.out("runs", "cancel", run)
    terminal.out("runs", "hold", run, "--reason", "dispute")
    refused = terminal.run("runs", "erase", run, "--yes")
    assert (refused.returncode, "dispute" in refused.stderr) == (4, True)
    terminal.out("runs", "release", run)
    assert terminal.run("runs", "erase", run, stdin="n\n").returncode == 1
    assert terminal.json("runs", "erase", run, "--yes") == {"run": run, "runs": 1, "files": 0}
    assert terminal.run("runs", "show", run).returncode == 3


def test_a_tenant_is_erased_after_confirmation(terminal: Terminal) -> None:
    run = terminal.start("--tenant", "shop")
    terminal.out("runs", "cancel", run)
    assert terminal.run("tenants", "erase", "shop", stdin="n\n").returncode == 1
    assert terminal.json("tenants", "erase", "shop", "--yes") == {"tenant": "shop", "runs": 1, "files": 0}
    assert terminal.run("tenants", "erase", "nobody", "--yes").returncode == 3
