"""Child processes for isolated steps: reused while healthy, killed at a timeout, replaced when they die."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from retoma.define.charge import Charge
from retoma.define.context import Context
from retoma.define.durations import as_timedelta
from retoma.define.isolation import Isolation
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import Outcome
from retoma.privileges import hide_process
from retoma.worker import child_bootstrap
from retoma.worker.attempt import OUT_OF_MEMORY, Crashed, build_crash_outcome, mask_outcome
from retoma.worker.child_process import LENGTH, READY, context_to_json, frame_message, outcome_from_json
from retoma.worker.process_reaper import ProcessReaper
from retoma.worker.step_call import StepCall

MAX_ANSWER_BYTES = 64 << 20  # results are far smaller
JOBS_PER_CHILD = 500
MAX_CONCURRENT_STARTS = max(2, os.cpu_count() or 1)
CPU_GRACE = 3.0  # seconds of CPU time beyond the limit, after which a child that ignores the signal is killed
PACKAGE_FOLDER = Path(child_bootstrap.__file__).parents[1]  # of this Retoma
INHERITED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HOME")


class ProcessPool:
    """Child processes by memory limit, at most as many as attempts that run at once.

    Starting a child is slow, and quick attempts need few: only a few start at a time, and an attempt that waits for its
    turn takes a child that has become idle meanwhile.
    """

    def __init__(self) -> None:
        self._idle: dict[int, list[ChildProcess]] = {}
        self._reaper = ProcessReaper()
        self._starting = asyncio.Semaphore(MAX_CONCURRENT_STARTS)

    async def get_child(self, isolation: Isolation) -> ChildProcess:
        """Return an idle child, or start one."""
        if (idle := await self._pop_idle(isolation)) is not None:
            return idle
        async with self._starting:
            return await self._pop_idle(isolation) or await ChildProcess.start(isolation.memory, self._reaper)

    async def run_attempt(
        self, child: ChildProcess, step_call: StepCall, claim: Claim, context: Context | None
    ) -> Outcome:
        """Run one attempt in a child from `get_child`. If this is cancelled, kill the child at once."""
        isolation = step_call.step.policy.isolation
        assert isolation is not None
        began = time.monotonic()
        try:
            with child.limit_cpu(isolation):
                answer = await self._ask_child(
                    child, _build_request(step_call, claim, context, isolation, child), step_call.step.name
                )
        except (Crashed, AnswerTooLarge) as error:
            await child.kill()
            return build_crash_outcome(step_call, claim, error, time.monotonic() - began)
        except BaseException:
            await child.kill()
            raise
        await self._return_or_kill(isolation, child, answer)
        _record_charges(context, answer)
        return mask_outcome(outcome_from_json(claim, answer))

    async def close(self) -> None:
        for children in self._idle.values():
            for child in children:
                await child.kill()
        self._idle.clear()
        self._reaper.close()

    async def _ask_child(self, child: ChildProcess, request: dict[str, Any], step: str) -> dict[str, Any]:
        try:
            return await child.ask(request)
        except EOFError:
            raise await child.explain_death(step) from None

    async def _pop_idle(self, isolation: Isolation) -> ChildProcess | None:
        idle = self._idle.setdefault(isolation.memory, [])
        while idle:
            child = idle.pop()
            if child.is_alive:
                return child
            await child.kill()
        return None

    async def _return_or_kill(self, isolation: Isolation, child: ChildProcess, answer: dict[str, Any]) -> None:
        """Keep the child for other attempts, unless it has run enough of them or still holds too much memory."""
        is_healthy = answer.get("error", {}).get("code") != OUT_OF_MEMORY and answer["grown"] <= isolation.memory // 2
        if is_healthy and child.jobs < JOBS_PER_CHILD:
            self._idle[isolation.memory].append(child)
        else:
            await child.kill()


class AnswerTooLarge(ValueError):
    """The answer of a child is too large to be read into the worker's memory."""


