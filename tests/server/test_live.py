"""Live events over HTTP: none missed, none duplicated, and no client delays others."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from retoma.cli.http_server import bind_socket, get_address, run_server
from retoma.engine import background_loops
from retoma.errors import DatabaseUnavailable
from retoma.records import LiveEvent
from retoma.server import streams
from retoma.server.routes.live import _limit_silence
from retoma.server.streams import MAX_BACKLOG_BYTES, Stream, Streams, encode_event
from retoma.settings import Settings
from retoma.store import event_stream
from tests.server.api import Api
from tests.server.conftest import OpenApi
from tests.server.pages.visitor import visit_pages
from tests.server.test_external_work import losing
from tests.wait_timeout import WAIT_TIMEOUT

SECONDS_BETWEEN_SLOTS = streams.SECONDS_BETWEEN_SLOTS  # outside tests, which send pings themselves


@pytest.fixture(autouse=True)
def only_manual_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SECONDS_BETWEEN_SLOTS", 3600.0)


@dataclass
class StreamContent:
    """The content of a stream: events, and the names of fields without an event."""

    kinds: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    data: list[Any] = field(default_factory=list)


def parse_stream(text: str) -> StreamContent:
    """As a browser reads it: lines end with CR, LF or both, and an empty one ends an event."""
    stream = StreamContent()
    for block in text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line)
        if "data" in fields:
            stream.kinds.append(fields["event"])
            stream.ids.append(int(fields["id"]))
            stream.data.append(json.loads(fields["data"]))
    return stream


async def read_stream(api: Api, path: str, **options: Any) -> StreamContent:
    """Read the events that already exist."""
    answer = await api.get(path, params={"follow": "false"} | options.pop("params", {}), **options)
    assert answer.status_code == 200, answer.text
    return parse_stream(answer.text)


class Watcher:
    """A request whose answer is read as it comes. `read` False is one that has stopped reading."""

    def __init__(
        self, api: Api, path: str, key: str | None = None, last: int | None = None, cookie: str | None = None
    ) -> None:
        self.text = ""
        self.status = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self._grown = asyncio.Event()
        headers = [(b"x-api-key", (key or api.key or "").encode()), (b"host", b"api.example")]
        if cookie is not None:
            headers = [(b"cookie", cookie.encode()), (b"sec-fetch-site", b"same-origin"), (b"host", b"api.example")]
        if last is not None:
            headers.append((b"last-event-id", str(last).encode()))
        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "client": ("203.0.113.9", 1),
            "server": ("api.example", 80),
            "scheme": "http",
            "http_version": "1.1",
            "root_path": "",
        }
        self.task = asyncio.create_task(api.server(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.text += message.get("body", b"").decode()
        self._grown.set()

    async def until(self, wanted: str) -> StreamContent:
        """All that came, once this has."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while wanted not in self.text:
                self._grown.clear()
                await self._grown.wait()
        return parse_stream(self.text)

    async def wait_for_end(self) -> StreamContent:
        async with asyncio.timeout(WAIT_TIMEOUT):
            await self.task
        return parse_stream(self.text)


@asynccontextmanager
async def open_watchers(api: Api, *paths: str, **options: Any) -> AsyncIterator[list[Watcher]]:
    """Requests that are open, each of which has been answered so far."""
    watchers = [Watcher(api, path, **options) for path in paths]
    try:
        for watcher in watchers:
            await watcher.until("retry: ")
        yield watchers
    finally:
        for watcher in watchers:
            watcher.task.cancel()
        await asyncio.gather(*(watcher.task for watcher in watchers), return_exceptions=True)


async def test_a_run_is_streamed_from_its_beginning_to_its_end(api: Api) -> None:
    run = await api.start()
    async with open_watchers(api, f"/api/v1/runs/{run}/live") as (watcher,):
        await api.sandbox.work()
        stream = await watcher.wait_for_end()
    assert stream.kinds[0] == "start"
    assert stream.kinds[-1] == "end"
    assert stream.ids == [event.id for event in await api.client.runs.list_events(UUID(run))]
    assert {each["run"] for each in stream.data} == {run}


