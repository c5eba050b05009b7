"""`retoma audit`: read the log, and delete old entries."""

from __future__ import annotations

import csv
import io

from tests.cli.terminal import Terminal


def test_entries_are_listed_filtered_and_exported(terminal: Terminal) -> None:
    assert "no matching entries" in terminal.run("audit", "list").stderr
    terminal.out("prices", "set", "openrouter", "small", "--unit", "1")
    terminal.out("keys", "create", "n8n", "--scope", "audit:read")
    listed = terminal.json("audit", "list")
    assert [entry["action"] for entry in listed] == ["api_key.create", "price.set"]
    assert [entry["action"] for entry in terminal.json("audit", "list", "--action", "price")] == ["price.set"]
    assert terminal.json("audit", "list", "--actor", "somebody else") == []
    assert terminal.json("audit", "list", "--until", "1h") == []
    assert terminal.json("audit", "list", "--object", "openrouter/small")[0]["after"]["unit"] == 1_000_000
    assert terminal.json("audit", "list", "--before", str(listed[0]["id"])) == listed[1:]
    rows = list(csv.DictReader(io.StringIO(terminal.out("audit", "list", "-o", "csv"))))
    assert [row["action"] for row in rows] == ["api_key.create", "price.set"]
    assert "openrouter/small" in terminal.out("audit", "list")


def test_only_entries_before_the_given_time_are_deleted(terminal: Terminal) -> None:
    terminal.out("prices", "set", "openrouter", "small", "--unit", "1")
    assert terminal.out("audit", "delete", "--before", "1h").strip() == "deleted: 0"
    assert [entry["action"] for entry in terminal.json("audit", "list")] == ["audit.delete", "price.set"]
    assert terminal.run("audit", "delete", "--before", "2999-01-01").returncode != 0
