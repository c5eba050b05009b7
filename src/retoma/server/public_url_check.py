"""Warns when a server without RETOMA_PUBLIC_URL is called by a name that leads to it from elsewhere."""

from __future__ import annotations

from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from retoma.logs import get_logger

log = get_logger(__name__)
MAX_HOST_LENGTH = 255


class PublicUrlCheck:
    """Logs the first such request, as a reverse proxy sends it: links and callbacks would name this machine."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            not self._has_warned
            and scope["type"] == "http"
            and (host := _requested_host(scope))
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


def _requested_host(scope: Scope) -> str:
    """Return the host that was asked for, without its port, or an empty text."""
    given: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    return given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().removesuffix(".").endswith("localhost")
