"""`retoma dev`: everything with one command, and the demo that kills its own worker."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from rich.console import Console

from retoma import App, Settings, demo
from retoma.cli.demo import announcements
from retoma.cli.demo.board import Board
from retoma.cli.demo.proof import Proof
from retoma.cli.dev import suggest_after_demo
from retoma.cli.dev_links import DevLinks
from retoma.client import Client
from retoma.records import StepProgress
from retoma.states import JobState
from retoma.store.database import Database
from tests.cli.terminal import FILM, Terminal, wait_until
from tests.conftest import OpenSandbox
from tests.wait_timeout import WAIT_TIMEOUT

SHOWN = """
from pydantic import BaseModel

from retoma import App, Pipeline, Settings

PORT = Settings().port


class Film(BaseModel):
    topic: str


films = Pipeline("films", Film, title="Film: {topic}")


@films.step
def film() -> str:
    return f"made beside port {PORT}"


films.review("approved_film", of=film)


async def demo(client, address, language):
    await client.start(films, {"topic": "chá"}, key="shown")
    yield f"em {language}: {address}/films/, porta {PORT}"
    yield "isto é tudo"


app = App("films", pipelines=[films], demo=demo)
"""


def worker_of(message: str) -> int:
    """Return the process id of the newest worker that reported itself ready."""
    return int(re.findall(r"worker    process (\d+)", message)[-1])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Occupy the default port unless another process already does."""
    port = Settings.model_fields["port"].default
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def ours() -> bool:
            with suppress(OSError):
                taken.bind(("127.0.0.1", port))
                taken.listen()
                return True
            return False

        with suppress(AssertionError):  # another test has it for a while only, a developer's own server for good
            wait_until(ours)
        yield port


def test_dev_prints_the_next_commands_and_stops_cleanly(terminal: Terminal, taken_port: int) -> None:
    with terminal.process("dev", "film.py") as dev:
        output = dev.wait_for_output("worker_ready")
        assert f"port {taken_port} is in use, so the server uses " in output
        assert "-m retoma start film film.py --wait" in output
        worker = worker_of(output)
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0
        assert "all data is kept" in dev.wait_for_output("stopped")
    assert not is_running(worker)


def test_dev_starts_another_worker_when_one_dies(terminal: Terminal) -> None:
    with terminal.process("dev", "film.py") as dev:
        os.kill(worker_of(dev.wait_for_output("worker_ready")), signal.SIGKILL)
        dev.wait_for_output("exited with code -9; starting another")
        wait_until(lambda: dev.output.read_text().count("worker_ready") == 2)
        assert terminal.run("start", "film", "film.py", "--wait").returncode == 0
        os.kill(dev.pid, signal.SIGTERM)
        assert dev.wait_for_exit() == 0


def test_the_worker_drains_when_dev_is_killed(terminal: Terminal) -> None:
    with terminal.process("dev", "film.py") as dev:
        worker = worker_of(dev.wait_for_output("worker_ready"))
        os.kill(dev.pid, signal.SIGKILL)
        dev.wait_for_exit()
    wait_until(lambda: not is_running(worker))


def test_dev_without_an_application_names_the_demo(terminal: Terminal) -> None:
    ended = terminal.run("dev")
    assert ended.returncode == 2
    assert "retoma dev --demo" in ended.stderr


def test_an_application_with_a_demo_starts_it_and_prints_the_address_of_its_review(terminal: Terminal) -> None:
    (terminal.folder / "shown.py").write_text(SHOWN)
    with terminal.process("dev", "shown.py", "--demo", "--port", "0", LANG="pt_BR.UTF-8") as dev:
        dev.wait_for_output("isto é tudo")
        output = dev.wait_for_output("approved_film de “Film: chá” está à sua espera: ")
        address = re.search(r"servidor  (http://127.0.0.1:\d+)/\?(token=\S+)", output)
        assert address is not None
        assert f"em pt: {address[1]}/films/?{address[2]}, porta" in output
        port = address[1].rpartition(":")[2]
        assert f"/films/?{address[2]}, porta {port}" in output
        assert "webhooks  também podem ir" in output
        (review,) = terminal.json("reviews", "list")
        assert f"{address[1]}/reviews/{review['id']}?{address[2]}" in output
        assert f"made beside port {port}" in terminal.out("reviews", "show", str(review["id"]))
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0


