"""Child processes for isolated steps: reused while they are well, killed at a timeout, replaced when they die."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from retoma.define.charge import Charge
from retoma.define.context import Context
from retoma.define.durations import as_timedelta
from retoma.define.isolation import Isolation
from retoma.engine.exchange import Claim, Result, SetBack
from retoma.privileges import hide_process
from retoma.worker.attempt import OUT_OF_MEMORY, Crashed, crashed, mask_outcome
from retoma.worker.child import LENGTH, UP, claim_to_json, context_to_json, framed
from retoma.worker.plan import Plan
from retoma.worker.undertaker import Undertaker

LARGEST_ANSWER = 64 << 20  # bytes; a result is far smaller
JOBS_PER_CHILD = 500
STARTING_AT_ONCE = max(2, os.cpu_count() or 1)
OVERSPENT = 3.0  # seconds of processor time after which a child dies that does not mind its limit
HARMLESS = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HOME")


class Children:
    """Children by the memory that they may use. At most as many live as attempts run at once.

    A start takes long, and quick attempts need few children: few start at a time, and who waits for its turn takes one
    that has become idle meanwhile.
    """

    def __init__(self) -> None:
        self._idle: dict[int, list[_Child]] = {}
        self._undertaker = Undertaker()
        self._starting = asyncio.Semaphore(STARTING_AT_ONCE)

    async def attempt(
        self, plan: Plan, claim: Claim, context: Context | None, on_body: Callable[[Claim], None]
    ) -> Result | SetBack:
        """Run one attempt in a child; `on_body` is told when it is there. It is killed at once if this is cancelled."""
        isolation = plan.step.policy.isolation
        assert isolation is not None
        child = await self._child(isolation)
        on_body(claim)
        began = time.monotonic()
        try:
            with child.spending(isolation):
                answer = await self._answer(child, _request(plan, claim, context, isolation, child), plan.step.name)
        except (Crashed, AnswerTooLarge) as error:
            await child.kill()
            return crashed(plan, claim, error, time.monotonic() - began)
        except BaseException:
            await child.kill()
            raise
        await self._put_back(isolation, child, answer)
        _note_charges(context, answer)
        return _outcome(claim, answer)

    async def close(self) -> None:
        for children in self._idle.values():
            for child in children:
                await child.kill()
        self._idle.clear()
        self._undertaker.close()

    async def _answer(self, child: _Child, request: dict[str, Any], step: str) -> dict[str, Any]:
        try:
            return await child.ask(request)
        except EOFError:
            raise await child.obituary(step) from None

    async def _child(self, isolation: Isolation) -> _Child:
        if (idle := await self._idle_one(isolation)) is not None:
            return idle
        async with self._starting:
            return await self._idle_one(isolation) or await _Child.start(isolation.memory, self._undertaker)

    async def _idle_one(self, isolation: Isolation) -> _Child | None:
        idle = self._idle.setdefault(isolation.memory, [])
        while idle:
            child = idle.pop()
            if child.is_alive:
                return child
            await child.kill()
        return None

    async def _put_back(self, isolation: Isolation, child: _Child, answer: dict[str, Any]) -> None:
        """Unless it has done its share, or still holds memory that a later attempt would lack."""
        is_well = answer.get("code") != OUT_OF_MEMORY and answer["grown"] <= isolation.memory // 2
        if is_well and child.jobs < JOBS_PER_CHILD:
            self._idle[isolation.memory].append(child)
        else:
            await child.kill()


class AnswerTooLarge(ValueError):
    """The answer of a child is not read, because it would fill the worker's memory."""


