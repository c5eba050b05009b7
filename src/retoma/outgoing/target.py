"""The target of a URL: parsed once, so the request uses exactly what was checked."""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx2

from retoma.errors import UnsafeUrl
from retoma.outgoing.addresses import Address, parse_address

MAX_URL_LENGTH = 2_000
MASK = "***"
PORTS = {"http": 80, "https": 443}
_USERINFO = re.compile(r"^([^/]*//)[^/]*@")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")


@dataclass(frozen=True)
class Target:
    """A parsed URL. `host` is lower-case ASCII without brackets or a final dot; `address` is set for IP addresses."""

    scheme: str
    host: str
    port: int
    path: bytes
    address: Address | None

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == PORTS[self.scheme] else f":{self.port}")


def parse_target(url: str) -> Target:
    """Parse a URL. Raise UnsafeUrl if it is invalid, or if two parsers might read it differently."""
    parts = _parse_url(url)
    if parts.scheme not in PORTS:
        raise UnsafeUrl(f"a URL must start with https:// or http://, not {url[:40]!r}")
    if parts.userinfo or "@" in url.partition("//")[2].partition("/")[0]:
        raise UnsafeUrl(f"a URL must not contain a user or a password: {parts.host!r}; send them in a header")
    host = parts.raw_host.decode().lower().removesuffix(".")
    address = parse_address(host)
    if not host.strip("."):
        raise UnsafeUrl(f"{url[:40]!r} is a placeholder: use the whole URL, such as https://example.com/file.jpg")
    if address is None and not is_host_name(host):
        raise UnsafeUrl(f"not a valid host name: {host[:80]!r}")
    port = PORTS[parts.scheme] if parts.port is None else parts.port
    if not 0 < port < 65536:
        raise UnsafeUrl(f"not a valid port of {host!r}: {port}")
    return Target(parts.scheme, host, port, parts.raw_path, address)


def is_host_name(host: str) -> bool:
    return len(host) <= 253 and _NAME.fullmatch(host) is not None


def strip_path(url: str) -> str:
    """Return the origin of a URL, for logs and messages: a path or query may contain a secret."""
    try:
        return parse_target(url).origin
    except UnsafeUrl:
        return "an invalid URL"


def mask_query_values(url: str) -> str:
    """Return the URL for display, with a mask in place of user, password and all query values, which may be tokens."""
    base, mark, query = url.partition("#")[0].partition("?")
    base = _USERINFO.sub(rf"\1{MASK}@", base)
    parameters = (each.partition("=") for each in query.split("&") if each)
    return base + mark + "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in parameters)


def _parse_url(url: str) -> httpx2.URL:
    if not isinstance(url, str) or len(url) > MAX_URL_LENGTH:
        raise UnsafeUrl(f"a URL must be a text of at most {MAX_URL_LENGTH} characters")
    if "\\" in url or any(character.isspace() for character in url):
        raise UnsafeUrl("a URL must not contain spaces or backslashes")
    try:
        return httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise UnsafeUrl(f"not a valid URL: {str(error)[:120]}") from None
