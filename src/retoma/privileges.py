"""Hide this process from others, and drop the privileges of untrusted code.

These functions work on Linux, and do nothing on other systems.
"""

from __future__ import annotations

import ctypes
import getpass
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_SECUREBITS = 28
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_NO_ROOT = 0b1111  # programs that root starts permanently get no special rights
_CAPABILITIES = 64  # more than exist
_VERSION_3 = 0x20080522
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def hide_process() -> None:
    """Hide this process's environment and memory from other processes of its user: no ptrace, no /proc/PID/environ.

    Processes that it starts are not hidden. Debuggers and profilers of the same user cannot attach either.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def die_with_parent() -> None:
    """Let the system kill this process when its parent ends, however it ends."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def drop_privileges() -> None:
    """Drop all privileges beyond those of the account, permanently, for this process and all that it starts.

    Setuid programs gain nothing. Root loses its capabilities, and can only access its own files.
    """
    if _LIBC is None:
        return
    for number in range(_CAPABILITIES):
        if _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
            break  # no more capabilities, or not root
    _LIBC.prctl(_PR_SET_SECUREBITS, _NO_ROOT, 0, 0, 0)
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _LIBC.capset((ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def get_user_name() -> str:
    """Return the name of this process's user on this machine, or its number if it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
