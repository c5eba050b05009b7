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

from retoma.define.context import ChildContextBackend, Context
from retoma.define.graph import Graph
from retoma.define.isolation import importing_in_child
from retoma.define.pipeline import Pipeline
from retoma.engine.claim_protocol import AttemptOutcome, Claim, Result
from retoma.errors import DefinitionError
from retoma.privileges import drop_privileges
from retoma.worker.attempt import UNMASKED_LENGTH_FACTOR, build_failure_outcome, run_attempt
from retoma.worker.step_call import StepCall

Message = dict[str, Any]
LENGTH = struct.Struct("!I")
READY = b"+"  # what a child says once, when it can be asked
MAX_FILE_BYTES = 8 << 30  # bytes that a step may write into one
_PR_SET_PDEATHSIG = 1


def main() -> None:
    requests, answers = _take_over_pipes()
    drop_privileges()
    _die_with_parent()
    if not (hello := _read_message(requests)):
        return  # the worker is gone already
    sys.path[:] = hello["path"]
    _limit_memory(hello["memory"])
    _limit_disk()
    _write_message(answers, [READY])
    plans = _StepCalls()
    process, fresh = os.getpid(), _get_memory_use().resident
    while request := _read_message(requests):
        _limit_cpu(request["cpu"])
        answer = _run_attempt(plans, request)
        if os.getpid() != process:
            os._exit(0)  # a copy that the step forked: only one of us may answer
        _write_message(
            answers, frame_message(answer | {"number": request["number"], "grown": _get_memory_use().resident - fresh})
        )


class _StepCalls:
    """Plans by version and step. The shape of a version is sent with its first attempt."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, str], Graph] = {}
        self._step_calls: dict[tuple[int, str], StepCall] = {}

    def get(self, request: Message) -> StepCall:
        """Raises NotImportable, after which it may be asked again."""
        key = request["claim"]["version"], request["claim"]["step"]
        if "graph" in request:
            self._graphs[key] = Graph.from_json(request["graph"])
        if key not in self._step_calls:
            try:
                with importing_in_child():
                    self._step_calls[key] = _build_step_call(request, self._graphs[key])
            except (Exception, SystemExit) as error:
                raise NotImportable(request["file"], error) from error
        return self._step_calls[key]


class NotImportable(Exception):
    """The child cannot have what its worker has. Another try would meet the same."""

    code = "NOT_IMPORTABLE"

    def __init__(self, file: str, error: BaseException) -> None:
        why = (
            str(error)
            if isinstance(error, _DefinitionMissing | DefinitionError)
            else f"{type(error).__name__}: {error}"
        )
        super().__init__(
            f"the child process could not import the step from {file}: {why}; isolated steps are imported without the "
            "worker's environment and within their limit of memory: move it to a module whose import needs no more"
        )


class _DefinitionMissing(LookupError):
    """The module could be imported, and what is wanted is not there."""


def _run_attempt(step_calls: _StepCalls, request: Message) -> Message:
    claim = claim_from_json(request["claim"])
    desk = ChildContextBackend()
    context = context_from_json(request["context"], desk) if request["context"] else None
    try:
        plan = step_calls.get(request)
    except NotImportable as error:
        return outcome_to_json(build_failure_outcome(claim, error.code, error, UNMASKED_LENGTH_FACTOR))
    outcome = asyncio.run(run_attempt(plan, claim, context, _InlineCaller(), length_factor=UNMASKED_LENGTH_FACTOR))
    return outcome_to_json(outcome) | {"charges": [vars(charge) for charge in desk.charges]}


class _InlineCaller:
    """In place of threads: a child runs one attempt at a time."""

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()


def _build_step_call(request: Message, graph: Graph) -> StepCall:
    pipeline, step = _find_pipeline(request["module"], request["file"], request["pipeline"]), request["claim"]["step"]
    if step not in pipeline.steps:
        raise _DefinitionMissing(f"the pipeline {pipeline.name!r} has no step {step!r} there")
    return StepCall(pipeline, pipeline.steps[step], graph, resources={})


@cache
def _find_pipeline(module: str, file: str, name: str) -> Pipeline:
    loaded = _load_module(module, file)
    for place in (loaded, *list(sys.modules.values())):
        for value in list(vars(place).values()) if place else ():
            if isinstance(value, Pipeline) and value.name == name:
                return value
    raise _DefinitionMissing(f"there is no pipeline {name!r} at the top of it, or of what it imports")


def _load_module(module: str, file: str) -> ModuleType:
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
    return {name: getattr(claim, name) for name in _CLAIM_FIELDS} | {"run": str(claim.run)}


def claim_from_json(data: Message) -> Claim:
    return Claim(**{**data, "run": UUID(data["run"])})


_CLAIM_FIELDS = [field.name for field in fields(Claim) if field.init]


def context_to_json(context: Context) -> Message:
    plain = {field.name: getattr(context, field.name) for field in fields(Context) if field.name != "backend"}
    return plain | {"run": str(context.run)}


def context_from_json(data: Message, backend: ChildContextBackend) -> Context:
    return Context(**{**data, "run": UUID(data["run"])}, backend=backend)


def outcome_to_json(outcome: Result | AttemptOutcome) -> Message:
    if isinstance(outcome, Result):
        return {"output": outcome.output, "items": outcome.items}
    return {
        "outcome": outcome.kind,
        "delay": outcome.delay.total_seconds(),
        "spent_ms": outcome.spent_ms,
        "code": outcome.code,
        "error": outcome.error,
    }


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
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
        _set_limit(resource.RLIMIT_AS, _get_memory_use().mapped + limit)


class _Memory(NamedTuple):
    """In bytes."""

    mapped: int
    resident: int


def _get_memory_use() -> _Memory:
    """Of this process; nothing where it cannot be known."""
    if sys.platform != "linux":
        return _Memory(0, 0)
    mapped, resident = Path("/proc/self/statm").read_text().split()[:2]
    return _Memory(int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize())


def _limit_disk() -> None:
    """A file has its limit, and a crash leaves no image of our memory."""
    _set_limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)


def _limit_cpu(seconds: float | None) -> None:
    """So many from now on; with None no longer what the attempt before might use."""
    limit = resource.RLIM_INFINITY
    if seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    _set_limit(resource.RLIMIT_CPU, limit, permanent=False)


def _set_limit(limit_kind: int, requested: int, *, permanent: bool = True) -> None:
    """Never above what whoever started the worker allows."""
    allowed = resource.getrlimit(limit_kind)[1]
    limit = min(
        (each for each in (requested, allowed) if each != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY
    )
    resource.setrlimit(limit_kind, (limit, limit if permanent else allowed))


def _read_message(pipe: BinaryIO) -> Message:
    """The next message; empty when the parent has closed the pipe."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return {}
    message: Message = json.loads(pipe.read(LENGTH.unpack(head)[0]))
    return message


def _write_message(pipe: BinaryIO, parts: Iterable[bytes]) -> None:
    try:
        pipe.writelines(parts)
        pipe.flush()
    except BrokenPipeError:  # the worker is gone, and the job with it
        os._exit(0)


def frame_message(message: Message) -> Iterator[bytes]:
    body = json.dumps(message).encode()
    yield LENGTH.pack(len(body))
    yield body


if __name__ == "__main__":
    main()
