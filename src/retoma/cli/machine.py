"""How many worker processes, and how many jobs of one, fit on this machine, or in this container."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Machine:
    """The CPUs that this process may use, how many of them are in use, and the memory that is left, in bytes. A value
    is None if the system does not tell it."""

    cpus: float
    load: float | None
    available_memory: int | None


def read_machine() -> Machine:
    return Machine(_count_cpus(), _read_load(), _read_available_memory())


def limit_workers(
    wanted: int, running: int, machine: Machine, *, cpus_per_worker: float, memory_per_worker: int
) -> tuple[int, str | None]:
    """Return how many of the wanted processes may run, and what limits them. Running ones are never stopped for it.

    There is room for one process per `cpus_per_worker`, and another is started only while a CPU is idle; 0 lifts both
    limits. Each new process needs `memory_per_worker` bytes of available memory.
    """
    limits: list[tuple[int, str | None]] = [(wanted, None)]
    if cpus_per_worker > 0:
        fitting = int(machine.cpus / cpus_per_worker)
        limits.append((fitting, f"{machine.cpus:g} CPUs, {cpus_per_worker:g} per worker"))
        if machine.load is not None and machine.load >= machine.cpus:
            limits.append((running, f"all CPUs are in use (load {machine.load:.1f})"))
    if machine.available_memory is not None:
        more = machine.available_memory // memory_per_worker
        limits.append((running + more, f"{machine.available_memory // 2**20} MiB of memory are available"))
    allowed, reason = min(limits, key=lambda limit: limit[0])
    # One process is always allowed: without it, work would wait for ever on a machine that others keep busy.
    return max(allowed, min(wanted, max(running, 1))), reason


def limit_concurrency(wanted: int, machine: Machine, *, cpus_per_job: float, memory_per_job: int) -> int:
    """Return how many of the wanted jobs the CPUs and the available memory have room for, at least 1.

    `memory_per_job` is in bytes. 0 lifts a limit.
    """
    limits = [wanted]
    if cpus_per_job > 0:
        limits.append(int(machine.cpus / cpus_per_job))
    if memory_per_job > 0 and machine.available_memory is not None:
        limits.append(machine.available_memory // memory_per_job)
    return max(min(limits), 1)


def _count_cpus() -> float:
    cpus = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    return min(cpus, int(quota) / int(period)) if quota.isdigit() and period.strip().isdigit() else cpus


def _read_load() -> float | None:
    """Return the mean number of processes that ran or waited for a CPU within the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _read_available_memory() -> int | None:
    found = re.search(r"^MemAvailable: +(\d+) kB$", _read(_MEMORY), re.MULTILINE)
    maximum, current = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    amounts = [int(found[1]) * 1024] if found else []
    if maximum.isdigit() and current.isdigit():
        amounts.append(max(int(maximum) - int(current), 0))
    return min(amounts, default=None)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
