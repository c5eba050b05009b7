"""`retoma budgets ...`."""

from __future__ import annotations

from tests.cli.terminal import Terminal


def test_budgets_are_entered_in_dollars_and_listed(terminal: Terminal) -> None:
    assert terminal.run("budgets", "list").stderr.startswith("no budgets; add one with `retoma budgets set`")
    terminal.out("budgets", "set", "finance", "month", "50")
    terminal.out("budgets", "set", "finance", "day", "2.5", "--pipeline", "film", "--action", "notify")
    listed = terminal.json("budgets", "list")
    names = ("tenant", "pipeline", "period", "micros", "action", "warn_at", "spent")
    assert [tuple(each[name] for name in names) for each in listed] == [
        ("finance", None, "month", 50_000_000, "review", 0.8, 0),
        ("finance", "film", "day", 2_500_000, "notify", 0.8, 0),
    ]
    assert "$50.000000" in terminal.out("budgets", "list", "--tenant", "finance")


def test_a_changed_limit_keeps_the_rest_of_the_budget(terminal: Terminal) -> None:
    terminal.out("budgets", "set", "finance", "month", "50", "--action", "notify", "--warn-at", "0.5")
    (changed,) = terminal.json("budgets", "set", "finance", "month", "60")
    assert (changed["micros"], changed["action"], changed["warn_at"]) == (60_000_000, "notify", 0.5)


def test_a_removed_budget_is_gone(terminal: Terminal) -> None:
    terminal.out("budgets", "set", "finance", "month", "50")
    terminal.out("budgets", "remove", "finance", "month")
    assert terminal.json("budgets", "list") == []
    assert terminal.run("budgets", "remove", "finance", "month").returncode == 3


def test_the_periods_of_a_budget_are_shown(terminal: Terminal) -> None:
    terminal.out("budgets", "set", "finance", "month", "50")
    assert [each["spent"] for each in terminal.json("budgets", "show", "finance", "month", "--periods", "2")] == [0, 0]


def test_a_currency_needs_a_rate_and_its_date(terminal: Terminal) -> None:
    refused = terminal.run("budgets", "currency", "finance", "--currency", "BRL")
    assert "a currency needs a rate and the date of that rate" in refused.stderr
    rate = ("--rate", "5.4", "--rate-date", "2026-11-02", "--time-zone", "America/Sao_Paulo")
    (money,) = terminal.json("budgets", "currency", "finance", "--currency", "BRL", *rate)
    assert (money["currency"], money["rate_date"], money["time_zone"]) == ("BRL", "2026-11-02", "America/Sao_Paulo")