class _Child:
    def __init__(self, process: Process, undertaker: Undertaker) -> None:
        self.jobs = 0
        self.knows: set[tuple[int, str]] = set()  # the versions and steps whose shape it was sent
        self._process = process
        self._undertaker = undertaker
        self._is_overspent = False
        undertaker.watch(process.pid)

    @classmethod
    async def start(cls, memory: int, undertaker: Undertaker) -> _Child:
        hide_process()
        environment = {name: os.environ[name] for name in HARMLESS if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "retoma.worker.child",
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
            start_new_session=True,
        )
        child = cls(process, undertaker)
        child._send({"path": sys.path, "memory": memory})
        try:
            await child._until_up()
        except BaseException:
            await child.kill()
            raise
        return child

    async def _until_up(self) -> None:
        """Returns also if it died: whoever asks it something learns how."""
        assert self._process.stdout is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._process.stdout.readexactly(len(UP))

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @contextmanager
    def spending(self, isolation: Isolation) -> Iterator[None]:
        """Kill it if the attempt within outlives its processor time: a step may ignore the kernel's signal."""
        if isolation.cpu is None or sys.platform != "linux":
            yield
            return
        limit = self._spent() + as_timedelta(isolation.cpu).total_seconds() + OVERSPENT
        watch = asyncio.create_task(self._die_at(limit))
        try:
            yield
        finally:
            watch.cancel()

    async def _die_at(self, limit: float) -> None:
        while (left := limit - self._spent()) > 0:  # noqa: ASYNC110  (nobody tells how much it has used)
            await asyncio.sleep(left)
        self._is_overspent = True
        self._process.kill()

    def _spent(self) -> float:
        """Its processor time so far, in seconds; nothing once it is gone."""
        with suppress(OSError):
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return 0.0

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Its answer. EOFError if it died instead; after AnswerTooLarge it must be killed."""
        self.jobs += 1
        self._send(request | {"number": self.jobs})
        assert self._process.stdout is not None
        try:
            head = await self._process.stdout.readexactly(LENGTH.size)
            body = await self._process.stdout.readexactly(_checked(LENGTH.unpack(head)[0]))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise EOFError from None
        answer: dict[str, Any] = json.loads(body)
        if answer.get("number") != self.jobs:
            raise Crashed("the child process gave the answer to another question: something else writes on its pipe")
        return answer

    async def kill(self) -> None:
        """Kill it and every process that its step has started, also if it is dead itself."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._undertaker.forget(self._process.pid)
        await self._process.wait()

    async def obituary(self, step: str) -> Crashed:
        code = await self._process.wait()
        if self._is_overspent or code == -signal.SIGXCPU:
            return Crashed(f"{step!r} used up its processor time", "CPU_LIMIT")
        if code == -signal.SIGKILL:
            return Crashed(
                f"the child process of {step!r} was killed by the system, most likely for lack of memory",
                OUT_OF_MEMORY,
            )
        how = f"by {_signal(-code)}" if code < 0 else f"with exit code {code}"
        return Crashed(f"the child process of {step!r} died {how}")

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.writelines(framed(message))


def _signal(number: int) -> str:
    """Its name; most of the real-time signals have none."""
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def _checked(length: int) -> int:
    if length > LARGEST_ANSWER:
        raise AnswerTooLarge(
            f"the child process answered with {length:,} bytes, over the limit of {LARGEST_ANSWER:,}: "
            "keep large data in a file and return where it is"
        )
    return length


def _request(plan: Plan, claim: Claim, context: Context | None, isolation: Isolation, child: _Child) -> dict[str, Any]:
    function = plan.step.function
    request = {
        "module": function.__module__,
        "file": inspect.getfile(function),
        "pipeline": plan.step.pipeline,
        "claim": claim_to_json(claim),
        "context": None if context is None else context_to_json(context),
        "cpu": None if isolation.cpu is None else as_timedelta(isolation.cpu).total_seconds(),
    }
    key = claim.version, claim.step
    if key not in child.knows:
        child.knows.add(key)
        request["graph"] = plan.graph.to_json()
    return request


def _note_charges(context: Context | None, answer: dict[str, Any]) -> None:
    """What the child charged, as if it had been charged here."""
    if context is not None and context.desk is not None:
        for charge in answer.get("charges", ()):
            context.desk.charge(Charge(**charge))


def _outcome(claim: Claim, answer: dict[str, Any]) -> Result | SetBack:
    if "output" in answer:
        return Result(claim, answer["output"], answer["items"])
    outcome = SetBack(
        claim,
        answer["outcome"],
        delay=timedelta(seconds=answer["delay"]),
        spent_ms=answer["spent_ms"],
        code=answer["code"],
        error=answer["error"],
    )
    return mask_outcome(outcome)
