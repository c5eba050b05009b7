"""Steps in child processes: any misbehaviour is one failed attempt, and the worker survives."""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retoma import Isolation, Pipeline, Settings, seconds
from retoma.engine import outcomes
from retoma.engine.outcomes import AttemptError, Success
from retoma.errors import DefinitionError
from retoma.reviews import Comment, Decision
from retoma.store.embedded import attach
from retoma.testing import Sandbox
from retoma.worker import executor, process_pool, step_runner
from retoma.worker.child_process import MAX_FILE_BYTES
from retoma.worker.process_reaper import ProcessReaper
from retoma.worker.worker import Worker
from tests.conftest import OpenSandbox
from tests.ports import free_port
from tests.wait_timeout import WAIT_TIMEOUT
from tests.worker.isolated_steps import (
    HOUR,
    busy,
    crowd,
    endless,
    forking,
    fragile,
    hanging,
    intruding,
    limited,
    misbehaving,
    poisoned,
    reviewed,
    sequence,
    shared,
)


async def error_of(sandbox: Sandbox, pipeline: Pipeline, inputs: dict[str, str] | None = None) -> Any:
    run = await sandbox.run(pipeline, inputs)
    assert run.state == "failed"
    (error,) = (await sandbox.client.runs.get_errors(run.id)).values()
    return error


async def test_an_isolated_step_gets_the_feedback_of_a_reviewer(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(reviewed) as sandbox:
        run = await sandbox.run(reviewed)
        (review,) = await sandbox.client.reviews.list(run=run.id)
        sent_back = Decision("send_back", by="ana", notes="shorter", comments=(Comment("here", at=3.5),))
        await sandbox.client.reviews.decide(review.id, sent_back)
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run.id))["draft"] == "first, shorter\n0:03.5 here"


