"""A network of its own that can be switched off: nothing is closed, and nothing more arrives."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


@dataclass
class OwnNetwork:
    """The sockets of a network whose only address is 127.0.0.1."""

    server: socket.socket
    client: socket.socket

    def switch_off(self) -> None:
        _set_flags(self.server, 0)


def open_own_network() -> OwnNetwork:
    """Raise PermissionError if the system does not permit it."""
    with ThreadPoolExecutor(1) as pool:  # a network belongs to a thread, and to the sockets that it opens
        return pool.submit(_open).result()


def _open() -> OwnNetwork:
    unshare = getattr(ctypes.CDLL(None, use_errno=True), "unshare", None)
    if unshare is None or unshare(CLONE_NEWNET) != 0:
        raise PermissionError(os.strerror(ctypes.get_errno()))
    network = OwnNetwork(socket.socket(), socket.socket())
    _set_flags(network.server, IFF_UP)
    network.server.bind(("127.0.0.1", 0))
    network.server.listen()
    network.client.setblocking(False)
    return network


def _set_flags(of: socket.socket, flags: int) -> None:
    fcntl.ioctl(of, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags))
