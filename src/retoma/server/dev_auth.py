"""Authenticate the developer of `retoma dev` without an API key.

The developer is an administrator, so a request must be provably local. A TCP connection cannot prove that: a reverse
proxy on this machine also connects from 127.0.0.1. Each start of `retoma dev` therefore creates a token. The URL
printed at startup carries it, the browser keeps it in a cookie, and programs send it as their API key.
"""

from __future__ import annotations

import hmac
import ipaddress
from enum import StrEnum
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

TOKEN_PARAMETER = "token"  # noqa: S105  (the name of the query parameter in the printed URL)
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
    """The reason why a request is not the developer's."""

    PROXIED = "proxied"
    NOT_LOCAL = "not_local"
    NO_TOKEN = "no_token"  # noqa: S105  (a name)


class DevAuth:
    """Check requests for the token of this start of `retoma dev`. `name` is the developer's."""

    def __init__(self, token: str, name: str) -> None:
        self._token = token.encode()
        self.name = name

    def explain_refusal(self, request: Request, secret: str | None) -> DevRefusal | None:
        """Return why the request is refused, or None if it is the developer's. `secret` is its API key, if any."""
        token = secret if secret is not None else request.cookies.get(_cookie_name(request))
        return _explain_remote(request) or (None if self._is_token(token) else DevRefusal.NO_TOKEN)

    def is_login_link(self, request: Request) -> bool:
        """Return whether the request opens the printed URL on this machine."""
        token = request.query_params.get(TOKEN_PARAMETER)
        return request.method == "GET" and self._is_token(token) and _explain_remote(request) is None

    def set_cookie(self, request: Request, response: Response) -> None:
        """Store the token in a cookie that lasts until the browser closes."""
        response.set_cookie(_cookie_name(request), self._token.decode(), httponly=True, samesite="strict")

    def _is_token(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(token.encode(), self._token)


def strip_token(request: Request) -> str:
    """Return the path and query of the request without the token."""
    query = [pair for pair in parse_qsl(request.url.query, keep_blank_values=True) if pair[0] != TOKEN_PARAMETER]
    path = f"/{request.url.path.lstrip('/')}"  # a browser reads `//name` as another host
    return f"{path}?{urlencode(query)}" if query else path


def _cookie_name(request: Request) -> str:
    """Return a name with the port, because browsers share cookies among all ports of a host."""
    return f"retoma-dev-{request.url.port or 80}"


def _explain_remote(request: Request) -> DevRefusal | None:
    if request.scope.get("http_version") == "1.0" or any(map(_is_proxy_header, request.headers)):
        return DevRefusal.PROXIED
    return None if _is_local(request) else DevRefusal.NOT_LOCAL


def _is_proxy_header(header: str) -> bool:
    return header in _PROXY_HEADERS or header.startswith(_PROXY_PREFIXES)


def _is_local(request: Request) -> bool:
    """Return whether a program on this machine sent the request, not a page of another site in a local browser.

    A web page can make the browser call this machine directly or through DNS rebinding. The Host, Origin and
    Sec-Fetch-Site headers, which a page cannot forge, reveal both.
    """
    headers = request.headers
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    names = [
        request.client.host if request.client else "",
        parse_host(headers.get("host", "")),
        parse_host(parse_netloc(origin)) if origin else "localhost",
    ]
    return all(map(is_loopback, names))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_netloc(url: str) -> str:
    """Return the host and port of a URL as they are, or "" if it has none or cannot be parsed."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def parse_host(netloc: str) -> str:
    """Return the host without port and brackets, or "" if it cannot be parsed."""
    try:
        return urlsplit(f"//{netloc}").hostname or ""
    except ValueError:
        return ""