class ChildProcess:
    def __init__(self, process: Process, reaper: ProcessReaper) -> None:
        self.jobs = 0
        self.known_graphs: set[tuple[int, str]] = set()  # the versions and steps that it has the graph of
        self._process = process
        self._reaper = reaper
        self._is_over_cpu_limit = False
        self._start_error: str | None = None
        reaper.watch(process.pid)

    @classmethod
    async def start(cls, memory: int, reaper: ProcessReaper) -> ChildProcess:
        hide_process()
        environment = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # it imports nothing from the folder that its worker was started in
            child_bootstrap.__file__,
            str(PACKAGE_FOLDER),
            json.dumps(sys.path),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            start_new_session=True,
        )
        child = cls(process, reaper)
        child._send({"path": sys.path, "memory": memory})
        try:
            await child._wait_until_ready()
        except BaseException:
            await child.kill()
            raise
        return child

    async def _wait_until_ready(self) -> None:
        """Wait until the child is ready or has died: the next request reports how it died."""
        assert self._process.stdout is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if await self._process.stdout.readexactly(len(READY)) == child_bootstrap.FAILED:
                self._start_error = (await self._process.stdout.read()).decode(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @contextmanager
    def limit_cpu(self, isolation: Isolation) -> Iterator[None]:
        """Kill the child if the attempt exceeds its CPU time: a step may ignore the kernel's signal."""
        if isolation.cpu is None or sys.platform != "linux":
            yield
            return
        limit = self._get_cpu_seconds() + as_timedelta(isolation.cpu).total_seconds() + CPU_GRACE
        watch = asyncio.create_task(self._kill_at(limit))
        try:
            yield
        finally:
            watch.cancel()

    async def _kill_at(self, limit: float) -> None:
        while (left := limit - self._get_cpu_seconds()) > 0:  # noqa: ASYNC110  (the kernel does not notify)
            await asyncio.sleep(left)
        self._is_over_cpu_limit = True
        self._process.kill()

    def _get_cpu_seconds(self) -> float:
        """Return its CPU time so far, in seconds; 0 once it has exited."""
        with suppress(OSError):
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return 0.0

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return its answer. Raise EOFError if it died instead. After AnswerTooLarge it must be killed."""
        self.jobs += 1
        self._send(request | {"number": self.jobs})
        assert self._process.stdout is not None
        try:
            head = await self._process.stdout.readexactly(LENGTH.size)
            body = await self._process.stdout.readexactly(_check_length(LENGTH.unpack(head)[0]))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None
        answer: dict[str, Any] = json.loads(body)
        if answer.get("number") != self.jobs:
            raise Crashed("the child process answered a different request: something else writes to its pipe")
        return answer

    async def kill(self) -> None:
        """Kill the child and every process that its step has started, even if the child has died."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reaper.forget(self._process.pid)
        await self._process.wait()

    async def explain_death(self, step: str) -> Crashed:
        code = await self._process.wait()
        if self._start_error is not None:
            return Crashed(f"the child process of {step!r} could not start: {self._start_error}")
        if self._is_over_cpu_limit or code == -signal.SIGXCPU:
            return Crashed(f"{step!r} used up its CPU time", "CPU_LIMIT")
        if code == -signal.SIGKILL:
            return Crashed(
                f"the child process of {step!r} was killed by the system, most likely for lack of memory",
                OUT_OF_MEMORY,
            )
        how = f"by {_get_signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return Crashed(f"the child process of {step!r} died {how}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.writelines(frame_message(message))


def _get_signal_name(number: int) -> str:
    """Return the name of a signal, or its number: most real-time signals have no name."""
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def _check_length(length: int) -> int:
    if length > MAX_ANSWER_BYTES:
        raise AnswerTooLarge(
            f"the child process answered with {length:,} bytes, over the limit of {MAX_ANSWER_BYTES:,}: "
            "keep large data in a file and return its location"
        )
    return length


def _build_request(
    step_call: StepCall, claim: Claim, context: Context | None, isolation: Isolation, child: ChildProcess
) -> dict[str, Any]:
    function = step_call.step.function
    request = {
        "module": function.__module__,
        "file": inspect.getfile(function),
        "pipeline": step_call.step.pipeline,
        "claim": msgspec.to_builtins(claim),
        "context": None if context is None else context_to_json(context),
        "cpu": None if isolation.cpu is None else as_timedelta(isolation.cpu).total_seconds(),
    }
    key = claim.version, claim.step
    if key not in child.known_graphs:
        child.known_graphs.add(key)
        request["graph"] = step_call.graph.to_json()
    return request


def _record_charges(context: Context | None, answer: dict[str, Any]) -> None:
    """Record the child's charges as if the attempt had made them in this process."""
    if context is not None and context.backend is not None:
        for charge in answer.get("charges", ()):
            context.backend.charge(Charge(**charge))
