"""Where a URL leads: parsed once, and used as it was checked."""

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
    """`host` is in lower case and ASCII, without brackets or a last dot; `address` is set if it is one."""

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
    """Raises UnsafeUrl if it is no URL, or one that two parsers might read differently."""
    parts = _parse_url(url)
    if parts.scheme not in PORTS:
        raise UnsafeUrl(f"a URL begins with https:// or http://; given: {url[:40]!r}")
    if parts.userinfo or "@" in url.partition("//")[2].partition("/")[0]:
        raise UnsafeUrl(f"a URL with a user or a password in it is not taken: {parts.host!r}; send them as a header")
    host = parts.raw_host.decode().lower().removesuffix(".")
    address = parse_address(host)
    if not host.strip("."):
        raise UnsafeUrl(f"{url[:40]!r} is a placeholder: give the whole URL, such as https://example.com/file.jpg")
    if address is None and not is_host_name(host):
        raise UnsafeUrl(f"this is no host's name: {host[:80]!r}")
    port = PORTS[parts.scheme] if parts.port is None else parts.port
    if not 0 < port < 65536:
        raise UnsafeUrl(f"there is no port {port}: {host!r}")
    return Target(parts.scheme, host, port, parts.raw_path, address)


def is_host_name(host: str) -> bool:
    return len(host) <= 253 and _NAME.fullmatch(host) is not None


def strip_path(url: str) -> str:
    """For logs and messages: a path or query may hold a secret."""
    try:
        return parse_target(url).origin
    except UnsafeUrl:
        return "a URL that cannot be read"


def mask_query_values(url: str) -> str:
    """To show: the same URL with a mask in place of each value in its query, as one may be a token, and of a user and
    password."""
    place, mark, query = url.partition("#")[0].partition("?")
    place = _USERINFO.sub(rf"\1{MASK}@", place)
    given = (each.partition("=") for each in query.split("&") if each)
    return place + mark + "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in given)


def _parse_url(url: str) -> httpx2.URL:
    if not isinstance(url, str) or len(url) > MAX_URL_LENGTH:
        raise UnsafeUrl(f"a URL is a text of at most {MAX_URL_LENGTH} characters")
    if "\\" in url or any(character.isspace() for character in url):
        raise UnsafeUrl("a URL has neither spaces nor backslashes")
    try:
        return httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise UnsafeUrl(f"this is no URL: {str(error)[:120]}") from None
