"""Ports for servers that need one before they listen."""

from __future__ import annotations

import os
import socket
from itertools import count

# Below those that the system gives to programs that ask for any, and a part of its own for each process of tests.
FIRST, PORTS, PROCESSES = 20_000, 500, 24
_numbers = count(os.getpid())


def free_port() -> int:
    """One that neither another process of tests nor an outgoing connection takes before it is used."""
    tester = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES
    for _ in range(PORTS):
        port = FIRST + PORTS * tester + next(_numbers) % PORTS
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError(f"all {PORTS} ports from {FIRST + PORTS * tester} on are taken")
