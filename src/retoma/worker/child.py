"""The child process of isolated steps: reads one attempt after the other, runs it, and writes how it ended.

It is told everything over its pipes and has no environment to speak of. Its parent may kill it at any time.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

from retoma.define.context import Context, NoDesk
from retoma.define.graph import Graph
from retoma.define.isolation import importing_in_child
from retoma.define.pipeline import Pipeline
from retoma.engine.exchange import Claim, Result, SetBack
from retoma.errors import DefinitionError
from retoma.privileges import drop_privileges
from retoma.worker.attempt import UNMASKED_ROOM, attempt, failed
from retoma.worker.plan import Plan

Message = dict[str, Any]
LENGTH = struct.Struct("!I")
UP = b"+"  # what a child says once, when it can be asked
LARGEST_FILE = 8 << 30  # bytes that a step may write into one
_PR_SET_PDEATHSIG = 1


def main() -> None:
    requests, answers = _pipes()
    drop_privileges()
    _die_with_parent()
    if not (hello := _read(requests)):
        return  # the worker is gone already
    sys.path[:] = hello["path"]
    _limit_memory(hello["memory"])
    _limit_disk()
    _send(answers, [UP])
    plans = _Plans()
    process, fresh = os.getpid(), _memory().resident
    while request := _read(requests):
        _limit_processor(request["cpu"])
        answer = _attempted(plans, request)
        if os.getpid() != process:
            os._exit(0)  # a copy that the step forked: only one of us may answer
        _send(answers, framed(answer | {"number": request["number"], "grown": _memory().resident - fresh}))


class _Plans:
    """Plans by version and step. The shape of a version is sent with its first attempt."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, str], Graph] = {}
        self._plans: dict[tuple[int, str], Plan] = {}

    def of(self, request: Message) -> Plan:
        """Raises NotImportable, after which it may be asked again."""
        key = request["claim"]["version"], request["claim"]["step"]
        if "graph" in request:
            self._graphs[key] = Graph.from_json(request["graph"])
        if key not in self._plans:
            try:
                with importing_in_child():
                    self._plans[key] = _plan(request, self._graphs[key])
            except (Exception, SystemExit) as error:
                raise NotImportable(request["file"], error) from error
        return self._plans[key]


class NotImportable(Exception):
    """The child cannot have what its worker has. Another try would meet the same."""

    code = "NOT_IMPORTABLE"

    def __init__(self, file: str, error: BaseException) -> None:
        why = str(error) if isinstance(error, _Missing | DefinitionError) else f"{type(error).__name__}: {error}"
        super().__init__(
            f"the child process could not import the step from {file}: {why}; isolated steps are imported without the "
            "worker's environment and within their limit of memory: move it to a module whose import needs no more"
        )


class _Missing(LookupError):
    """The module could be imported, and what is wanted is not there."""


def _attempted(plans: _Plans, request: Message) -> Message:
    claim = claim_from(request["claim"])
    desk = NoDesk()
    context = context_from(request["context"], desk) if request["context"] else None
    try:
        plan = plans.of(request)
    except NotImportable as error:
        return outcome_to_json(failed(claim, error.code, error, UNMASKED_ROOM))
    outcome = asyncio.run(attempt(plan, claim, context, _HereAndNow(), room=UNMASKED_ROOM))
    return outcome_to_json(outcome) | {"charges": [vars(charge) for charge in desk.charges]}


class _HereAndNow:
    """In place of threads: a child runs one attempt at a time."""

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()


def _plan(request: Message, graph: Graph) -> Plan:
    pipeline, step = _pipeline(request["module"], request["file"], request["pipeline"]), request["claim"]["step"]
    if step not in pipeline.steps:
        raise _Missing(f"the pipeline {pipeline.name!r} has no step {step!r} there")
    return Plan(pipeline, pipeline.steps[step], graph, resources={})


@cache
def _pipeline(module: str, file: str, name: str) -> Pipeline:
    loaded = _loaded(module, file)
    for place in (loaded, *list(sys.modules.values())):
        for value in list(vars(place).values()) if place else ():
            if isinstance(value, Pipeline) and value.name == name:
                return value
    raise _Missing(f"there is no pipeline {name!r} at the top of it, or of what it imports")


def _loaded(module: str, file: str) -> ModuleType:
    """The module as its parent has it: by its name, or from its file if it was run as a script."""
    if module != "__main__":
        found = importlib.util.find_spec(module)
        if found is not None and found.origin and Path(found.origin) == Path(file):
            return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(module if module != "__main__" else "__retoma_main__", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def claim_to_json(claim: Claim) -> Message:
    return {name: getattr(claim, name) for name in _CLAIM} | {"run": str(claim.run)}


def claim_from(plain: Message) -> Claim:
    return Claim(**{**plain, "run": UUID(plain["run"])})


_CLAIM = [field.name for field in fields(Claim) if field.init]


def context_to_json(context: Context) -> Message:
    plain = {field.name: getattr(context, field.name) for field in fields(Context) if field.name != "desk"}
    return plain | {"run": str(context.run)}


def context_from(plain: Message, desk: NoDesk) -> Context:
    return Context(**{**plain, "run": UUID(plain["run"])}, desk=desk)


def outcome_to_json(outcome: Result | SetBack) -> Message:
    if isinstance(outcome, Result):
        return {"output": outcome.output, "items": outcome.items}
    return {
        "outcome": outcome.outcome,
        "delay": outcome.delay.total_seconds(),
        "spent_ms": outcome.spent_ms,
        "code": outcome.code,
        "error": outcome.error,
    }


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our own copies of stdin and stdout; what the step prints goes to stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return requests, answers


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(limit: int) -> None:
    """So many bytes beyond what this process already has mapped."""
    if sys.platform == "linux":
        _limit(resource.RLIMIT_AS, _memory().mapped + limit)


class _Memory(NamedTuple):
    """In bytes."""

    mapped: int
    resident: int


def _memory() -> _Memory:
    """Of this process; nothing where it cannot be known."""
    if sys.platform != "linux":
        return _Memory(0, 0)
    mapped, resident = Path("/proc/self/statm").read_text().split()[:2]
    return _Memory(int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize())


def _limit_disk() -> None:
    """A file has its limit, and a crash leaves no image of our memory."""
    _limit(resource.RLIMIT_FSIZE, LARGEST_FILE)
    _limit(resource.RLIMIT_CORE, 0)


def _limit_processor(seconds: float | None) -> None:
    """So many from now on; with None no longer what the attempt before might use."""
    limit = resource.RLIM_INFINITY
    if seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    _limit(resource.RLIMIT_CPU, limit, for_good=False)


def _limit(what: int, wanted: int, *, for_good: bool = True) -> None:
    """Never above what whoever started the worker allows."""
    allowed = resource.getrlimit(what)[1]
    limit = min((each for each in (wanted, allowed) if each != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY)
    resource.setrlimit(what, (limit, limit if for_good else allowed))


def _read(pipe: BinaryIO) -> Message:
    """The next message; empty when the parent has closed the pipe."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return {}
    message: Message = json.loads(pipe.read(LENGTH.unpack(head)[0]))
    return message


def _send(pipe: BinaryIO, parts: Iterable[bytes]) -> None:
    try:
        pipe.writelines(parts)
        pipe.flush()
    except BrokenPipeError:  # the worker is gone, and the job with it
        os._exit(0)


def framed(message: Message) -> Iterator[bytes]:
    body = json.dumps(message).encode()
    yield LENGTH.pack(len(body))
    yield body


if __name__ == "__main__":
    main()
