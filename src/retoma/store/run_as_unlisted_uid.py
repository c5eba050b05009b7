"""Run a program under a uid without a name as if it had one.

    python -I -S run_as_unlisted_uid.py FILE UID GID PROGRAM ...

PostgreSQL's initdb and its single-user mode refuse an account that /etc/passwd does not list. In its own mount
namespace, this process covers /etc/passwd with FILE, which lists the account, then becomes PROGRAM. Other processes are
not affected. It needs root on Linux with CAP_SYS_ADMIN, and imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import sys

REFUSED = "cannot give PostgreSQL an account"
_PASSWD = b"/etc/passwd"
_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


def list_account(uid: int, gid: int) -> str:
    """Return the content of FILE."""
    return f"root:x:0:0::/:/bin/false\nretoma:x:{uid}:{gid}::/nonexistent:/bin/false\n"


def main() -> None:
    file, uid, gid, *command = sys.argv[1:]
    try:
        _cover_passwd(os.fsencode(file))
    except OSError as error:
        sys.exit(f"{REFUSED}: {error}")
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))
    os.execv(command[0], command)  # noqa: S606


def _cover_passwd(file: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("this system has no mount namespaces")
    _check(libc.unshare(_CLONE_NEWNS))
    _check(libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))
    _check(libc.mount(file, _PASSWD, None, ctypes.c_ulong(_MS_BIND), None))


def _check(returned: int) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
