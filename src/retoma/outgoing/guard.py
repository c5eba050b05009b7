"""The policy of outgoing requests: the public internet, and the hosts that this deployment allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

from retoma.errors import DefinitionError, UnsafeUrl
from retoma.outgoing.addresses import Address, Network, is_public, parse_address, unwrap_address
from retoma.outgoing.target import PORTS, Target, is_host_name, parse_target
from retoma.settings import Settings

Origin = tuple[str, str, int]  # scheme, host and port
ALLOW_HOSTS_SETTING = "RETOMA_ALLOW_HOSTS"
LOOPBACK = ("localhost", "127.0.0.0/8", "::1/128")
_LOCAL_NAMES = ("localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "arpa")


@dataclass(frozen=True)
class Guard:
    """A policy. Allowed hosts and networks may use any port, plain http and private addresses; others may not.

    `origins` are allowed only with their scheme and port.
    """

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    origins: frozenset[Origin] = frozenset()

    @classmethod
    def from_settings(cls, settings: Settings) -> Guard:
        return cls.from_hosts(settings.allow_hosts)

    @classmethod
    def from_hosts(cls, hosts_and_networks: Iterable[str]) -> Guard:
        """Return a guard that allows these host names, addresses or networks, such as `10.0.0.0/8`."""
        networks, hosts = [], set()
        for each in hosts_and_networks:
            try:
                networks.append(ip_network(each.strip("[]"), strict=False))
            except ValueError:
                hosts.add(_check_host_name(each))
        return cls(frozenset(hosts), tuple(networks))

    def list_not_allowed(self, hosts_and_networks: Iterable[str]) -> list[str]:
        """Return those host names, addresses and networks that this guard does not allow."""
        return [each for each in hosts_and_networks if not self._covers(Guard.from_hosts([each]))]

    def _covers(self, other: Guard) -> bool:
        return other.hosts <= self.hosts and all(
            any(inner.version == outer.version and inner.subnet_of(outer) for outer in self.networks)  # type: ignore[arg-type]
            for inner in other.networks
        )

    def with_origin_of(self, url: str) -> Guard:
        """Return a guard that also allows the scheme, host and port of this URL.

        Only for URLs from the settings. Use another guard for URLs from callers, or from that server's responses.
        """
        target = parse_target(url)
        return replace(self, origins=self.origins | {(target.scheme, target.host, target.port)})

    def check(self, url: str, field: str | None = None) -> Target:
        """Raise UnsafeUrl if the URL can be refused without resolving its host. Connecting checks the addresses.

        `field` is the name of the input that has the URL, for the message.
        """
        try:
            return self._check_target(parse_target(url))
        except UnsafeUrl as refused:
            raise UnsafeUrl(refused.reason, field) from None

    def _check_target(self, target: Target) -> Target:
        if self._allows(target):
            return target
        if target.scheme != "https":
            raise UnsafeUrl(f"use https for {target.host!r}; {_suggest_setting(target.host)}")
        if target.port not in PORTS.values():
            raise UnsafeUrl(
                f"port {target.port} of {target.host!r} is neither 443 nor 80; {_suggest_setting(target.host)}"
            )
        if target.address is not None:
            self.check_addresses(target.host, target.port, [target.address])
        elif target.host.rpartition(".")[2] in _LOCAL_NAMES or "." not in target.host:
            raise UnsafeUrl(f"{target.host!r} is a name of a private network; {_suggest_setting(target.host)}")
        return target

    def check_addresses(self, host: str, port: int, found: Sequence[Address]) -> None:
        """Raise UnsafeUrl if any address of a host is neither public nor allowed: the next call may use that one."""
        if host in self.hosts or any((host, port) == origin[1:] for origin in self.origins):
            return
        for address in found:
            if not self._allows_address(address) and not is_public(address):
                subject = f"{host!r}" if str(address) == host else f"{host!r} resolves to {address}, which"
                raise UnsafeUrl(f"{subject} is not a public address; {_suggest_setting(host)}")

    def _allows(self, target: Target) -> bool:
        if target.host in self.hosts or (target.scheme, target.host, target.port) in self.origins:
            return True
        return target.address is not None and self._allows_address(target.address)

    def _allows_address(self, address: Address) -> bool:
        return any(unwrap_address(address) in network for network in self.networks)


def _check_host_name(host: str) -> str:
    name = host.lower().removesuffix(".")
    if not is_host_name(name):
        raise DefinitionError(
            f"{ALLOW_HOSTS_SETTING} contains {host!r:.80}; use a host name, an address or a network, such as "
            "n8n.internal or 10.20.0.0/16, without a scheme, a port or a wildcard"
        )
    return name


def _suggest_setting(host: str) -> str:
    allowed = str(parse_address(host) or host)
    return f"to allow it, the operator of Retoma can add {allowed} to {ALLOW_HOSTS_SETTING}"