TWO = """
import asyncio

from retoma import App, Pipeline


def an_app(name, demo):
    pipeline = Pipeline(name)

    @pipeline.step
    def answer() -> int:
        return 42

    return App(name, title=name.title(), pipelines=[pipeline], demo=demo)


async def stubborn(client, address, language):
    yield f"of {client.app.name}"
    yield "going on"
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


async def broken(client, address, language):
    raise RuntimeError("no paint left")
    yield ""


app = App("all", includes=[an_app("films", stubborn), an_app("books", broken), an_app("plays", None)])
"""


def test_the_demos_of_several_applications_run_side_by_side_and_none_holds_up_the_end(terminal: Terminal) -> None:
    (terminal.folder / "two.py").write_text(TWO)
    with terminal.process("dev", "two.py", "--demo", "--port", "0") as dev:
        said = dev.wait_for_output("Films: going on")
        assert "\nFilms\nof films\n" in said
        assert "the demo failed: RuntimeError: no paint left" in said
        dev.wait_for_output("queues default")
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0


async def test_a_demo_that_ignores_its_cancellation_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcements, "CLOSE_SECONDS", 0.01)
    started, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn(*_: object) -> AsyncIterator[str]:
        yield "of films"
        started.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    app = App("films", pipelines=[*demo.app.pipelines.values()], demo=stubborn)
    client: Any = SimpleNamespace(scope_to=lambda app: None)
    board: Any = SimpleNamespace(print_line=lambda *_, **__: None)
    try:
        async with asyncio.timeout(WAIT_TIMEOUT):
            async with announcements.show_demos(app, client, DevLinks("http://here", "token"), board):
                await started.wait()
    finally:
        may_end.set()


def test_dev_shows_something_of_every_application_of_the_package(terminal: Terminal) -> None:
    with terminal.process("dev", "retoma_apps.samples", "--demo", "--port", "0") as dev:
        said = dev.wait_for_output("In half a minute, a webhook that cannot be delivered will become a dead letter")
        assert "The video “How coffee is made” was ordered" in said
        assert re.search(r"Two articles are being written from a CSV file: http://\S+/articles/imports/", said)
        assert "12 documents are being classified" in said
        dev.wait_for_output("Script review of “How coffee is made” is waiting for you")
        dev.wait_for_output("AutoWriter: “Coffee and caffeine” is now a draft: ")
        dev.wait_for_output("Quality review of “How to sleep better” is waiting for you")
        dev.wait_for_output("Classifier: classified: ")
        dev.wait_for_output("GPU: the webhook has arrived: COMPLETED, 3 videos")
        dev.wait_for_output("The story “How photosynthesis works” was ordered")
        address = re.search(r"server    (http://127.0.0.1:\d+/\?token=\S+)", said)
        assert address is not None
        with httpx2.Client(follow_redirects=True, headers={"accept-language": "en"}) as browser:
            home = browser.get(address[1]).text
        for title in ("Videos", "AutoWriter", "Classifier", "GPU", "Stories", "Sample data"):
            assert f">{title}</" in home, title
        states = {"paused", "running", "completed", "stuck", "failed"}
        wait_until(lambda: {run["state"] for run in terminal.json("runs", "list")} >= states)
        (dead,) = wait_until(lambda: terminal.json("deliveries", "list", "--state", "dead"))
        assert dead["url"] == "http://127.0.0.1:9/sample-webhook"
        said = dev.output.read_text()
        assert not re.search("SAMPLE_FAILED|run_stuck|webhook_failed|webhook_dead|sample_", said)
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0