async def test_an_isolated_step_runs_in_another_process_without_secrets(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-secret")
    async with open_sandbox(misbehaving) as sandbox:
        run = await sandbox.run(misbehaving, {"way": "print"})
    result = run.results["behaviour"]
    assert result["pid"] != str(os.getpid())
    assert result["secret"] == "none"
    assert result["step"] == "behaviour"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
async def test_an_isolated_step_sees_neither_the_environment_nor_the_memory_of_its_worker(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(misbehaving) as sandbox:
        run = await sandbox.run(misbehaving, {"way": "spy"})
    denied = "PermissionError"
    assert run.results["behaviour"] == {"environ": denied, "mem": denied, "maps": denied, "privileges": ""}


async def test_an_isolated_step_cannot_log_in_as_the_superuser_of_the_embedded_database(
    open_sandbox: OpenSandbox, embedded: tuple[str, int]
) -> None:
    folder, port = embedded
    async with open_sandbox(intruding) as sandbox:
        run = await sandbox.run(intruding, {"folder": folder, "port": port})
    assert run.results["accounts"] == {"retoma": False, "retoma_app": True}


@pytest.fixture
def embedded() -> Iterator[tuple[str, int]]:
    """An embedded database's folder, and its port: as root a step cannot even reach its socket."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # the server's account must reach it
        port = free_port()
        with attach(Path(place, "home"), port, {"fsync": "off", "shared_buffers": "16MB"}) as server:
            yield str(server.folder), port


@pytest.mark.parametrize(
    ("way", "code", "message"),
    [
        ("segfault", "CRASHED", "died by SIGSEGV"),
        ("real-time signal", "CRASHED", "died by signal 40"),
        ("exit", "CRASHED", "died with exit code 3"),
        ("memory", "OUT_OF_MEMORY", "needed more than its 209,715,200 bytes of memory"),
        ("crumbs", "OUT_OF_MEMORY", "needed more than its 209,715,200 bytes of memory"),
        ("raise", "ERROR", "no such way"),
        ("missing file", "ERROR", "No such file or directory: 'missing.txt'"),
        ("oversized", "ERROR", "bytes of JSON, over the limit of 1,000,000: keep large data in a file"),
        (
            "mistyped",
            "ERROR",
            "the result of 'behaviour' is not of the annotated type dict[str, str]: Expected `object`,",
        ),
        (
            "no JSON",
            "ERROR",
            "the result of 'behaviour' is not of the annotated type dict[str, str]: Expected `str`, got",
        ),
    ],
)
async def test_each_misbehaviour_of_an_isolated_step_has_its_own_code(
    open_sandbox: OpenSandbox, way: str, code: str, message: str
) -> None:
    async with open_sandbox(misbehaving) as sandbox:
        error = await error_of(sandbox, misbehaving, {"way": way})
    assert error["code"] == code
    assert message in error["message"]


async def test_a_child_that_uses_up_its_processor_time_dies(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(busy) as sandbox:
        error = await error_of(sandbox, busy)
    assert (error["code"], error["message"]) == ("CPU_LIMIT", "'spinning' used up its CPU time")


async def test_a_child_that_ignores_the_end_of_its_processor_time_is_killed(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "CPU_GRACE", 0.0)
    async with open_sandbox(busy) as sandbox:
        error = await error_of(sandbox, busy, {"way": "deaf"})
    assert (error["code"], error["message"]) == ("CPU_LIMIT", "'spinning' used up its CPU time")


async def test_a_child_that_hangs_is_killed_at_the_timeout_with_all_that_it_started(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = 0.0
    monkeypatch.setattr(executor, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    async with open_sandbox(hanging) as sandbox, open_lifeline(tmp_path) as (path, lifeline):
        attempt = asyncio.create_task(error_of(sandbox, hanging, {"lifeline": path}))
        assert await lifeline.readline() == b"began\n"
        passed = HOUR.total_seconds()
        assert await lifeline.read() == b""  # its end, as nobody holds it
        error = await attempt
    assert error["code"] == "TIMEOUT"


async def test_processes_started_by_a_step_die_also_when_the_worker_is_killed(
    open_sandbox: OpenSandbox, tmp_path: Path
) -> None:
    async with (
        open_sandbox(hanging) as sandbox,
        sandbox.manual_worker() as worker,
        open_lifeline(tmp_path) as (path, lifeline),
    ):
        await sandbox.client.start(hanging, {"lifeline": path})
        attempt = asyncio.create_task(worker.attempt(await worker.claim()))
        assert await lifeline.readline() == b"began\n"
        worker._children._reaper.close()  # as when nobody holds the other end of its pipe any more
        assert await lifeline.read() == b""
        (outcome,) = await attempt
    assert isinstance(outcome, outcomes.Failure | outcomes.Retried)
    assert outcome.error.code == "OUT_OF_MEMORY"  # as it was killed, and before its timeout


def test_an_ended_child_is_not_killed_later_by_a_reused_process_id() -> None:
    reaper = ProcessReaper()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        reaper.watch(other.pid)
        reaper.forget(other.pid)
        reaper.close()
        other.terminate()
    assert other.returncode == -signal.SIGTERM


async def test_the_child_of_a_cancelled_run_is_killed(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    async with open_sandbox(endless) as sandbox, open_lifeline(tmp_path) as (path, lifeline):
        worker = Worker(sandbox.app, sandbox.database, Settings(), concurrency=1)
        working = asyncio.create_task(worker.run())
        run = (await sandbox.client.start(endless, {"lifeline": path})).id
        assert await lifeline.readline() == b"began\n"
        assert await sandbox.client.runs.cancel(run) == "cancelling"
        assert await lifeline.read() == b""
        worker.stop()
        await working


@pytest.mark.parametrize(
    ("way", "message"), [("self-cancel", "the step cancelled its own task"), ("unreadable", "Unreadable")]
)
async def test_an_unusual_exit_of_a_step_is_not_a_crash_of_its_child(
    open_sandbox: OpenSandbox, way: str, message: str
) -> None:
    async with open_sandbox(misbehaving) as sandbox:
        error = await error_of(sandbox, misbehaving, {"way": way})
    assert error["code"] == "ERROR"
    assert message in error["message"]


async def test_a_child_that_cannot_start_reports_why(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").write_text("raise ImportError('pydantic is too old')")
    monkeypatch.setattr(process_pool, "PACKAGE_FOLDER", tmp_path)
    async with open_sandbox(misbehaving) as sandbox:
        error = await error_of(sandbox, misbehaving)
    assert error["code"] == "CRASHED"
    assert "'behaviour' could not start: ImportError: pydantic is too old" in error["message"]


async def test_a_healthy_child_is_reused(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(sequence) as sandbox:
        run = await sandbox.run(sequence)
    assert len(set(run.results["second"])) == 1


async def test_short_attempts_share_the_existing_children(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "MAX_CONCURRENT_STARTS", 1)
    async with open_sandbox(crowd) as sandbox:
        run = await sandbox.run(crowd, {"size": 20, "together": 1, "folder": str(tmp_path)})
    assert run.results["children"] < 20


async def test_no_attempt_waits_for_the_end_of_others(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "MAX_CONCURRENT_STARTS", 1)
    async with open_sandbox(crowd) as sandbox:
        run = await sandbox.run(crowd, {"size": 3, "together": 3, "folder": str(tmp_path)})
    assert run.results["children"] == 3


async def test_a_child_is_replaced_after_its_maximum_number_of_jobs(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "JOBS_PER_CHILD", 1)
    async with open_sandbox(sequence) as sandbox:
        run = await sandbox.run(sequence)
    assert len(set(run.results["second"])) == 2


async def test_a_child_that_hit_its_limit_or_retains_much_memory_is_replaced(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(misbehaving) as sandbox, sandbox.manual_worker() as worker:
        runs = []
        for way in ("well", "memory", "well", "hoard", "well"):
            runs.append((await sandbox.client.start(misbehaving, {"way": way})).id)
            await worker.record_outcomes(await worker.attempt(await worker.claim()))
        pids = [(await sandbox.client.runs.get_results(run))["behaviour"]["pid"] for run in runs[::2]]
    assert len(set(pids)) == 3


async def test_limits_of_one_step_do_not_stay_with_the_child_for_another(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(limited) as sandbox:
        run = await sandbox.run(limited)
    limits = run.results["unhurried"]
    assert limits.pop("child") == limits.pop("former child")
    assert limits == {"CPU": resource.RLIM_INFINITY, "CORE": 0, "FSIZE": MAX_FILE_BYTES}


def test_a_child_cannot_raise_limits_inherited_from_its_worker() -> None:
    """Nor does it die of trying to."""
    code = "import resource; from retoma.worker import child_process as child"
    code += "; child._limit_disk(); child._limit_cpu(None)"
    code += "; print(*resource.getrlimit(resource.RLIMIT_FSIZE), *resource.getrlimit(resource.RLIMIT_CPU))"
    python = f"ulimit -f 1000; ulimit -t 1000; exec {sys.executable} -c '{code}'"
    limits = subprocess.run(["bash", "-c", python], capture_output=True, text=True, check=True).stdout.split()
    assert limits == ["1024000", "1024000", "1000", "1000"]


async def test_the_start_of_a_child_uses_up_no_time_of_the_step(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, start = 0.0, process_pool.ChildProcess.start

    async def start_beyond_its_timeout(memory: int, reaper: ProcessReaper) -> process_pool.ChildProcess:
        nonlocal late
        late = 90.0
        return await start(memory, reaper)

    for module in (executor, step_runner):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late))
    monkeypatch.setattr(process_pool.ChildProcess, "start", start_beyond_its_timeout)
    async with open_sandbox(misbehaving) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(misbehaving)
        (outcome,) = await worker.attempt(await worker.claim())
    assert isinstance(outcome, Success)


async def test_a_job_whose_child_never_started_is_returned_and_did_not_time_out(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(memory: int, reaper: ProcessReaper) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(step_runner, "START_TIMEOUT", -60.0)
    monkeypatch.setattr(process_pool.ChildProcess, "start", never)
    async with open_sandbox(misbehaving) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(misbehaving)).id
        await worker.record_outcomes(await worker.attempt(await worker.claim()))
        (job,) = await sandbox.client.runs.list_jobs(run)
    assert (job.state, job.attempt, job.code) == ("ready", 0, None)


async def test_an_answer_that_would_exhaust_the_workers_memory_is_not_read(
    open_sandbox: OpenSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool, "MAX_ANSWER_BYTES", 20)
    async with open_sandbox(misbehaving) as sandbox:
        error = await error_of(sandbox, misbehaving)
    assert "bytes, over the limit of 20: keep large data in a file" in error["message"]


async def test_an_isolated_step_may_ask_to_wait_in_seconds(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(misbehaving) as sandbox:
        before = await sandbox.clock.now()
        run = await sandbox.run(misbehaving, {"way": "later"})
        assert await sandbox.clock.now() - before == seconds(60)
        requested = (await sandbox.client.runs.list_events(run.id))[1]
    assert run.state == "completed"
    assert requested.data["message"] == "the step asked to run again in 60 s"


@pytest.mark.parametrize(
    ("top", "why"),
    [
        ("KEY = os.environ['KEY']", "KeyError: 'KEY'; isolated steps are imported without the worker's environment"),
        ("if 'KEY' not in os.environ: pipeline = Pipeline('modest')", "defines a pipeline 'greedy' at the top level"),
    ],
)
async def test_a_module_that_a_child_cannot_import_fails_each_job_once(
    open_sandbox: OpenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str, why: str
) -> None:
    monkeypatch.setenv("KEY", "sk-secret")
    greedy = make_module(tmp_path, monkeypatch, top).pipeline
    async with open_sandbox(greedy) as sandbox, sandbox.manual_worker() as worker:
        for _ in range(2):  # the second by the same child
            run = (await sandbox.client.start(greedy)).id
            await worker.record_outcomes(await worker.attempt(await worker.claim()))
            ((job,), (error,)) = (
                await sandbox.client.runs.list_jobs(run),
                (await sandbox.client.runs.get_errors(run)).values(),
            )
            assert (job.state, job.attempt, job.code) == ("failed", 1, "NOT_IMPORTABLE")
            assert why in error["message"]


async def test_the_third_crash_quarantines_also_if_no_retry_is_left(
    open_sandbox: OpenSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_sandbox(fragile) as sandbox:
        run = await sandbox.run(fragile)
        (job,) = await sandbox.client.runs.list_jobs(run.id)
        error = (await sandbox.client.runs.get_errors(run.id))["broken", ""]
    assert (run.state, job.state, job.attempt, job.code) == ("failed", "quarantined", 3, "QUARANTINED")
    assert error["code"] == "CRASHED"
    logged = [vars(record) for record in caplog.records if record.name == "retoma.worker.attempt_log"]
    retried = ("WARNING", "attempt_failed", "default")
    assert [(line["levelname"], line["event"], line["tenant"]) for line in logged] == [
        retried,
        retried,
        ("ERROR", "job_failed", "default"),
    ]


async def test_an_isolated_step_shares_the_retries_of_the_step_that_it_continues(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(shared) as sandbox:
        run = await sandbox.run(shared)
        (job,) = await sandbox.client.runs.list_step_jobs(run.id, "parse")
        error = (await sandbox.client.runs.get_errors(run.id))["parse", job.item]
    assert (job.state, job.attempt, error["message"]) == ("failed", 1, "a is no number")


async def test_a_second_crash_without_a_retry_left_fails_the_job(open_sandbox: OpenSandbox) -> None:
    error = AttemptError("CRASHED")
    async with open_sandbox(fragile) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(fragile)).id
        (claim,) = await worker.claim()
        await worker.record_outcomes([outcomes.Retried(claim, error, is_crash=True)])
        (claim,) = await worker.claim()
        await worker.record_outcomes([outcomes.Failure(claim, error)])
        (job,) = await sandbox.client.runs.list_jobs(run)
    assert (job.state, job.attempt, job.code) == ("failed", 2, "CRASHED")


async def test_an_item_that_crashes_three_times_is_quarantined_alone(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(poisoned) as sandbox:
        run = await sandbox.run(poisoned)
        jobs = {job.item: job for job in await sandbox.client.runs.list_jobs(run.id) if job.step == "text"}
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
    with pytest.raises(DefinitionError, match="isolation= is 'docker'; pass 'process'"):

        @pipeline.step(isolation="docker")  # type: ignore[call-overload, untyped-decorator]
        def parsed() -> str:
            return ""


@pytest.mark.parametrize("memory", ["1G", -1, 0, 1e9, True])
def test_a_limit_of_memory_is_a_number_of_bytes(memory: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Isolation\(memory=.*\): pass a number of bytes, such as 2 << 30"):
        Isolation(memory=memory)


@pytest.mark.parametrize("cpu", ["1m", 0, -1.5, timedelta(0), float("nan"), float("inf"), True])
def test_a_limit_of_processor_time_is_a_duration(cpu: Any) -> None:
    with pytest.raises(DefinitionError, match=r"Isolation\(cpu=.*\): pass a duration above zero, such as minutes\(1\)"):
        Isolation(cpu=cpu)


def test_a_limit_of_processor_time_may_be_given_in_seconds() -> None:
    assert Isolation(cpu=30) == Isolation(cpu=seconds(30))


@asynccontextmanager
async def open_lifeline(folder: Path) -> AsyncIterator[tuple[str, asyncio.StreamReader]]:
    """A FIFO and its reader, which meets the end when every process that held it has died."""
    path = folder / "lifeline"
    os.mkfifo(path)
    reader = asyncio.StreamReader()
    pipe = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            yield str(path), reader
    finally:
        transport.close()


def make_module(folder: Path, monkeypatch: pytest.MonkeyPatch, top: str) -> Any:
    """A module named greedy, with `top` before its isolated step."""
    text = f"""
import os
import sys
from retoma import Pipeline
pipeline = Pipeline("greedy")
{top}

@pipeline.step(isolation="process")
def wanting() -> None: ...
"""
    (folder / "greedy.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "greedy", raising=False)
    module = importlib.import_module("greedy")
    monkeypatch.setitem(sys.modules, "greedy", module)
    return module


async def test_a_process_forked_by_a_step_does_not_answer_for_the_next_job(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(forking) as sandbox, sandbox.manual_worker() as worker:
        ways = [str(number) for number in range(6)]
        for way in ways:
            await sandbox.client.start(forking, {"way": way})
        for _ in ways:
            await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
        runs = await sandbox.client.runs.list()
        results = {run.input["way"]: (await sandbox.client.runs.get_results(run.id))["forked"] for run in runs}
    assert results == {way: way for way in ways}


UNGUARDED = """
import asyncio

from retoma import App, Pipeline, Retry, testing

film = Pipeline("film", retry=Retry(0))


@film.step(isolation="process")
def script() -> str:
    return "a script"


async def main():
    async with testing.sandbox(App("film", pipelines=[film])) as sandbox:
        run = await sandbox.run(film)
        errors = await sandbox.client.runs.get_errors(run.id)
        print(run.state, errors["script", ""]["message"])


asyncio.run(main())
"""


def test_a_script_without_a_main_guard_gets_an_error_and_does_not_start_itself_again(tmp_path: Path) -> None:
    (tmp_path / "film.py").write_text(UNGUARDED)
    ended = subprocess.run(
        [sys.executable, "film.py"], cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_TIMEOUT * 2
    )
    assert ended.stdout.startswith("failed ")
    assert 'put its main code under `if __name__ == "__main__":`' in ended.stdout
