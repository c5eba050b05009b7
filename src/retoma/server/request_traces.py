"""The spans of requests to this server."""

from __future__ import annotations

import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable

from fastapi.routing import RouteContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from retoma.server.request_rate import UNCOUNTED_PATHS
from retoma.trace_context import CURRENT_SPAN, LiveSpan, SpanContext, parse_traceparent
from retoma.tracing import TRACES, Span

_METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
_CONVERTER = re.compile(r":\w+(?=})")  # in `{run:uuid}`


class TraceRequests:
    """Record every request except health checks and reads of the metrics.

    A span has the route, not the path or the query: these may contain tokens. It continues the trace of the caller, if
    the caller sends `traceparent`, and is linked to the runs that the request starts, or to the attempt that waits for
    it if it is a callback.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[RouteContext]) -> None:
        self._app = app
        self._paths: defaultdict[object, list[str]] = defaultdict(list)  # by the functions that answer
        for route in routes:
            self._paths[route.endpoint].append(route.path or "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNCOUNTED_PATHS:
            await self._app(scope, receive, send)
            return
        parent = _read_parent(scope)
        trace_id = secrets.randbits(128) or 1 if parent is None else parent.trace_id
        live = LiveSpan(TRACES.get_context(trace_id, secrets.randbits(64) or 1, parent))
        status: int | None = None

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        token = CURRENT_SPAN.set(live)
        TRACES.make_parent(live.context)
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            CURRENT_SPAN.reset(token)
            TRACES.record(_build_span(scope, self._find_route(scope), live, parent, status))

    def _find_route(self, scope: Scope) -> str | None:
        """Return the path of the route with its parameters in braces, or None if no route matched."""
        own = getattr(scope.get("route"), "path", "")  # without the prefix of its router
        found = (path for path in self._paths.get(scope.get("endpoint"), ()) if path.endswith(own))
        return next((_CONVERTER.sub("", path) for path in found), None)


def _read_parent(scope: Scope) -> SpanContext | None:
    found = [value for name, value in scope["headers"] if name == b"traceparent"]
    return parse_traceparent(found[0].decode("latin-1")) if len(found) == 1 else None


def _build_span(
    scope: Scope, route: str | None, live: LiveSpan, parent: SpanContext | None, status: int | None
) -> Span:
    method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
    error = str(status) if status is not None and status >= 500 else None
    return Span(
        name=f"{'HTTP' if method == '_OTHER' else method} {route or ''}".strip(),
        context=live.context,
        parent=parent,
        started_at=live.started_at,
        ended_at=time.time_ns(),
        attributes={
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "url.scheme": scope.get("scheme"),
            "error.type": error,
        },
        kind="server",
        error=None if error is None else f"the server answered {error}",
        links=live.links,
    )
