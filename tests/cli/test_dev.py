"""`retoma dev`: everything with one command, and the demo that kills its own worker."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from rich.console import Console

from retoma import Settings, demo
from retoma.cli.demo.board import LiveBoard, PlainBoard, Snapshot
from retoma.cli.demo.proof import Proof
from retoma.cli.dev import suggest_after_demo
from retoma.client import Client
from retoma.records import Job
from retoma.states import JobState
from retoma.store.database import Database
from tests.cli.terminal import FILM, Terminal, wait_until
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


def worker_of(said: str) -> int:
    """The process id of the newest worker that said it was there."""
    return int(re.findall(r"worker    process (\d+)", said)[-1])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def taken_port() -> Iterator[int]:
    """The usual one, by us or by whoever has it."""
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


def test_dev_says_what_to_type_and_stops_cleanly(terminal: Terminal, taken_port: int) -> None:
    with terminal.process("dev", "film.py") as dev:
        said = dev.wait_for_output("worker_ready")
        assert f"port {taken_port} is in use, so the server uses " in said
        assert "-m retoma start film film.py --wait" in said
        worker = worker_of(said)
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


def test_an_application_with_a_demo_starts_it_and_says_where_its_review_is(terminal: Terminal) -> None:
    (terminal.folder / "shown.py").write_text(SHOWN)
    with terminal.process("dev", "shown.py", "--demo", "--port", "0", LANG="pt_BR.UTF-8") as dev:
        dev.wait_for_output("isto é tudo")
        said = dev.wait_for_output("approved_film de “Film: chá” espera por você: ")
        address = re.search(r"servidor  (http://127.0.0.1:\d+)/\?(token=\S+)", said)
        assert address is not None
        assert f"em pt: {address[1]}/films/?{address[2]}, porta" in said
        port = address[1].rpartition(":")[2]
        assert f"/films/?{address[2]}, porta {port}" in said
        assert "webhooks  também podem ir" in said
        (review,) = terminal.json("reviews", "list")
        assert f"{address[1]}/reviews/{review['id']}?{address[2]}" in said
        assert f"made beside port {port}" in terminal.out("reviews", "show", str(review["id"]))
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
        said = dev.wait_for_output("approved_film of “Film: coffee” waits for you: ")
        assert "“Film: tea" not in said
        os.kill(dev.pid, signal.SIGINT)
        assert dev.wait_for_exit() == 0


CHANGED = """f"new {line} {[name for name in os.environ if name.startswith('RETOMA_DEV')]}\""""


def test_dev_starts_again_when_the_code_changes_and_runs_continue(terminal: Terminal) -> None:
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


def test_dev_listens_on_the_port_that_it_is_given(terminal: Terminal) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = terminal.run("dev", "film.py", "--port", str(port))
    assert ended.returncode == 2
    assert f"port {port}" in ended.stderr


def test_an_application_without_a_demo_says_so(terminal: Terminal) -> None:
    ended = terminal.run("dev", "film.py", "--demo")
    assert ended.returncode == 2
    assert "film.py has no demo" in ended.stderr


def test_the_demo_kills_its_worker_and_proves_that_nothing_was_done_twice(terminal: Terminal) -> None:
    terminal.variables["RETOMA_HEARTBEAT_TIMEOUT_SECONDS"] = "3"
    terminal.variables["LANG"] = "pt_BR.UTF-8"
    said = terminal.out("dev", "--demo", "--once")
    assert re.search(r"kill -9 \d+: o worker 1 morreu enquanto executava [234] jobs", said)
    seconds = re.search(r"recuperados (\d+),\d s após a morte", said)
    assert seconds is not None
    assert int(seconds[1]) < WAIT_TIMEOUT
    assert "O farol que retomava: 12 cenas" in said
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
def test_the_demo_objects_to_what_it_does_not_prove(
    bodies: dict[str, int], objection: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    proof = Proof(finished=frozenset({("script", "")}), interrupted=frozenset({("scenes", "")}))
    counted = Counter({(step, ""): times for step, times in bodies.items()})
    assert next(proof.find_violations(counted), None) == objection


async def test_every_objection_is_shown_in_the_language_of_the_locale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LC_ALL", "pt_BR.UTF-8")
    effects = tmp_path / "effects.jsonl"
    effects.write_text("".join(json.dumps({"step": step, "item": ""}) + "\n" for step in ("scenes", "film", "film")))
    monkeypatch.setattr(demo, "effects_path", lambda run: effects)
    proof = Proof(finished=frozenset({("script", "")}), interrupted=frozenset({("scenes", "")}))
    screen = io.StringIO()
    board = PlainBoard(Console(file=screen, width=500))
    assert not await proof.show(Client(None, Database("never asked", None)), uuid4(), board)
    assert [line.strip() for line in screen.getvalue().splitlines()] == [
        "",
        "Isto não deveria acontecer:",
        "scenes foi interrompido, mas foi executado só uma vez",
        "film foi executado 2 vezes",
        "script estava pronto, mas não deixou rastro",
        f"Por favor, relate isto, com {effects}.",
    ]


def test_what_to_type_after_the_demo_names_its_run() -> None:
    run = uuid4()
    assert f"runs show {run}" in suggest_after_demo(run)


def test_the_board_shows_each_job_as_it_is() -> None:
    jobs = [
        a_job("script", state=JobState.SUCCEEDED),
        a_job("scenes", state=JobState.SUCCEEDED, attempt=2),
        a_job("narration", "1", state=JobState.RUNNING),
        a_job("narration", "2", state=JobState.READY),
        a_job("illustration", "1", state=JobState.RUNNING),
    ]
    screen = io.StringIO()
    board = LiveBoard(Console(file=screen, force_terminal=True, width=100, no_color=True))
    board.show(Snapshot(demo.demo.graph, jobs, frozenset({("illustration", "1")}), "worker 1 is silent"))
    board.clear()
    shown = [line.split() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()]
    for line in (
        ["script", "●", "1/1"],
        ["scenes", "◉", "1/1"],
        ["narration", "▶", "○", "0/2"],
        ["illustration", "✗", "0/1"],
        ["film", "·", "-"],
        ["worker", "1", "is", "silent"],
    ):
        assert line in shown


def a_job(step: str, item: str = "", *, state: JobState, attempt: int = 1) -> Job:
    return Job(
        step=step,
        item=item,
        revision=1,
        state=state,
        attempt=attempt,
        worker_deaths=0,
        queue="default",
        code=None,
        position=int(item or 0),
        waiting_on=0,
        created_at=datetime.now(UTC),
        ready_at=None,
        started_at=None,
        ended_at=None,
        output=None,
    )
