"""`retoma deliveries` and `retoma endpoints`, and webhooks that real workers send."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from retoma import signing
from retoma.store.database import Database
from tests.cli.terminal import Process, Terminal, until
from tests.receiver import Writer, receiver, says

T = TypeVar("T")


@pytest.fixture
def allowing(terminal: Terminal) -> Terminal:
    terminal.variables["RETOMA_ALLOW_HOSTS"] = "127.0.0.1"
    return terminal


async def test_a_worker_sends_the_webhooks_of_its_runs(allowing: Terminal) -> None:
    async with receiver() as there:
        run = await start(allowing, there.url)
        with worker(allowing) as process:
            (delivery,) = await apart(until, lambda: listed(allowing, "delivered"))
            os.kill(process.pid, signal.SIGTERM)
            assert await apart(process.ended) == 0
    (got,) = there.got
    assert got.json["data"]["run"] == delivery["run"] == run
    assert got.json["data"]["results"]["cut"] == "CALM 0 CALM 1"
    shown = await apart(allowing.json, "deliveries", "show", delivery["id"][:8])
    assert (json.loads(shown["body"]), shown["attempts"][0]["status"]) == (got.json, 200)


async def test_a_webhook_whose_worker_was_killed_before_it_recorded_is_sent_again(
    allowing: Terminal, real_time_database: Database
) -> None:
    killed: list[Process] = []

    async def kill_and_take(writer: Writer) -> None:
        os.kill(killed[0].pid, signal.SIGKILL)
        await says(200)(writer)

    async with receiver(kill_and_take) as there:
        await start(allowing, there.url)
        with worker(allowing) as victim:
            killed.append(victim)
            await apart(victim.ended)
        async with real_time_database.connection() as connection:
            assert await connection.fetchval("select state::text from retoma.deliveries") == "sending"
            await connection.execute("update retoma.deliveries set next_at = retoma.now()")  # its lease is over
        with worker(allowing):
            (delivery,) = await apart(until, lambda: listed(allowing, "delivered"))
    assert delivery["attempt"] == 2
    assert len(there.got) == 2
    assert len({(got.headers["webhook-id"], got.body) for got in there.got}) == 1


async def test_dead_letters_are_seen_enabled_and_sent_again(allowing: Terminal) -> None:
    async with receiver(says(410, b"gone [bold]fishing[/bold] \x1b[2J")) as there:
        await start(allowing, there.url)
        with worker(allowing):
            (delivery,) = await apart(until, lambda: listed(allowing, "dead"))
            (endpoint,) = await apart(allowing.json, "endpoints", "list")
            assert (endpoint["state"], endpoint["dead"]) == ("disabled", 1)
            shown = await apart(allowing.out, "deliveries", "show", delivery["id"])
            assert "gone [bold]fishing[/bold] \\x1b[2J" in shown
            refused = await apart(allowing.run, "deliveries", "redrive", delivery["id"])
            assert (refused.returncode, "enable it first" in refused.stderr) == (4, True)
            number = str(endpoint["id"])
            assert "1 of its webhooks are dead" in await apart(allowing.out, "endpoints", "enable", number)
            assert await apart(allowing.out, "deliveries", "redrive", "--endpoint", number) == "1 due again\n"
            await apart(until, lambda: listed(allowing, "delivered"))


async def test_a_rotated_secret_is_printed_once_and_signs(allowing: Terminal) -> None:
    async with receiver() as there:
        await start(allowing, there.url)
        (endpoint,) = await apart(allowing.json, "endpoints", "list")
        secret = (await apart(allowing.out, "endpoints", "rotate", str(endpoint["id"]))).strip()
        with worker(allowing):
            await apart(until, lambda: listed(allowing, "delivered"))
    signing.verify(secret, there.got[0].headers, there.got[0].body, datetime.now(UTC))
    said = await apart(allowing.out, "endpoints", "list", "-o", "json")
    assert secret not in said


def test_an_unsafe_webhook_is_wrong_usage_and_names_the_setting(terminal: Terminal) -> None:
    ended = terminal.run("start", "film", "film.py", "--webhook", "http://127.0.0.1:9/hook")
    assert ended.returncode == 2
    assert "add 127.0.0.1 to RETOMA_ALLOW_HOSTS" in ended.stderr
    assert terminal.json("runs", "list") == []


def test_a_worker_that_lacks_the_servers_allowed_hosts_says_so_at_its_start(allowing: Terminal) -> None:
    allowing.start("--webhook", "http://127.0.0.1:9/taken")
    with allowing.worker(RETOMA_ALLOW_HOSTS="") as process:
        said = process.says("webhooks go to a host that this worker refuses")
    assert "give it the RETOMA_ALLOW_HOSTS of the server" in said
    assert "127.0.0.1" in said


def test_a_token_in_the_query_of_a_url_is_not_printed(terminal: Terminal) -> None:
    run = terminal.start("--webhook", "https://n8n.example.com/hook?token=canary")
    terminal.out("runs", "cancel", run)
    (delivery,) = listed(terminal, "due")
    said = [
        terminal.out("deliveries", "list", "-o", "json"),
        terminal.out("deliveries", "show", delivery["id"]),
        terminal.out("deliveries", "show", delivery["id"], "-o", "json"),
        terminal.out("endpoints", "list", "-o", "json"),
    ]
    assert "canary" not in str(said)
    assert delivery["url"] == "https://n8n.example.com/hook?token=***"


def test_what_is_not_there_is_said(terminal: Terminal) -> None:
    assert terminal.run("deliveries", "list").stderr == "no webhooks match\n"
    assert terminal.run("deliveries", "show", "abc").returncode == 3
    assert terminal.run("deliveries", "redrive").returncode == 2
    assert terminal.run("endpoints", "enable", "1").returncode == 3
    assert terminal.run("endpoints", "rotate", "1").returncode == 3


def worker(terminal: Terminal) -> Any:
    return terminal.process("worker", "film.py")


def listed(terminal: Terminal, state: str) -> list[dict[str, Any]]:
    return list(terminal.json("deliveries", "list", "--state", state))


async def start(terminal: Terminal, url: str) -> str:
    return await apart(terminal.start, "--webhook", url)


async def apart(call: Callable[..., T], *arguments: Any) -> T:
    """In a thread, so that the receiver can answer meanwhile."""
    return await asyncio.to_thread(call, *arguments)
