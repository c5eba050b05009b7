"""A process that is asked to stop exits with 0, even if the application's code ignores its cancellation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import Process, Terminal, wait_until
from tests.wait_timeout import WAIT_TIMEOUT

STUBBORN = """
import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from retoma import App, Context, Pipeline, PollResult, Retry

never = threading.Event()


class Way(BaseModel):
    way: str


def report() -> None:
    with Path("began").open("a") as began:
        began.write(f"{os.getpid()} began\\n")


async def ignore_cancellation() -> None:
    report()
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def poll(external_id: str) -> PollResult:
    await ignore_cancellation()
    return PollResult("running")


stubborn = Pipeline("stubborn", inputs=Way, retry=Retry(0))


@stubborn.step
async def step(way: str, *, ctx: Context) -> None:
    if way == "poll":
        await ctx.external(lambda: "x", poll=poll, poll_interval=0.01)
    if way == "task":
        await ignore_cancellation()
    if way == "thread of asyncio":
        report()
        await asyncio.to_thread(never.wait)
    if way == "own thread":
        threading.Thread(target=never.wait).start()
        report()


isolated = Pipeline("isolated", retry=Retry(0))


@isolated.step(isolation="process")
async def child() -> None:
    await ignore_cancellation()


app = App("stubborn", pipelines=[stubborn, isolated])
"""


@pytest.fixture
def stubborn(terminal: Terminal) -> Terminal:
    (terminal.folder / "stubborn.py").write_text(STUBBORN)
    terminal.variables["RETOMA_DRAIN_SECONDS"] = "0"
    return terminal


def stop_and_wait(process: Process) -> int:
    os.kill(process.pid, signal.SIGTERM)
    return process.wait_for_exit()


@pytest.mark.parametrize("way", ["task", "poll", "thread of asyncio", "own thread"])
def test_a_worker_exits_though_application_code_never_returns(stubborn: Terminal, way: str) -> None:
    with stubborn.process("worker", "stubborn.py") as worker:
        run = stubborn.out("start", "stubborn", "stubborn.py", "-i", f"way={way}").strip()
        stubborn.wait_for_images()
        assert stop_and_wait(worker) == 0
        assert "worker_stopped" in worker.output.read_text()
    (step,) = stubborn.json("runs", "show", run)["steps"]
    assert step["jobs"] in ({"ready": 1}, {"parked": 1}, {"succeeded": 1})


def test_a_worker_leaves_no_child_process_behind(stubborn: Terminal) -> None:
    with stubborn.process("worker", "stubborn.py") as worker:
        stubborn.out("start", "stubborn", "stubborn.py", "-i", "way=task")
        stubborn.out("start", "isolated", "stubborn.py")
        begun = {int(pid) for pid, _ in stubborn.wait_for_images(2)}
        assert stop_and_wait(worker) == 0
    (child,) = begun - {worker.pid}
    wait_until(lambda: not Path(f"/proc/{child}").exists())


def test_dev_exits_though_application_code_never_returns(stubborn: Terminal) -> None:
    with stubborn.process("dev", "stubborn.py", "--port", "0") as dev:
        stubborn.out("start", "stubborn", "stubborn.py", "-i", "way=task")
        stubborn.wait_for_images()
        assert stop_and_wait(dev) == 0


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    code = f"import asyncio, sys, threading\nfrom retoma.cli import process_exit\n{script}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_TIMEOUT)


def test_a_time_limit_kills_a_process_whose_event_loop_is_blocked() -> None:
    ended = run_script("print('all is recorded')\nprocess_exit.limit_exit(0.01)\nthreading.Event().wait()")
    assert (ended.returncode, ended.stdout) == (0, "all is recorded\n")


def test_an_error_keeps_its_message_and_its_exit_code() -> None:
    ended = run_script(
        "async def fail():\n"
        "    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)\n"
        "    raise ValueError('the reason')\n"
        "process_exit.CLOSE_TIMEOUT = 0.01\n"
        "try:\n"
        "    process_exit.run(fail())\n"
        "except ValueError as error:\n"
        "    print(error)\n"
        "process_exit.finish(3)"
    )
    assert (ended.returncode, ended.stdout) == (3, "the reason\n")