def test_dev_counts_the_reviews_that_were_open_before(terminal: Terminal) -> None:
    (terminal.folder / "shown.py").write_text(SHOWN)
    with terminal.process("worker", "shown.py"):
        for number in range(6):
            terminal.out("start", "films", "shown.py", "-i", f"topic=tea {number}")
        wait_until(lambda: len(terminal.json("reviews", "list")) == 6)
    with terminal.process("dev", "shown.py", "--port", "0") as dev:
        dev.wait_for_output("6 reviews wait for you: http://127.0.0.1:")
        terminal.out("start", "films", "shown.py", "-i", "topic=coffee")
        output = dev.wait_for_output("approved_film of “Film: coffee” is waiting for you: ")
        assert "“Film: tea" not in output
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0


CHANGED = """f"new {line} {[name for name in os.environ if name.startswith('RETOMA_DEV')]}\""""


def test_dev_restarts_when_the_code_changes_and_runs_continue(terminal: Terminal) -> None:
    file = terminal.folder / "film.py"
    with terminal.process("dev", "film.py", "--port", "0", RETOMA_DRAIN_SECONDS="0") as dev:
        dev.wait_for_output("worker_ready")
        run = terminal.start("-i", "title=slow")
        terminal.wait_for_images(2)
        file.write_text(FILM + "\nraise RuntimeError('half a thought')\n")
        dev.wait_for_output("half a thought")
        file.write_text(FILM.replace("line.upper()", CHANGED))
        dev.wait_for_output("the code changed: restarting")
        wait_until(lambda: dev.output.read_text().count("worker_ready") == 2)
        first, second = re.findall(r"server    (http://127.0.0.1:\d+/\?token=\S+)", dev.output.read_text())
        assert first == second  # pages that are open stay open
        (terminal.folder / "go").touch()
        wait_until(lambda: terminal.state(run) == "completed")
        assert terminal.json("runs", "show", run)["results"]["cut"] == "new slow 0 [] new slow 1 []"
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0


def test_dev_listens_on_the_requested_port(terminal: Terminal) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = terminal.run("dev", "film.py", "--port", str(port))
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr


def test_an_application_without_a_demo_is_reported(terminal: Terminal) -> None:
    ended = terminal.run("dev", "film.py", "--demo")
    assert ended.returncode == 2
    assert "film.py has no demo" in ended.stderr


def test_the_demo_kills_its_worker_and_proves_that_nothing_was_done_twice(terminal: Terminal) -> None:
    terminal.variables["RETOMA_HEARTBEAT_TIMEOUT_SECONDS"] = "3"
    terminal.variables["LANG"] = "pt_BR.UTF-8"
    output = terminal.out("dev", "--demo", "--once")
    assert re.search(r"kill -9 \d+: o worker 1 morreu enquanto executava [234] jobs", output)
    seconds = re.search(r"recuperados (\d+),\d s após a interrupção", output)
    assert seconds is not None
    assert int(seconds[1]) < WAIT_TIMEOUT
    assert "O farol que retomava: 12 cenas" in output
    (run,) = terminal.json("runs", "list")
    assert run["state"] == "completed"
    (effects,) = (terminal.folder / "home" / "demo").glob("*.jsonl")
    lines = [json.loads(line) for line in effects.read_text().splitlines()]
    times = Counter((line["step"], line["item"]) for line in lines)
    assert len(times) == 27
    assert Counter(times.values())[2] in (2, 3, 4)
    assert max(times.values()) == 2
    assert len({line["process"] for line in lines}) == 2