async def test_a_reconnecting_client_gets_the_events_after_its_last_one_without_duplicates(api: Api) -> None:
    run = await api.start()
    await api.sandbox.work()
    everything = await read_stream(api, f"/api/v1/runs/{run}/live")
    for audio_review in everything.ids[:-1]:
        rest = await read_stream(api, f"/api/v1/runs/{run}/live", headers={"Last-Event-ID": str(audio_review)})
        assert rest.ids == [number for number in everything.ids if number > audio_review]


async def test_a_browser_that_received_the_end_is_told_not_to_reconnect(api: Api) -> None:
    run = await api.start()
    await api.sandbox.work()
    last = (await read_stream(api, f"/api/v1/runs/{run}/live")).ids[-1]
    answer = await api.get(f"/api/v1/runs/{run}/live", headers={"Last-Event-ID": str(last)})
    assert (answer.status_code, answer.content) == (204, b"")


async def test_an_orphan_that_is_resolved_after_the_end_does_not_keep_a_stream_open(open_api: OpenApi) -> None:
    async with open_api(application=losing()) as api:
        run = (await api.client.start("losing")).id
        await api.sandbox.work()
        end = (await read_stream(api, f"/api/v1/runs/{run}/live")).ids[-1]
        async with open_watchers(api, "/api/v1/live") as (watcher,):
            await api.client.runs.resolve_orphan(run, "order", "order", "nothing_found")
            await watcher.until("nothing_found")
        for last in (0, end):
            async with open_watchers(api, f"/api/v1/runs/{run}/live", last=last) as (watcher,):
                assert (await watcher.wait_for_end()).kinds[-1] == "orphan"


async def test_all_runs_are_streamed_from_now_on(api: Api) -> None:
    earlier = await api.start()
    async with open_watchers(api, "/api/v1/live") as (watcher,):
        later = await api.start()
        stream = await watcher.until(later)
    assert earlier not in watcher.text
    assert stream.kinds == ["start"]


async def test_a_tenant_receives_events_of_its_own_runs_only(api: Api) -> None:
    key = await api.make_key("runs:read", tenant="shop")
    async with open_watchers(api, "/api/v1/live", key=key) as (watcher,):
        theirs = await api.client.start("film", tenant="blog")
        own = await api.client.start("film", tenant="shop")
        await watcher.until(str(own.id))
        assert str(theirs.id) not in watcher.text
    behind = await read_stream(api, "/api/v1/live", key=key, params={"after": 0})
    assert {each["run"] for each in behind.data} == {str(own.id)}
    assert (await api.get(f"/api/v1/runs/{theirs.id}/live", key=key)).status_code == 404


@pytest.mark.parametrize("when", ["before the look", "after it"])
async def test_an_event_that_occurs_while_history_is_read_is_sent_once(api: Api, when: str) -> None:
    run = await api.start()
    live: Streams = api.server.state.live
    history = live.reader.read_history

    async def and_then_it_works(*given: Any, **options: Any) -> list[LiveEvent]:
        if when == "before the look":
            await api.sandbox.work()
        found = await history(*given, **options)
        await api.sandbox.work()
        return found

    live.reader.read_history = and_then_it_works  # type: ignore[method-assign]
    async with open_watchers(api, f"/api/v1/runs/{run}/live") as (watcher,):
        stream = await watcher.wait_for_end()
    assert stream.ids == [event.id for event in await api.client.runs.list_events(UUID(run))]


async def test_an_event_already_sent_by_another_server_is_not_repeated(api: Api) -> None:
    async with open_watchers(api, "/api/v1/live"):
        run = await api.client.start("film")
        (event,) = await api.client.runs.list_events(run.id)
        async with open_watchers(api, "/api/v1/live", last=event.id) as (watcher,):
            later = await api.client.start("film")
            stream = await watcher.until(str(later.id))
    assert [each["run"] for each in stream.data] == [str(later.id)]


