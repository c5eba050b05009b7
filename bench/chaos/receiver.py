"""A webhook receiver that fails at random and records all requests, outside the database."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any, Self
from uuid import UUID

import asyncpg

from retoma import signing
from retoma.errors import BadSignature
from retoma.store.database import Connection

SECRET = "whsec_" + "Y2hhb3Mg" * 4
PATHS = 6
GONE = "/gone"  # responds with 410 in the end
ACCEPTED = 200


@dataclass(frozen=True)
class ReceivedRequest:
    """One request. `status` is our response, 0 if we closed the connection."""

    id: UUID
    run: UUID
    seq: int
    body: bytes
    status: int


class Receiver:
    def __init__(self, dice: Random) -> None:
        self.got: list[ReceivedRequest] = []
        self.unsigned: list[str] = []
        self._dice = dice
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def url(self, dice: Random) -> str:
        assert self._server is not None
        place = GONE if dice.random() < 0.03 else f"/{dice.randrange(PATHS)}"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{place}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        with suppress(OSError, asyncio.IncompleteReadError):
            while status := await self._answer(reader):
                writer.write(f"HTTP/1.1 {status} Said\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> int:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        try:
            delivery = signing.verify(SECRET, headers, body, datetime.now(UTC))
        except BadSignature as error:
            self.unsigned.append(f"{headers.get('webhook-id')}: {error}")
            return 400
        status = self._status(first.split()[1])
        data = json.loads(body)["data"]
        self.got.append(ReceivedRequest(UUID(delivery), UUID(data["run"]), data["seq"], body, status))
        return status

    def _status(self, place: str) -> int:
        of = self._dice.random()
        if place == GONE and of < 0.3:
            return 410
        return 500 if of < 0.15 else 503 if of < 0.2 else 0 if of < 0.25 else ACCEPTED


@dataclass
class Deliveries:
    """The deliveries in the database, and how they ended."""

    webhooks: list[asyncpg.Record]
    rows: list[asyncpg.Record]

    @classmethod
    async def read(cls, connection: Connection) -> Deliveries:
        hooks = await connection.fetch(
            "select h.run, h.events, r.state::text as state "
            "from retoma.run_webhooks h join retoma.runs r on r.id = h.run"
        )
        rows = await connection.fetch(
            "select id, run, seq, event, state::text as state, attempt from retoma.deliveries"
        )
        return cls(hooks, rows)


def find_missing(deliveries: Deliveries, requested: Iterable[UUID]) -> Iterable[str]:
    """Yield expected deliveries that are missing, duplicated or not ended."""
    found = Counter((row["run"], row["event"]) for row in deliveries.rows)
    expected = Counter(
        (hook["run"], event) for hook in deliveries.webhooks for event in _expected_events(hook) & set(hook["events"])
    )
    for (run, event), times in (expected - found).items():
        yield f"{event} of {run}: {times} not recorded"
    for (run, event), times in (found - expected).items():
        yield f"{event} of {run}: {times} too many"
    hooked = {hook["run"] for hook in deliveries.webhooks}
    yield from (f"{run} has no webhook, and asked for one" for run in requested if run not in hooked)
    for row in deliveries.rows:
        if row["state"] not in ("delivered", "dead"):
            yield f"{row['event']} of {row['run']} is {row['state']} after {row['attempt']} attempts"


def _expected_events(hook: asyncpg.Record) -> set[str]:
    return {"run.started", f"run.{hook['state']}"}


def find_lost(deliveries: Deliveries, got: Iterable[ReceivedRequest]) -> Iterable[str]:
    """Yield deliveries recorded as delivered but never accepted, or accepted but not expected."""
    accepted = {each.id for each in got if each.status == ACCEPTED}
    known = {row["id"]: row for row in deliveries.rows}
    yield from (
        f"{row['event']} of {row['run']} is said to be delivered"
        for row in known.values()
        if row["state"] == "delivered" and row["id"] not in accepted
    )
    yield from (f"{each.id} came and is not in the database" for each in got if each.id not in known)


def find_out_of_order(deliveries: Deliveries, got: Iterable[ReceivedRequest]) -> Iterable[str]:
    """Yield deliveries of a run that arrived before the previous one was accepted or dead."""
    dead = {(row["run"], row["seq"]) for row in deliveries.rows if row["state"] == "dead"}
    taken: set[tuple[UUID, int]] = set()
    for each in got:
        former = each.run, each.seq - 1
        if each.seq > 1 and former not in taken and former not in dead:
            yield f"number {each.seq} of {each.run} came first"
        if each.status == ACCEPTED:
            taken.add((each.run, each.seq))


def find_changed(got: Iterable[ReceivedRequest]) -> Iterable[str]:
    """Yield ids that were sent with different bodies."""
    bodies: dict[UUID, set[bytes]] = defaultdict(set)
    for each in got:
        bodies[each.id].add(each.body)
    yield from (f"{delivery}: {len(said)} bodies" for delivery, said in bodies.items() if len(said) > 1)


def count_deliveries(deliveries: Deliveries, got: list[ReceivedRequest]) -> dict[str, Any]:
    states = Counter(row["state"] for row in deliveries.rows)
    taken = Counter(each.id for each in got if each.status == ACCEPTED)
    return {
        "deliveries expected": len(deliveries.rows),
        "deliveries delivered": states["delivered"],
        "deliveries dead": states["dead"],
        "deliveries sent": len(got),
        "deliveries accepted more than once (allowed)": sum(times - 1 for times in taken.values()),
    }