@pytest.mark.parametrize(
    ("bodies", "objection"),
    [
        ({"script": 1, "scenes": 2, "film": 1}, None),
        ({"script": 2, "scenes": 2, "film": 1}, "script ran 2 times"),
        ({"script": 1, "scenes": 1, "film": 1}, "scenes was interrupted but ran only once"),
        ({"script": 1, "scenes": 2, "film": 2}, "film ran 2 times"),
        ({"scenes": 2, "film": 1}, "script was finished but left no trace"),
    ],
)
def test_the_demo_reports_what_it_could_not_prove(
    bodies: dict[str, int], objection: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    proof = Proof(finished=frozenset({("script", "")}), interrupted=frozenset({("scenes", "")}))
    counted = Counter({(step, ""): times for step, times in bodies.items()})
    assert next(proof.find_violations(counted), None) == objection


async def test_a_job_that_the_killed_worker_had_claimed_but_not_begun_is_not_interrupted(
    open_sandbox: OpenSandbox,
) -> None:
    async with open_sandbox(demo.demo) as sandbox:
        run = await sandbox.client.start(demo.demo)
        async with sandbox.manual_worker() as worker:
            await worker.claim()
            jobs = await sandbox.client.runs.list_jobs(run.id)
            proof = Proof()
            proof.record_jobs(jobs, Counter())
            assert not proof.interrupted
            proof.record_jobs(jobs, Counter({("script", ""): 1}))
            assert proof.interrupted == {("script", "")}


async def test_a_result_that_is_committed_as_the_worker_dies_counts_as_finished(open_sandbox: OpenSandbox) -> None:
    async with open_sandbox(demo.demo) as sandbox:
        run = await sandbox.client.start(demo.demo, {"pace": 0})
        proof = Proof(interrupted=frozenset({("script", ""), ("film", "")}))
        await sandbox.work()
        proof.record_late_results(await sandbox.client.runs.list_jobs(run.id))
        assert proof.finished == {("script", ""), ("film", "")}
        assert not proof.interrupted


async def test_every_demo_finding_is_shown_in_the_language_of_the_locale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LC_ALL", "pt_BR.UTF-8")
    effects = tmp_path / "effects.jsonl"
    effects.write_text("".join(json.dumps({"step": step, "item": ""}) + "\n" for step in ("scenes", "film", "film")))
    monkeypatch.setattr(demo, "effects_path", lambda run: effects)
    proof = Proof(finished=frozenset({("script", "")}), interrupted=frozenset({("scenes", "")}))
    screen = io.StringIO()
    board = Board(Console(file=screen, width=500))
    assert not await proof.show(Client(None, Database("never asked", None)), uuid4(), board)
    assert [line.strip() for line in screen.getvalue().splitlines()] == [
        "",
        "Isto não deveria acontecer:",
        "scenes foi interrompido, mas foi executado só uma vez",
        "film foi executado 2 vezes",
        "script terminou, mas não deixou rastro",
        f"Por favor, relate isto e envie o arquivo {effects}.",
    ]


def test_the_command_suggested_after_the_demo_names_its_run() -> None:
    run = uuid4()
    assert f"runs show {run}" in suggest_after_demo(run)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_board_shows_the_progress_of_the_run(is_terminal: bool) -> None:
    steps = [
        make_step("script", {JobState.SUCCEEDED: 1}),
        make_step("narration", {JobState.SUCCEEDED: 1, JobState.RUNNING: 1}),
        make_step("illustration", {JobState.RUNNING: 2}),
        make_step("film", {}),
    ]
    screen = io.StringIO()
    board = Board(Console(file=screen, force_terminal=is_terminal, width=120, no_color=True))
    board.show("demo", steps)
    board.show("demo", steps, "worker 1 is silent")
    board.print_line("worker 2 started")
    board.clear()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x00-\x7f]+", "", screen.getvalue())
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    if is_terminal:
        assert any(line.startswith("demo 2/6 worker 1 is silent") for line in lines)
        assert "worker 2 started" in lines
    else:
        assert lines == ["demo: 2/6 narration, illustration", "worker 2 started"]


def make_step(step: str, jobs: dict[JobState, int]) -> StepProgress:
    return StepProgress(
        step=step, each=False, queue="default", jobs=jobs, started_at=None, ended_at=None, created_at=None
    )
