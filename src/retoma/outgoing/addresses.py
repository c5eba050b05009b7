"""Decide which IP addresses are public."""

from __future__ import annotations

import socket
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The standard library's `is_global` treats some of these as public, and differs between releases.
_NOT_PUBLIC: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's NAT
        "127.0.0.0/8",
        "161.26.0.0/16",  # IBM's services, from within its cloud
        "166.8.0.0/14",  # the same
        "168.63.129.16/32",  # Azure's platform, from within any of its machines
        "169.254.0.0/16",  # link-local, and clouds' metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "::/96",  # unspecified, loopback, and the old form that holds an IPv4 address
        "::ffff:0:0:0/96",  # translated IPv4
        "64:ff9b::/96",  # NAT64: leads to any IPv4 address
        "64:ff9b:1::/48",
        "100::/64",  # discard
        "100:0:0:1::/64",
        "2001::/23",  # Teredo, benchmarks, ORCHID and other assignments of the protocol
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: leads to any IPv4 address
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fc00::/7",  # unique local
        "fe80::/10",  # link-local
        "fec0::/10",  # site-local
        "ff00::/8",  # multicast
    )
)
_GLOBAL_UNICAST = ip_network("2000::/3")


def parse_address(text: str) -> Address | None:
    """Return the address in `text`, also in old spellings that resolvers still accept (`127.1`, `0x7f000001`)."""
    try:
        return unwrap_address(ip_address(text))
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(text)) if text.isascii() and " " not in text else None
    except OSError:
        return None


def unwrap_address(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address; other addresses unchanged."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_public(address: Address) -> bool:
    """Return whether the address is on the public internet, and not of this machine."""
    address = unwrap_address(address)
    if isinstance(address, IPv6Address) and (address.scope_id or address not in _GLOBAL_UNICAST):
        return False
    return not any(address in network for network in _NOT_PUBLIC) and not is_local(address)


def is_local(address: Address) -> bool:
    """Return whether this machine has the address: only its own can be bound."""
    return _can_detect_local() and _can_bind(address)


@cache
def _can_detect_local() -> bool:
    """Return False if the system lets programs bind any address (ip_nonlocal_bind)."""
    return not _can_bind(IPv4Address("192.0.2.1"))


def _can_bind(address: Address) -> bool:
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
