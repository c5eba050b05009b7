"""Traces of real worker processes, which a real receiver decodes."""

from __future__ import annotations

import json
import os
import signal
import time
from uuid import UUID

from retoma.tracing.traces import FLUSH_SECONDS
from tests.cli.terminal import Terminal
from tests.tracing.collector import Collector

CANARY = "canary-7d31-secret"
SKETCHES = """
import asyncio
import os
from pathlib import Path

from opentelemetry import trace

from retoma import Context, Pipeline, Retry

film = Pipeline("film", retry=Retry(1))


@film.step
async def sketch(*, ctx: Context) -> str:
    with trace.get_tracer("film").start_as_current_span("pencil"):
        with Path("began").open("a") as began:
            began.write(f"{os.getpid()} {ctx.traceparent}\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "drawn"


@film.step
def paint(sketch: str, *, ctx: Context) -> str:
    if ctx.attempt == 1:
        raise ValueError("no paint for " + os.environ["PAINT_TOKEN"])
    return sketch + " canary-7d31-secret"


app = film
"""


def test_attempts_of_a_killed_worker_and_its_heir_share_a_trace(terminal: Terminal, received: Collector) -> None:
    (terminal.folder / "film.py").write_text(SKETCHES)
    terminal.variables |= {"RETOMA_HEARTBEAT_TIMEOUT_SECONDS": "3", "PAINT_TOKEN": CANARY, **received.variables}
    with terminal.worker() as victim:
        run = UUID(terminal.start())
        terminal.wait_for_images()
        received.wait_for("pencil")  # the worker has read its cursor by then
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait_for_exit()
    with terminal.worker(RETOMA_LOG="json") as heir:
        began = terminal.wait_for_images(2)
        (terminal.folder / "go").touch()
        (root,) = received.wait_for("run film")
        output = heir.wait_for_output("attempt_failed")
        os.kill(heir.pid, signal.SIGTERM)
        assert heir.wait_for_exit() == 0
    assert {span.trace for span in received.spans} == {run}
    assert (root.parent, root.error, root.attributes["retoma.state"]) == ("", None, "completed")
    finished, lost = sorted(received.find_all("attempt sketch"), key=lambda span: span.error or "")
    assert (lost.parent, lost.attributes["retoma.state"], lost.attributes["error.type"]) == (
        root.id,
        "lost",
        "WORKER_DIED",
    )
    assert (finished.parent, finished.attributes["retoma.state"], finished.attributes["retoma.attempt"]) == (
        root.id,
        "succeeded",
        2,
    )
    # What the step recorded and passed on belongs to its attempt, also to the one that was lost.
    assert [span.parent for span in received.find_all("pencil")] == [lost.id, finished.id]
    assert [line for _, line in began] == [lost.context.traceparent, finished.context.traceparent]
    failed, succeeded = received.find_all("attempt paint")
    assert (failed.error, failed.attributes["error.type"]) == ("no paint for [PAINT_TOKEN]", "ValueError")
    assert succeeded.error is None
    line = next(json.loads(line) for line in output.splitlines() if '"attempt_failed"' in line)
    assert (line["trace_id"], line["span_id"]) == (run.hex, failed.id)
    assert not any(CANARY.encode() in body for body in received.bodies)


def test_a_hanging_collector_delays_neither_work_nor_exit(terminal: Terminal, received: Collector) -> None:
    received.opened.clear()
    terminal.variables |= received.variables | {"OTEL_BSP_MAX_QUEUE_SIZE": "2", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"}
    with terminal.worker() as worker:
        run = terminal.start("-i", "scenes=40")
        assert terminal.out("runs", "events", run, "--follow", "-o", "jsonl").count('"result"') == 42
        assert received.requested.wait(60)
        os.kill(worker.pid, signal.SIGTERM)
        worker.wait_for_output("worker_stopped")
        stopped_at = time.monotonic()
        assert worker.wait_for_exit() == 0
        assert "traces_lost" in worker.output.read_text()
    assert time.monotonic() - stopped_at < FLUSH_SECONDS + 30  # the machine may be busy; the collector hangs for 60 s


def test_a_worker_without_a_collector_logs_it_once(terminal: Terminal, received: Collector) -> None:
    received.status = 400  # which is not retried
    terminal.variables |= received.variables
    with terminal.worker() as worker:
        run = terminal.start("-i", "scenes=2")
        terminal.out("runs", "events", run, "--follow", "-o", "jsonl")
        worker.wait_for_output("traces_refused")
        received.status = 200
        terminal.start("-i", "scenes=2")
        output = worker.wait_for_output("traces_accepted")
    assert output.count("traces_refused") == 1
