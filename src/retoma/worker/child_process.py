"""The child process of isolated steps: it reads one attempt at a time from a pipe, runs it, and writes its outcome.

It receives everything over its pipes and almost no environment. Its parent may kill it at any time.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import os
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

import msgspec

from retoma.define.context import ChildContextBackend, Context
from retoma.define.graph import Graph
from retoma.define.isolation import importing_in_child
from retoma.define.pipeline import Pipeline
from retoma.define.review import Feedback
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim
from retoma.engine.outcomes import AttemptError, Outcome, ReviewReason
from retoma.errors import DefinitionError, describe_error
from retoma.privileges import die_with_parent, drop_privileges
from retoma.worker.attempt import UNMASKED_LENGTH_FACTOR, build_crash_outcome, build_failure_outcome, run_attempt
from retoma.worker.child_bootstrap import FAILED
from retoma.worker.step_call import StepCall

Message = dict[str, Any]
LENGTH = struct.Struct("!I")
READY = b"+"  # sent once, when the child accepts requests
MAX_FILE_BYTES = 8 << 30  # the largest file that a step may write
# The fields of outcomes that are more than JSON.
_FIELD_TYPES: dict[str, Any] = {"delay": timedelta, "error": AttemptError, "reason": ReviewReason | None}


def main() -> None:
    requests, answers = _take_over_pipes()
    try:
        drop_privileges()
        die_with_parent()
        if not (hello := _read_message(requests)):
            return  # the worker has already exited
        sys.path[:] = hello["path"]
        _limit_memory(hello["memory"])
        _limit_disk()
    except Exception as error:
        _write_message(answers, [FAILED, describe_error(error).encode(errors="replace")])
        raise
    _write_message(answers, [READY])
    step_calls = _StepCalls()
    process, fresh = os.getpid(), _get_memory_use().resident
    while request := _read_message(requests):
        _limit_cpu(request["cpu"])
        answer = _run_attempt(step_calls, request)
        if os.getpid() != process:
            os._exit(0)  # a process that the step forked: only the original may answer
        _write_message(
            answers, frame_message(answer | {"number": request["number"], "grown": _get_memory_use().resident - fresh})
        )


class _StepCalls:
    """Step calls by version and step. The graph of a version comes with its first attempt."""

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, str], Graph] = {}
        self._step_calls: dict[tuple[int, str], StepCall] = {}

    def get(self, request: Message) -> StepCall:
        """Return the step call of a request. Raise NotImportable if it cannot be built; a later call tries again."""
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
    """The child cannot import the step. Another attempt would fail in the same way."""

    code = "NOT_IMPORTABLE"

    def __init__(self, file: str, error: BaseException) -> None:
        reason = str(error) if isinstance(error, _DefinitionMissing | DefinitionError) else describe_error(error)
        super().__init__(
            f"the child process could not import the step from {file}: {reason}; isolated steps are imported without "
            "the worker's environment and within their memory limit: move the step to a module that needs neither"
        )


class _DefinitionMissing(LookupError):
    """The module was imported, but does not define the pipeline or the step."""


def _run_attempt(step_calls: _StepCalls, request: Message) -> Message:
    claim = msgspec.convert(request["claim"], Claim)
    backend = ChildContextBackend()
    context = context_from_json(request["context"], backend) if request["context"] else None
    try:
        step_call = step_calls.get(request)
    except NotImportable as error:
        return outcome_to_json(build_failure_outcome(claim, error.code, error, UNMASKED_LENGTH_FACTOR))
    attempt = run_attempt(step_call, claim, context, _InlineCaller(), length_factor=UNMASKED_LENGTH_FACTOR)
    began = time.monotonic()
    try:
        outcome = asyncio.run(attempt)
    except asyncio.CancelledError:  # only the step itself can cancel here
        ended = RuntimeError("the step cancelled its own task")
        outcome = build_crash_outcome(step_call, claim, ended, time.monotonic() - began, UNMASKED_LENGTH_FACTOR)
    return outcome_to_json(outcome) | {"charges": [vars(charge) for charge in backend.charges]}


class _InlineCaller:
    """Calls a function in the main thread: a child runs one attempt at a time."""

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()


def _build_step_call(request: Message, graph: Graph) -> StepCall:
    pipeline, step = _find_pipeline(request["module"], request["file"], request["pipeline"]), request["claim"]["step"]
    if step not in pipeline.steps:
        raise _DefinitionMissing(f"the pipeline {pipeline.name!r} in it has no step {step!r}")
    return StepCall(pipeline, pipeline.steps[step], graph, resources={})


@cache
def _find_pipeline(module: str, file: str, name: str) -> Pipeline:
    loaded = _load_module(module, file)
    for candidate in (loaded, *list(sys.modules.values())):
        for value in list(vars(candidate).values()) if candidate else ():
            if isinstance(value, Pipeline) and value.name == name:
                return value
    raise _DefinitionMissing(f"neither it nor a module that it imports defines a pipeline {name!r} at the top level")


def _load_module(module: str, file: str) -> ModuleType:
    """Import the same module as the parent: by its name, or from its file if the parent ran it as a script."""
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


def context_to_json(context: Context) -> Message:
    plain = {field.name: getattr(context, field.name) for field in fields(Context) if field.name != "backend"}
    return plain | {"run": str(context.run), "feedback": msgspec.to_builtins(context.feedback)}


def context_from_json(data: Message, backend: ChildContextBackend) -> Context:
    feedback = msgspec.convert(data["feedback"], Feedback | None)
    return Context(**{**data, "run": UUID(data["run"]), "feedback": feedback}, backend=backend)


def outcome_to_json(outcome: Outcome) -> Message:
    given = {name: msgspec.to_builtins(getattr(outcome, name)) for name in _list_fields(type(outcome))}
    return {"outcome": type(outcome).__name__} | given


def _list_fields(kind: type[Outcome]) -> list[str]:
    return [name for name in kind.__struct_fields__ if name != "claim"]


def outcome_from_json(claim: Claim, answer: Message) -> Outcome:
    kind: type[Outcome] = getattr(outcomes, answer["outcome"])
    given = {name: msgspec.convert(answer[name], _FIELD_TYPES.get(name, Any)) for name in _list_fields(kind)}
    return kind(claim, **given)


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return copies of stdin and stdout for our own use, and redirect what the step prints to stderr."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return requests, answers


def _limit_memory(limit: int) -> None:
    """Allow `limit` bytes beyond what this process has already mapped."""
    if sys.platform == "linux":
        _set_limit(resource.RLIMIT_AS, _get_memory_use().mapped + limit)


class _Memory(NamedTuple):
    """In bytes."""

    mapped: int
    resident: int


def _get_memory_use() -> _Memory:
    """Return the memory use of this process, or zero on systems that do not report it."""
    if sys.platform != "linux":
        return _Memory(0, 0)
    mapped, resident = Path("/proc/self/statm").read_text().split()[:2]
    return _Memory(int(mapped) * resource.getpagesize(), int(resident) * resource.getpagesize())


def _limit_disk() -> None:
    """Limit the size of a file, and disable core dumps, which would contain the data of attempts."""
    _set_limit(resource.RLIMIT_FSIZE, MAX_FILE_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)


def _limit_cpu(seconds: float | None) -> None:
    """Allow so many seconds of CPU time from now on. None removes the limit of the previous attempt."""
    limit = resource.RLIM_INFINITY
    if seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    _set_limit(resource.RLIMIT_CPU, limit, permanent=False)


def _set_limit(limit_kind: int, requested: int, *, permanent: bool = True) -> None:
    """Set a limit, at most the hard limit that the worker was started with."""
    allowed = resource.getrlimit(limit_kind)[1]
    limit = min(
        (each for each in (requested, allowed) if each != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY
    )
    resource.setrlimit(limit_kind, (limit, limit if permanent else allowed))


def _read_message(pipe: BinaryIO) -> Message:
    """Return the next message, or an empty one when the parent has closed the pipe."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return {}
    message: Message = json.loads(pipe.read(LENGTH.unpack(head)[0]))
    return message


def _write_message(pipe: BinaryIO, parts: Iterable[bytes]) -> None:
    try:
        pipe.writelines(parts)
        pipe.flush()
    except BrokenPipeError:  # the worker has died, and its job was released
        os._exit(0)


def frame_message(message: Message) -> Iterator[bytes]:
    body = json.dumps(message).encode()
    yield LENGTH.pack(len(body))
    yield body
