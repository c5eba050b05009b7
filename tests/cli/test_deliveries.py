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
from tests.cli.terminal import Process, Terminal, wait_until
from tests.receiver import Writer, receiver, respond_with

T = TypeVar("T")


@pytest.fixture
def loopback_terminal(terminal: Terminal) -> Terminal:
    terminal.variables["RETOMA_ALLOW_HOSTS"] = "127.0.0.1"
    return terminal


async def test_a_worker_sends_the_webhooks_of_its_runs(loopback_terminal: Terminal) -> None:
    async with receiver() as listener:
        run = await start(loopback_terminal, listener.url)
        with worker(loopback_terminal) as process:
            (delivery,) = await in_thread(wait_until, lambda: list_deliveries(loopback_terminal, "delivered"))
            os.kill(process.pid, signal.SIGTERM)
            assert await in_thread(process.wait_for_exit) == 0
    (got,) = listener.requests
    assert got.json["data"]["run"] == delivery["run"] == run
    assert got.json["data"]["results"]["cut"] == "CALM 0 CALM 1"
    shown = await in_thread(loopback_terminal.json, "deliveries", "show", delivery["id"][:8])
    assert (json.loads(shown["body"]), shown["attempts"][0]["status"]) == (got.json, 200)


async def test_a_webhook_is_resent_if_its_worker_was_killed_before_recording_it(
    loopback_terminal: Terminal, real_time_database: Database
) -> None:
    killed: list[Process] = []

    async def kill_and_take(writer: Writer) -> None:
        os.kill(killed[0].pid, signal.SIGKILL)
        await respond_with(200)(writer)

    async with receiver(kill_and_take) as listener:
        await start(loopback_terminal, listener.url)
        with worker(loopback_terminal) as victim:
            killed.append(victim)
            await in_thread(victim.wait_for_exit)
        async with real_time_database.connection() as connection:
            assert await connection.fetchval("select state::text from retoma.deliveries") == "sending"
            await connection.execute("update retoma.deliveries set next_at = retoma.now()")  # its lease is over
        with worker(loopback_terminal):
            (delivery,) = await in_thread(wait_until, lambda: list_deliveries(loopback_terminal, "delivered"))
    assert delivery["attempt"] == 2
    assert len(listener.requests) == 2
    assert len({(got.headers["webhook-id"], got.body) for got in listener.requests}) == 1


async def test_dead_letters_are_listed_enabled_and_redelivered(loopback_terminal: Terminal) -> None:
    async with receiver(respond_with(410, b"gone [bold]fishing[/bold] \x1b[2J")) as listener:
        await start(loopback_terminal, listener.url)
        with worker(loopback_terminal):
            (delivery,) = await in_thread(wait_until, lambda: list_deliveries(loopback_terminal, "dead"))
            (endpoint,) = await in_thread(loopback_terminal.json, "endpoints", "list")
            assert (endpoint["state"], endpoint["dead"]) == ("disabled", 1)
            shown = await in_thread(loopback_terminal.out, "deliveries", "show", delivery["id"])
            assert "gone [bold]fishing[/bold] \\x1b[2J" in shown
            refused = await in_thread(loopback_terminal.run, "deliveries", "redeliver", delivery["id"])
            assert (refused.returncode, "enable it first" in refused.stderr) == (4, True)
            number = str(endpoint["id"])
            assert "dead deliveries: 1" in await in_thread(loopback_terminal.out, "endpoints", "enable", number)
            assert (
                await in_thread(loopback_terminal.out, "deliveries", "redeliver", "--endpoint", number)
                == "redelivered: 1\n"
            )
            await in_thread(wait_until, lambda: list_deliveries(loopback_terminal, "delivered"))


async def test_a_rotated_secret_is_printed_once_and_signs(loopback_terminal: Terminal) -> None:
    async with receiver() as listener:
        await start(loopback_terminal, listener.url)
        (endpoint,) = await in_thread(loopback_terminal.json, "endpoints", "list")
        secret = (await in_thread(loopback_terminal.out, "endpoints", "rotate-secret", str(endpoint["id"]))).strip()
        with worker(loopback_terminal):
            await in_thread(wait_until, lambda: list_deliveries(loopback_terminal, "delivered"))
    signing.verify(secret, listener.requests[0].headers, listener.requests[0].body, datetime.now(UTC))
    output = await in_thread(loopback_terminal.out, "endpoints", "list", "-o", "json")
    assert secret not in output


def test_an_unsafe_webhook_is_a_usage_error_and_names_the_setting(terminal: Terminal) -> None:
    ended = terminal.run("start", "film", "film.py", "--webhook", "http://127.0.0.1:9/hook")
    assert ended.returncode == 2
    assert "add 127.0.0.1 to RETOMA_ALLOW_HOSTS" in ended.stderr
    assert terminal.json("runs", "list") == []


def test_a_worker_that_lacks_the_servers_allowed_hosts_reports_it_at_startup(loopback_terminal: Terminal) -> None:
    loopback_terminal.start("--webhook", "http://127.0.0.1:9/taken")
    with loopback_terminal.worker(RETOMA_ALLOW_HOSTS="") as process:
        output = process.wait_for_output("webhook_host_refused")
    assert "set its RETOMA_ALLOW_HOSTS to the server's" in output
    assert "127.0.0.1" in output


def test_a_token_in_the_query_of_a_url_is_not_printed(terminal: Terminal) -> None:
    run = terminal.start("--webhook", "https://n8n.example.com/hook?token=canary")
    terminal.out("runs", "cancel", run)
    (delivery,) = list_deliveries(terminal, "due")
    output = [
        terminal.out("deliveries", "list", "-o", "json"),
        terminal.out("deliveries", "show", delivery["id"]),
        terminal.out("deliveries", "show", delivery["id"], "-o", "json"),
        terminal.out("endpoints", "list", "-o", "json"),
    ]
    assert "canary" not in str(output)
    assert delivery["url"] == "https://n8n.example.com/hook?token=***"


def test_an_unknown_delivery_is_reported(terminal: Terminal) -> None:
    assert terminal.run("deliveries", "list").stderr == "no matching deliveries\n"
    assert terminal.run("deliveries", "show", "abc").returncode == 3
    assert terminal.run("deliveries", "redeliver").returncode == 2
    assert terminal.run("endpoints", "enable", "1").returncode == 3
    assert terminal.run("endpoints", "rotate-secret", "1").returncode == 3


def worker(terminal: Terminal) -> Any:
    return terminal.process("worker", "film.py")


def list_deliveries(terminal: Terminal, state: str) -> list[dict[str, Any]]:
    return list(terminal.json("deliveries", "list", "--state", state))


async def start(terminal: Terminal, url: str) -> str:
    return await in_thread(terminal.start, "--webhook", url)


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Run in a thread, so the receiver can answer meanwhile."""
    return await asyncio.to_thread(call, *arguments)
