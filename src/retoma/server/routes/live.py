"""Live events of runs, as server-sent events."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from retoma.errors import Gone
from retoma.records import Run
from retoma.server.principal import Principal, require_scope
from retoma.server.problems import document_problems
from retoma.server.routes.runs import get_own_run
from retoma.server.schemas import MAX_BIGINT
from retoma.server.streams import MAX_EVENTS_BEHIND, Stream, Streams, encode_event

router = APIRouter(tags=["live"])
Reader = Annotated[Principal, require_scope("runs:read")]
AfterEvent = Annotated[
    int | None, Query(ge=0, le=MAX_BIGINT, description="Only events after this one. Last-Event-ID takes precedence.")
]
LastEventId = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=MAX_BIGINT, description="Only events after this one.")
]
Follow = Annotated[bool, Query(description="False sends the events so far and closes the stream.")]
# Seconds in which a client must acknowledge what was sent, or it is gone. The next ping finds its connection closed.
ACKNOWLEDGE_SECONDS = 10
RETRY_LINE = b"retry: 2000\n\n"
_EXAMPLE = 'id: 4812\nevent: ping\ndata: {"through":4812}\n\n'
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, with the event's number as `id` and its kind as `event`. A `ping` follows "
        "every 15 seconds.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    }
}
_NO_MORE: dict[int | str, dict[str, Any]] = {204: {"description": "The run is over and all of its events were sent."}}


@router.get(
    "/runs/{run:uuid}/live",
    summary="Stream the events of a run, from the start or after an event",
    response_class=Response,
    responses=_STREAM | _NO_MORE | document_problems(404),
)
async def stream_run_events(
    request: Request,
    run: UUID,
    by: Reader,
    last: LastEventId = None,
    after: AfterEvent = None,
    follow: Follow = True,
) -> Response:
    found = await get_own_run(by, run)
    position = last if last is not None else after or 0
    streams: Streams = request.app.state.live
    if found.is_over and await by.client.runs.get_last_event_id(run) <= position:
        return Response(status_code=204)  # tells EventSource not to reconnect
    return _EventStreamResponse(streams, by, position, follow=follow, run=found)


@router.get(
    "/live",
    summary="Stream the events of all runs, from now on or after an event",
    response_class=Response,
    responses=_STREAM | document_problems(410),
)
async def stream_events(
    request: Request, by: Reader, last: LastEventId = None, after: AfterEvent = None, follow: Follow = True
) -> Response:
    position = last if last is not None else after
    return _EventStreamResponse(request.app.state.live, by, position, follow=follow)


class _EventStreamResponse(Response):
    """Open the stream only when the response is sent, so that an earlier failure leaves none open."""

    def __init__(
        self, streams: Streams, by: Principal, after: int | None, *, follow: bool, run: Run | None = None
    ) -> None:
        super().__init__(
            media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        del self.headers["content-length"]
        self._streams = streams
        self._by = by
        self._after = after
        self._follow = follow
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        by, run, transport = self._by, self._run, scope.get("state", {}).get("transport")
        stream = await self._streams.open(
            by.caller.actor.kind + by.caller.actor.id,
            run=run.id if run else None,
            tenants=by.client.allowed_tenants,
            after=self._after,
            credential=by.credential,
        )
        _limit_silence(transport, ACKNOWLEDGE_SECONDS)
        try:
            await self._send(stream, transport, send)
        finally:
            self._streams.close_stream(stream)
            _limit_silence(transport, 0)  # the next request on this connection may be a download that the client pauses

    async def _send(self, stream: Stream, transport: asyncio.Transport | None, send: Send) -> None:
        if transport is not None:
            stream.abort = transport.abort
        after = stream.starts_after if self._after is None else self._after
        if self._run is None and stream.starts_after - after > MAX_EVENTS_BEHIND:
            raise Gone("too many events since that one: fetch the runs again and reconnect without Last-Event-ID")
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send(_body_message(RETRY_LINE))
        ended = await self._send_history(stream, after, send)
        if ended or not self._follow:
            stream.end()
        while (chunk := await stream.next()) is not None:
            if transport is not None and transport.is_closing():
                return
            await send(_body_message(chunk))
        if not stream.is_cut:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_history(self, stream: Stream, after: int, send: Send) -> bool:
        """Send the events before the start of the stream. Return whether they include the end of the run."""
        last_kind = None
        while after < stream.starts_after and not stream.is_cut:
            found = await self._streams.reader.read_history(
                after, stream.starts_after, run=stream.run, tenants=stream.tenants
            )
            if not found:
                break
            # A call may become an orphan, and be resolved, long after the run has ended.
            last_kind = next((each.kind for each in reversed(found) if each.kind != "orphan"), last_kind or "end")
            after = found[-1].id
            await send(_body_message(b"".join(map(encode_event, found))))
        return self._run is not None and self._run.is_over and last_kind == "end"


def _limit_silence(transport: asyncio.Transport | None, seconds: float) -> None:
    """Close the connection of a client that vanished without closing it: otherwise the system waits for 15 minutes."""
    connection = transport.get_extra_info("socket") if transport is not None else None
    if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        with suppress(OSError, ValueError):  # it is closed (uvloop raises the second), or it is not TCP
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def _body_message(chunk: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
