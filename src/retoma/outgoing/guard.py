"""Who may be called: the open internet, and what this deployment allows besides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

from retoma.errors import DefinitionError, UnsafeUrl
from retoma.outgoing.addresses import Address, Network, is_public, parsed, unwrapped
from retoma.outgoing.target import PORTS, Target, is_name, target_of
from retoma.settings import Settings

Origin = tuple[str, str, int]  # scheme, host and port
SETTING = "RETOMA_ALLOW_HOSTS"
LOOPBACK = ("localhost", "127.0.0.0/8", "::1/128")
_LOCAL_NAMES = ("localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "arpa")


@dataclass(frozen=True)
class Guard:
    """A policy. What is allowed may have any port, plain http and a private address; all else none of these.

    Of `origins` only this scheme and this port of the host are allowed.
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    origins: frozenset[Origin] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Guard:
        return cls.allow(settings.allow_hosts)

    @classmethod
    def allow(cls, given: Iterable[str]) -> Guard:
        """Names of hosts, addresses, or networks such as `10.0.0.0/8`."""
        networks, hosts = [], set()
        for each in given:
            try:
                networks.append(ip_network(each.strip("[]"), strict=False))
            except ValueError:
                hosts.add(_name(each))
        return cls(frozenset(hosts), tuple(networks))

    def missing(self, given: Iterable[str]) -> list[str]:
        """Return which of these names, addresses and networks this guard does not allow."""
        return [each for each in given if not self._covers(Guard.allow([each]))]

    def _covers(self, other: Guard) -> bool:
        return other.hosts <= self.hosts and all(
            any(inner.version == outer.version and inner.subnet_of(outer) for outer in self.networks)  # type: ignore[arg-type]
            for inner in other.networks
        )

    def allowing(self, url: str) -> Guard:
        """Return a guard that also allows the scheme, host and port of this URL.

        Only for a URL of the settings. Call what a caller gives, or what that server answers with, by another guard.
        """
        target = target_of(url)
        return replace(self, origins=self.origins | {(target.scheme, target.host, target.port)})

    def check(self, url: str, field: str | None = None) -> Target:
        """Refuse what can be refused without asking a resolver. The same is checked again when connecting.

        `field` is where the URL stands in what was given; a refusal names it.
        """
        try:
            return self._checked(target_of(url))
        except UnsafeUrl as refused:
            raise UnsafeUrl(refused.why, field) from None

    def _checked(self, target: Target) -> Target:
        if self._allows(target):
            return target
        if target.scheme != "https":
            raise UnsafeUrl(f"only https is sent to {target.host!r}; {_hint(target.host)}")
        if target.port not in PORTS.values():
            raise UnsafeUrl(f"port {target.port} of {target.host!r} is neither 443 nor 80; {_hint(target.host)}")
        if target.address is not None:
            self.check_addresses(target.host, target.port, [target.address])
        elif target.host.rpartition(".")[2] in _LOCAL_NAMES or "." not in target.host:
            raise UnsafeUrl(f"{target.host!r} is a name within a private network; {_hint(target.host)}")
        return target

    def check_addresses(self, host: str, port: int, found: Sequence[Address]) -> None:
        """Refuse if any of the addresses of a host is neither public nor allowed: the next call may meet that one."""
        if host in self.hosts or any((host, port) == origin[1:] for origin in self.origins):
            return
        for address in found:
            if not self._allows_address(address) and not is_public(address):
                said = f"{host!r}" if str(address) == host else f"{host!r} leads to {address}, which"
                raise UnsafeUrl(f"{said} is not a public address; {_hint(host)}")

    def _allows(self, target: Target) -> bool:
        if target.host in self.hosts or (target.scheme, target.host, target.port) in self.origins:
            return True
        return target.address is not None and self._allows_address(target.address)

    def _allows_address(self, address: Address) -> bool:
        return any(unwrapped(address) in network for network in self.networks)


def _name(given: str) -> str:
    name = given.lower().removesuffix(".")
    if not is_name(name):
        raise DefinitionError(
            f"{SETTING} has {given!r:.80}; name a host, an address or a network, such as n8n.internal or 10.20.0.0/16, "
            "without a scheme, a port or a wildcard"
        )
    return name


def _hint(host: str) -> str:
    what = str(parsed(host) or host)
    return f"if it is meant to be called, whoever runs Retoma can allow it: add {what} to {SETTING}"
