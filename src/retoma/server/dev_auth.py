"""How `retoma dev` recognises its developer without an API key.

The server runs as an administrator, so a request must be provably local. Nothing in a TCP connection proves that: a
reverse proxy on this machine connects from 127.0.0.1, too. So every start has a token. The address that is printed at
the start carries it, the browser keeps it in a cookie, and programs send it as their API key.
"""

from __future__ import annotations

import hmac
import ipaddress
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

TOKEN_PARAMETER = "token"  # noqa: S105  (the name of the query parameter in the printed address)
_PROXY_HEADERS = frozenset(
    {"forwarded", "via", "client-ip", "true-client-ip", "wl-proxy-client-ip", "proxy-client-ip", "cdn-loop"}
)
_PROXY_PREFIXES = (
    "x-forwarded",
    "x-real-",
    "x-client-ip",
    "x-cluster-client",
    "x-original-",
    "x-originating-",
    "x-remote-",
    "x-envoy-",
    "x-azure-",
    "x-appengine-",
    "x-amzn-",
    "x-cloud-trace-",
    "x-arr-",
    "x-vercel-",
    "x-nf-",
    "x-proxy",
    "cf-",
    "fly-",
    "fastly-",
    "akamai-",
    "tailscale-",
    "ngrok-",
)


class DevRefusal(StrEnum):
    """Why a request is not the developer's."""

    PROXIED = "development proxied"
    NOT_LOCAL = "development not local"
    NO_TOKEN = "development no token"  # noqa: S105  (a name)


class DevAuth:
    """`token` is a secret of this start."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def explain_refusal(self, request: Request, secret: str | None) -> DevRefusal | None:
        """Return why the request is refused, or None for the developer's. `secret` is the API key that it shows."""
        shown = secret if secret is not None else request.cookies.get(_cookie_name(request))
        return _explain_remote(request) or (None if self._is_token(shown) else DevRefusal.NO_TOKEN)

    def is_login_link(self, request: Request) -> bool:
        """Whether this is the printed address, opened on this machine."""
        given = request.query_params.get(TOKEN_PARAMETER)
        return request.method == "GET" and self._is_token(given) and _explain_remote(request) is None

    def set_cookie(self, request: Request, response: Response) -> None:
        """Let the browser show the token from now on, until it is closed."""
        response.set_cookie(_cookie_name(request), self._token.decode(), httponly=True, samesite="strict")

    def _is_token(self, shown: str | None) -> bool:
        return shown is not None and hmac.compare_digest(shown.encode(), self._token)


def strip_token(request: Request) -> str:
    """Return the address of the request within this server, without its token."""
    query = [pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != TOKEN_PARAMETER]
    path = f"/{request.url.path.lstrip('/')}"  # `//name` would be another host to a browser
    return f"{path}?{urlencode(query)}" if query else path


def _cookie_name(request: Request) -> str:
    """Cookies are shared by all ports of a machine, so each server needs its own name."""
    return f"retoma-dev-{request.url.port or 80}"


def _explain_remote(request: Request) -> DevRefusal | None:
    if request.scope.get("http_version") == "1.0" or any(map(_is_proxy_header, request.headers)):
        return DevRefusal.PROXIED
    return None if _is_local(request) else DevRefusal.NOT_LOCAL


def _is_proxy_header(header: str) -> bool:
    return header in _PROXY_HEADERS or header.startswith(_PROXY_PREFIXES)


def _is_local(request: Request) -> bool:
    """Whether a program on this machine calls, and no web page of another site in its browser.

    A page can make a browser call this machine, under its own name by changing where that name leads, or under ours;
    the headers that only a browser can set give it away.
    """
    headers = request.headers
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    names = [
        request.client.host if request.client else "",
        _parse_host(headers.get("host", "")),
        _parse_host(urlsplit(origin).netloc) if origin else "localhost",
    ]
    return all(map(is_loopback, names))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse_host(netloc: str) -> str:
    """Without port and brackets; nothing if it cannot be understood."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