async def test_a_client_that_was_disconnected_for_too_long_must_start_over(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retoma.server.routes.live.MAX_EVENTS_BEHIND", 1)
    for _ in range(3):
        await api.start()
    answer = await api.get("/api/v1/live", headers={"Last-Event-ID": "1"})
    assert (answer.status_code, answer.json()["code"]) == (410, "GONE")
    assert api.server.state.live.count == 0


async def test_the_number_of_streams_per_key_is_limited(open_api: OpenApi) -> None:
    async with open_api(streams_per_key=2) as api, open_watchers(api, "/api/v1/live", "/api/v1/live"):
        answer = await api.get("/api/v1/live")
        assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_STREAMS")
        assert answer.headers["Retry-After"] == "5"
        other = await api.make_key("runs:read")
        assert (await api.get("/api/v1/live", key=other, params={"follow": "false"})).status_code == 200


async def test_one_reader_serves_all_watchers(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_watchers(api, *["/api/v1/live"] * 20) as watchers:
        reader = api.server.state.live.reader
        reads: list[int] = []
        read = reader.read

        async def counted() -> list[LiveEvent]:
            found: list[LiveEvent] = await read()
            reads.append(len(found))
            return found

        monkeypatch.setattr(reader, "read", counted)
        run = await api.start()
        for watcher in watchers:
            await watcher.until(run)
    assert sum(reads) == 1


async def test_an_unexpected_error_of_the_reader_loses_no_event(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_loops, "SECONDS_BEFORE_RESTART", 0.0)
    live: Streams = api.server.state.live
    async with open_watchers(api, "/api/v1/live") as (first,):
        failed, going_on = asyncio.Event(), asyncio.Event()
        read = live.reader.read

        async def broken() -> list[LiveEvent]:
            monkeypatch.setattr(live.reader, "read", read)
            failed.set()
            await going_on.wait()
            raise ValueError("a bug of ours")

        monkeypatch.setattr(live.reader, "read", broken)
        async with asyncio.timeout(WAIT_TIMEOUT):
            await failed.wait()
        missed = await api.start()
        async with open_watchers(api, "/api/v1/live"):
            going_on.set()
            last = await api.start()
            stream = await first.until(last)
    assert [each["run"] for each in stream.data] == [missed, last]


async def test_a_client_that_cannot_be_sent_an_event_is_disconnected_and_reconnects_for_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(event: LiveEvent) -> bytes:
        raise ValueError("a bug of ours")

    live: Streams = api.server.state.live
    async with open_watchers(api, "/api/v1/live") as (watcher,):
        monkeypatch.setattr(streams, "encode_event", broken)
        with pytest.raises(ValueError, match="a bug of ours"):
            live.distribute([make_event(7)])
        assert (await watcher.wait_for_end()).kinds == []
        assert live.count == 0


async def test_a_ping_that_fails_is_not_the_last(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    live: Streams = api.server.state.live
    pinged = asyncio.Event()
    ping = live.send_pings

    async def broken(some: Any) -> None:
        monkeypatch.setattr(live, "send_pings", again)
        raise ValueError("a bug of ours")

    async def again(some: Any) -> None:
        await ping(some)
        pinged.set()

    monkeypatch.setattr(background_loops, "SECONDS_BEFORE_RESTART", 0.0)
    monkeypatch.setattr(streams, "SECONDS_BETWEEN_SLOTS", 0.0)
    monkeypatch.setattr(live, "send_pings", broken)
    async with open_watchers(api, "/api/v1/live"), asyncio.timeout(WAIT_TIMEOUT):
        await pinged.wait()


async def test_a_client_that_connects_as_the_reader_stops_receives_everything(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has no clients except one that waits until it has read what another server sent."""
    live: Streams = api.server.state.live
    idle, reached = asyncio.Event(), asyncio.Event()
    reads = 0

    async def at_once() -> list[LiveEvent]:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)
        if reads > 2 * streams.MAX_IDLE_READS:
            monkeypatch.undo()
            idle.set()
        return []

    async def held(after: int) -> None:
        await reached.wait()

    monkeypatch.setattr(live.reader, "read_after_pause", at_once)
    monkeypatch.setattr(live, "_catch_up", held)
    watcher = Watcher(api, "/api/v1/live")
    async with asyncio.timeout(WAIT_TIMEOUT):
        await idle.wait()
    reached.set()
    await watcher.until("retry: ")
    run = await api.start()
    assert (await watcher.until(run)).kinds == ["start"]
    watcher.task.cancel()


async def test_a_reader_without_clients_stops_and_restarts(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    live: Streams = api.server.state.live
    monkeypatch.setattr(streams, "MAX_IDLE_READS", 1)
    async with open_watchers(api, "/api/v1/live"):
        tasks = list(live._tasks)
    async with asyncio.timeout(WAIT_TIMEOUT):
        await asyncio.wait(tasks)
    async with open_watchers(api, "/api/v1/live") as (watcher,):
        await watcher.until(await api.start())


async def test_a_stream_declares_that_it_must_not_be_cached(api: Api) -> None:
    answer = await api.get("/api/v1/live", params={"follow": "false"})
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Type"].startswith("text/event-stream")


async def test_the_openapi_document_describes_streams(api: Api) -> None:
    paths = (await api.get("/api/v1/openapi.json")).json()["paths"]
    for path, other in (("/api/v1/live", "410"), ("/api/v1/runs/{run}/live", "204")):
        answers = paths[path]["get"]["responses"]
        assert list(answers["200"]["content"]) == ["text/event-stream"]
        assert other in answers


async def test_a_named_ping_with_the_last_sent_position_is_sent_every_thirty_seconds(api: Api) -> None:
    run = await api.start()
    async with open_watchers(api, "/api/v1/live") as (watcher,):
        live: Streams = api.server.state.live
        await live.send_pings(live.list_streams())
        stream = await watcher.until("event: ping")
        assert len(live._ping_slots) * SECONDS_BETWEEN_SLOTS <= 30
        (last,) = [event.id for event in await api.client.runs.list_events(UUID(run))]
    assert (stream.kinds, stream.ids, stream.data) == (["ping"], [last], [{"through": last}])


async def test_the_ping_of_a_run_has_its_current_state(api: Api) -> None:
    run = await api.start()
    async with open_watchers(api, f"/api/v1/runs/{run}/live") as (watcher,):
        live: Streams = api.server.state.live
        await live.send_pings(live.list_streams())
        stream = await watcher.until("event: ping")
    assert stream.data[-1] == {"through": stream.ids[-1], "run": run, "state": "running"}


async def test_a_ping_is_sent_though_the_database_does_not_respond(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(database: object, runs: object) -> None:
        raise DatabaseUnavailable("the database is unreachable")

    run = await api.start()
    async with open_watchers(api, f"/api/v1/runs/{run}/live") as (watcher,):
        live: Streams = api.server.state.live
        monkeypatch.setattr(event_stream, "get_run_states", unavailable)
        await live.send_pings(live.list_streams())
        assert "state" not in (await watcher.until("event: ping")).data[-1]


async def test_a_stream_ends_after_its_maximum_duration_and_frees_its_slot(api: Api) -> None:
    async with open_watchers(api, "/api/v1/live") as (watcher,):
        live: Streams = api.server.state.live
        for _ in range(streams.MAX_STREAM_SECONDS // streams.SECONDS_BETWEEN_PINGS):
            await live.send_pings(live.list_streams())
        assert set((await watcher.wait_for_end()).kinds) == {"ping"}
        assert live.count == 0


async def test_a_stream_ends_when_its_key_is_revoked(api: Api) -> None:
    key = await api.client.api_keys.create("watcher", ["runs:read"])
    live: Streams = api.server.state.live
    async with (
        open_watchers(api, "/api/v1/live", key=key.secret) as (revoked,),
        open_watchers(api, "/api/v1/live") as (other,),
    ):
        await live.end_invalid_streams()
        assert live.count == 2
        await api.client.api_keys.revoke(key.key.id)
        await live.end_invalid_streams()
        await revoked.wait_for_end()
        assert (live.count, other.task.done()) == (1, False)


async def test_a_stream_ends_soon_after_logout(open_api: OpenApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SECONDS_BETWEEN_CHECKS", 0.01)
    async with visit_pages(open_api)(development=False) as visitor:
        await visitor.log_in()
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        async with open_watchers(visitor.api, "/api/v1/live", cookie=cookie) as (watcher,):
            await visitor.post("/logout", {"csrf": await visitor.token()})
            await watcher.wait_for_end()
            assert watcher.status == 200


async def test_a_client_that_reads_is_not_disconnected_by_a_burst_of_events(api: Api) -> None:
    async with open_watchers(api, "/api/v1/live") as (watcher,):
        live: Streams = api.server.state.live
        live.distribute([make_event(number, data="x" * 10_000) for number in range(100)])
        assert len((await watcher.until('"id":99')).kinds) == 100
        assert live.count == 1


async def test_a_client_that_does_not_read_is_disconnected_and_delays_no_other(api: Api) -> None:
    async with open_watchers(api, "/api/v1/live", "/api/v1/live") as (slow, quick):
        live: Streams = api.server.state.live
        slow.reads.clear()
        some = [make_event(number, data="x" * 10_000) for number in range(10)]
        for _ in range(MAX_BACKLOG_BYTES // 100_000 + 3):
            live.distribute(some)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert len(parse_stream(quick.text).kinds) >= 10
        slow.reads.set()
        await slow.wait_for_end()
        assert not slow.text.endswith("end")
        assert live.count == 1


def test_the_buffer_of_a_client_that_does_not_read_is_bounded() -> None:
    stream = Stream("key", None, None, 0)
    aborted = []
    stream.abort = lambda: aborted.append(True)
    for _ in range(100):
        stream.put(b"x" * 10_000)
    assert stream.is_cut
    assert stream._chunks == []
    assert aborted == [True]


HOSTILE = 'x\r\ndata: {"forged": true}\r\n\r\nevent: end\rid: 9\n\n\u2028'


def test_user_text_cannot_end_a_line_or_an_event() -> None:
    stream = parse_stream(encode_event(make_event(7, item=HOSTILE, step=HOSTILE, data={HOSTILE: HOSTILE})).decode())
    assert (stream.kinds, stream.ids) == (["result"], [7])
    assert (stream.data[0]["item"], stream.data[0]["data"]) == (HOSTILE, {HOSTILE: HOSTILE})


def make_event(number: int, **values: Any) -> LiveEvent:
    known: dict[str, Any] = {
        "id": number,
        "run": uuid4(),
        "run_title": None,
        "tenant": 1,
        "at": datetime(2030, 1, 1, tzinfo=UTC),
        "kind": "result",
        "revision": 1,
        "attempt": 1,
        "step": "image",
        "item": "1",
        "data": None,
    }
    return LiveEvent(**(known | values))


@pytest.mark.parametrize("values", ["-1", "x", "1; drop", str(2**63)])
async def test_an_invalid_event_number_is_rejected(api: Api, values: str) -> None:
    assert (await api.get("/api/v1/live", headers={"Last-Event-ID": values})).status_code == 422


async def test_a_real_connection_is_ended_when_it_does_not_read_and_when_the_server_stops(open_api: OpenApi) -> None:
    async with open_api() as api:
        settings = Settings(port=0)
        listening = bind_socket(settings, "127.0.0.1")
        place = get_address(listening).removeprefix("http://").rsplit(":", 1)
        live: Streams = api.server.state.live
        async with run_server(api.server, listening, settings):
            deaf = await connect(place, api.key or "", buffer=4096)
            hearing = await connect(place, api.key or "", buffer=2**20)
            some = [make_event(number, data="x" * 10_000) for number in range(10)]
            async with asyncio.timeout(WAIT_TIMEOUT):
                while live.count == 2:
                    live.distribute(some)
                    await hearing.read(2**20)
            assert live.count == 1, "what is held for one who does not read must be given up"
        async with asyncio.timeout(WAIT_TIMEOUT):
            rest = await hearing.read_to_end()
        assert rest.endswith(b"0\r\n\r\n"), "the reader gets the end"
        deaf.close()


class RawConnection:
    """A connection that reads on request."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made

    async def read(self, most: int) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self._socket, most)

    async def read_to_end(self) -> bytes:
        last = b""
        while some := await self.read(2**20):
            last = (last + some)[-20:]
            if last.endswith(b"0\r\n\r\n"):
                break
        self.close()
        return last

    def close(self) -> None:
        self._socket.close()


async def connect(place: list[str], key: str, buffer: int) -> RawConnection:
    loop = asyncio.get_running_loop()
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.setblocking(False)
    await loop.sock_connect(made, (place[0], int(place[1])))
    await loop.sock_sendall(made, f"GET /api/v1/live HTTP/1.1\r\nHost: h\r\nX-API-Key: {key}\r\n\r\n".encode())
    raw = RawConnection(made)
    assert (await raw.read(4096)).startswith(b"HTTP/1.1 200")
    return raw


def test_a_connection_that_has_closed_is_no_error() -> None:
    """Each client that leaves its stream would be logged as a failed request."""

    class ClosedSocket:
        def setsockopt(self, *_: int) -> None:
            raise ValueError("negative file descriptor")  # as uvloop does

    class ClosedTransport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return ClosedSocket()

    _limit_silence(ClosedTransport(), 0)
