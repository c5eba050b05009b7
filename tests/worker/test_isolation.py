"""Steps in child processes: whatever they do is one failed attempt, and the worker lives."""

from __future__ import annotations

import os
from typing import Any

import pytest

from retoma import Pipeline
from retoma.errors import DefinitionError
from retoma.testing import Sandbox
from tests.conftest import OpenSandbox
from tests.worker.isolated_steps import hanging, misbehaving, poisoned


async def error_of(sandbox: Sandbox, pipeline: Pipeline, given: dict[str, str] | None = None) -> Any:
    run = await sandbox.run(pipeline, given)
    assert run.state == "failed"
    (error,) = (await sandbox.client.errors(run.id)).values()
    return error


async def test_an_isolated_step_runs_elsewhere_and_without_secrets(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-secret")
    async with open_sandbox(misbehaving) as sandbox:
        run = await sandbox.run(misbehaving, {"way": "print"})
    result = run.results["behaviour"]
    assert result["pid"] != str(os.getpid())
    assert result["secret"] == "none"
    assert result["step"] == "behaviour"


@pytest.mark.parametrize(
    ("way", "code", "message"),
    [
        ("segfault", "CRASHED", "died by SIGSEGV"),
        ("exit", "CRASHED", "died with exit code 3"),
        ("memory", "OUT_OF_MEMORY", ""),
        ("processor", "CPU_LIMIT", "used up its processor time"),
        ("raise", "ERROR", "no such way"),
    ],
)
async def test_what_an_isolated_step_does_wrong_has_its_code(
    open_sandbox: OpenSandbox, way: str, code: str, message: str
) -> None:
    async with open_sandbox(misbehaving) as sandbox:
        error = await error_of(sandbox, misbehaving, {"way": way})
    assert error["code"] == code
    assert message in error["message"]


async def test_a_child_that_hangs_in_c_is_killed_at_the_timeout(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(hanging) as sandbox:
        error = await error_of(sandbox, hanging)
    assert error["code"] == "TIMEOUT"


async def test_an_item_that_crashes_three_times_is_quarantined_alone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(poisoned) as sandbox:
        run = await sandbox.run(poisoned)
        jobs = {job.item: job for job in await sandbox.client.jobs(run.id) if job.step == "text"}
    assert run.state == "completed_with_errors"
    assert run.results["report"] == ["GOOD", "FINE", "QUARANTINED"]
    assert (jobs["poison"].state, jobs["poison"].attempt) == ("quarantined", 3)


def test_an_isolated_step_may_not_take_resources() -> None:
    pipeline = Pipeline("wrong")
    with pytest.raises(DefinitionError, match=r"'wrong'.*'parsed'.*cannot take the resource 'llm'"):

        @pipeline.step(isolation="process")
        def parsed(*, llm: object) -> str:
            return ""


def test_an_isolated_step_must_be_importable() -> None:
    pipeline = Pipeline("wrong")
    with pytest.raises(DefinitionError, match="must be at the top of its module"):

        @pipeline.step(isolation="process")
        def parsed() -> str:
            return ""


def test_an_unknown_isolation_is_a_mistake() -> None:
    pipeline = Pipeline("wrong")
    with pytest.raises(DefinitionError, match="isolation= is 'docker'; give 'process'"):

        @pipeline.step(isolation="docker")  # type: ignore[call-overload, untyped-decorator]
        def parsed() -> str:
            return ""
