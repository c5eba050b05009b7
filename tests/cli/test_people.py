"""`retoma people`: accounts and roles from the terminal."""

from __future__ import annotations

import re

from tests.cli.terminal import Terminal

ANA = ("Ana Souza", "ana@example.com")


def test_the_first_administrator_is_created_with_a_password_from_stdin(terminal: Terminal) -> None:
    terminal.out("people", "create", *ANA, "--role", "administrator", stdin="a long enough password\n")
    (ana,) = terminal.json("people", "list")
    assert (ana["email"], ana["roles"], ana["state"]) == (ANA[1], ["administrator in all tenants"], "active")


def test_a_short_password_creates_nobody(terminal: Terminal) -> None:
    refused = terminal.run("people", "create", *ANA, stdin="short\n")
    assert (refused.returncode, "12 to" in refused.stderr) == (2, True)
    assert terminal.json("people", "list") == []


def test_people_are_invited_given_roles_and_disabled(terminal: Terminal) -> None:
    link = terminal.out("people", "invite", *ANA, "--role", "viewer", "--tenant", "blog")
    assert re.search(r"/set-password/[\w-]{43}$", link.strip())
    (changed,) = terminal.json("people", "set-role", ANA[1], "operator", "--tenant", "blog")
    assert (changed["roles"], changed["state"]) == (["operator in blog"], "invited")
    assert terminal.out("people", "reset", ANA[1]) != link
    terminal.out("people", "disable", ANA[1])
    assert terminal.json("people", "list") == []
    terminal.out("people", "enable", ANA[1])
    (without,) = terminal.json("people", "set-role", ANA[1], "none", "--tenant", "blog")
    assert without["roles"] == []
    assert "sessions ended: 0" in terminal.out("people", "end-sessions", ANA[1])


def test_an_unknown_address_or_role_names_the_nearest(terminal: Terminal) -> None:
    terminal.out("people", "invite", *ANA, "--role", "viewer")
    assert "did you mean ana@example.com?" in terminal.run("people", "disable", "anna@example.com").stderr
    assert "did you mean 'operator'?" in terminal.run("people", "set-role", ANA[1], "operater").stderr
