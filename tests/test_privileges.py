"""What a hidden process conceals from others, and what code without privileges can still do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retoma import privileges
from tests.system_packages import require

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and these privileges")

NOBODY = 65534
CANARY = "canary-5b1f"
MODULE = Path(privileges.__file__).read_text()
SPY = """
import os
for name in ("environ", "mem"):
    try:
        open(f"/proc/{os.getppid()}/{name}", "rb").read(1)
        print(name, "opened")
    except OSError as error:
        print(name, type(error).__name__)
"""
PARENT = """
{module}
import subprocess, sys
if {hidden}:
    hide_process()
subprocess.run([sys.executable, "-I", "-S", "-c", {spy!r}], preexec_fn=drop_privileges, env={{}})
"""


def spy_on_parent(user: int, *, hidden: bool) -> list[str]:
    """Return what a child without privileges can learn about its parent."""
    script = PARENT.format(module=MODULE, hidden=hidden, spy=SPY)
    ended = subprocess.run(
        [python_of(user), "-I", "-S", "-c", script],
        user=user,
        group=user,
        extra_groups=[],
        cwd="/",
        env={"API_KEY": CANARY},
        capture_output=True,
        text=True,
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def python_of(user: int) -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-I", "-S", "-c", ""], user=user, group=user, extra_groups=[]).returncode == 0:
                return python
        except OSError:
            continue
    require(False, f"a Python that uid {user} can run")
    raise AssertionError("unreachable")


def test_root_without_privileges_cannot_inspect_a_process_that_has_them() -> None:
    require(os.geteuid() == 0, "root")
    assert spy_on_parent(0, hidden=True) == ["environ PermissionError", "mem PermissionError"]


def test_a_hidden_process_keeps_its_environment_from_its_own_user() -> None:
    user = os.geteuid() or NOBODY
    assert spy_on_parent(user, hidden=False)[0] == "environ opened"
    assert spy_on_parent(user, hidden=True) == ["environ PermissionError", "mem PermissionError"]


def test_programs_that_root_starts_gain_nothing_back() -> None:
    require(os.geteuid() == 0, "root")
    shown = subprocess.run(
        ["cat", "/proc/self/status"], preexec_fn=privileges.drop_privileges, capture_output=True, text=True
    )
    reported = dict(line.split(":\t") for line in shown.stdout.splitlines() if ":\t" in line)
    assert [int(reported[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0, 0, 0, 0]
    assert reported["NoNewPrivs"].strip() == "1"
