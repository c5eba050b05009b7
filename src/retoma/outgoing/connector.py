"""Connect safely: resolve a name once, check every address, and connect to one of the checked addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address

import httpcore2

from retoma.outgoing.addresses import Address, parse_address
from retoma.outgoing.guard import Guard

Resolver = Callable[[str, int], Awaitable[list[str]]]


async def resolve_by_system(host: str, port: int) -> list[str]:
    """Return all addresses of a host, in the order to try them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class GuardedConnector(httpcore2.AsyncNetworkBackend):
    """The network backend of httpcore2. TLS and the Host header still use the requested name."""

    def __init__(self, guard: Guard, resolve: Resolver = resolve_by_system) -> None:
        self._guard = guard
        self._resolve = resolve
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve_and_check(host, port)
                return await self._connect_first(addresses, port, timeout, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"no connection within {timeout:g} s") from error

    async def _resolve_and_check(self, host: str, port: int) -> list[Address]:
        host = host.lower().removesuffix(".")
        if (literal := parse_address(host)) is not None:
            addresses = [literal]
        else:
            addresses = [ip_address(text) for text in await self._resolve_name(host, port)]
        self._guard.check_addresses(host, port, addresses)
        return addresses

    async def _resolve_name(self, host: str, port: int) -> list[str]:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"the host name does not resolve: {error}") from error
        if not found:
            raise httpcore2.ConnectError("the host name has no address")
        return found

    async def _connect_first(
        self,
        addresses: list[Address],
        port: int,
        timeout: float | None,
        local_address: str | None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address that answers. Each gets a share of the time, so none can use up all of it."""
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._network.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._network.connect_tcp(str(addresses[-1]), port, timeout, local_address, socket_options)
