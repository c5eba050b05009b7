"""Warn if a server without RETOMA_PUBLIC_URL receives a request for a host other than localhost."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from retoma.logs import get_logger
from retoma.server.dev_auth import is_loopback, parse_host

log = get_logger(__name__)
MAX_HOST_LENGTH = 255


class PublicUrlCheck:
    """Log the first such request, usually from a reverse proxy: links and callbacks would point to localhost."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            not self._has_warned
            and scope["type"] == "http"
            and (host := parse_host(Headers(scope=scope).get("host", "")))
            and not _is_local(host)
        ):
            self._has_warned = True
            log.warning(
                "public_url_needed",
                message="RETOMA_PUBLIC_URL is not set, and a request named another host: links and callbacks point to "
                "this machine. Set it for the server and every worker, for example to https://retoma.example.com",
                host=host[:MAX_HOST_LENGTH],
            )
        await self._app(scope, receive, send)


def _is_local(host: str) -> bool:
    return is_loopback(host) or host.removesuffix(".").endswith("localhost")
