"""Steps that misbehave in every way, at the top of a module where a child process can import them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import asyncpg
from pydantic import BaseModel

from retoma import Context, Isolation, Items, Pipeline, Retry, RetryLater, hours, seconds


class Unreadable(Exception):
    def __getattribute__(self, name: str) -> object:
        raise Unreadable


class Way(BaseModel):
    way: str = "well"


HOARD: list[bytes] = []
HOUR = hours(1)

misbehaving = Pipeline("misbehaving", inputs=Way, retry=Retry(0))
reviewed = Pipeline("reviewed", retry=Retry(0))


@reviewed.step(isolation=Isolation(), timeout=seconds(60))
def draft(*, ctx: Context) -> str:
    return f"{ctx.previous_result}, {ctx.feedback.text}" if ctx.feedback else "first"


reviewed.review("approved", of=draft)


@misbehaving.step(isolation=Isolation(memory=200 << 20), timeout=seconds(60))
def behaviour(way: str, *, ctx: Context) -> dict[str, str]:
    match way:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "memory":
            return {"size": str(len(b"x" * (1 << 30)))}
        case "crumbs":
            hoard = []
            while True:
                hoard.append(bytes(400))
        case "hoard":
            HOARD.append(b"x" * (120 << 20))
        case "real-time signal":
            os.kill(os.getpid(), 40)
        case "raise":
            raise ValueError("no such way")
        case "missing file":
            Path("missing.txt").absolute().read_text()
        case "oversized":
            return {"text": "x" * 2_000_000}
        case "mistyped":
            return ["not", "a", "dict"]  # type: ignore[return-value]
        case "no JSON":
            return {"thing": object()}  # type: ignore[dict-item]
        case "later" if not ctx.maybe_done:
            raise RetryLater(60)
        case "spy":
            return {name: opened(f"/proc/{os.getppid()}/{name}") for name in ("environ", "mem", "maps")} | {
                "privileges": ", ".join(privileges(Path("/proc/self/status").read_text()))
            }
        case "self-cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        case "unreadable":
            raise Unreadable
        case "print":
            print("this must not be taken for an answer", flush=True)
    return {"pid": str(os.getpid()), "secret": os.environ.get("OPENROUTER_API_KEY", "none"), "step": ctx.step}


def opened(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return f"opened, {len(file.read(1))} byte"
    except OSError as error:
        return type(error).__name__


def privileges(status: str) -> list[str]:
    """Return the privileges that the process of this status still has, itself or through a program that it starts."""
    told = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    held = [name for name in ("CapPrm", "CapEff", "CapInh", "CapAmb") if int(told[name], 16)]
    return [*held, *([] if told["NoNewPrivs"].strip() == "1" else ["new privileges"])]


class Database(BaseModel):
    folder: str
    port: int


intruding = Pipeline("intruding", inputs=Database, retry=Retry(0))


@intruding.step(isolation=Isolation())
async def accounts(folder: str, port: int) -> dict[str, bool]:
    """Try every word of the files of an embedded database as a password."""
    words = words_in(Path(folder))
    return {user: await logs_in(user, words, port) for user in ("retoma", "retoma_app")}


def words_in(folder: Path) -> set[str]:
    return {word for file in folder.iterdir() if file.is_file() for word in file.read_text().split()}


async def logs_in(user: str, passwords: set[str], port: int) -> bool:
    for password in passwords:
        with suppress(asyncpg.InvalidPasswordError):
            connection = await asyncpg.connect(
                host="127.0.0.1", port=port, user=user, password=password, database="retoma"
            )
            await connection.close()
            return True
    return False


busy = Pipeline("busy", inputs=Way, retry=Retry(0))


@busy.step(isolation=Isolation(cpu=0.5), timeout=seconds(60))
def spinning(way: str) -> None:
    if way == "deaf":
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


class Lifeline(BaseModel):
    """The path of a FIFO that a step and its child processes hold open while they run."""

    lifeline: str


hanging = Pipeline("hanging", inputs=Lifeline, retry=Retry(0))


@hanging.step(isolation="process", timeout=HOUR)
def hung(lifeline: str) -> None:
    with Path(lifeline).open("w") as held:
        subprocess.run(["sh", "-c", "echo began; exec sleep 600"], stdout=held, check=True)


endless = Pipeline("endless", inputs=Lifeline)


@endless.step(isolation="process")
def unended(lifeline: str) -> None:
    with Path(lifeline).open("w") as held:
        print("began", file=held, flush=True)
        time.sleep(600)  # in C, where no thread could be stopped


sequence = Pipeline("sequence")


@sequence.step(isolation="process")
def first() -> int:
    return os.getpid()


@sequence.step(isolation="process")
async def second(first: int) -> list[int]:
    return [first, os.getpid()]


limited = Pipeline("limited")


@limited.step(isolation=Isolation(cpu=30))
def hurried() -> int:
    return os.getpid()


@limited.step(isolation="process")
def unhurried(hurried: int) -> dict[str, int]:
    limits = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("CPU", "CORE", "FSIZE")}
    return limits | {"former child": hurried, "child": os.getpid()}


shared = Pipeline("shared", retry=Retry(1, delays=[1]))


@shared.step
def names() -> list[str]:
    return ["a"]


@shared.each(names)
def read(name: str, *, ctx: Context) -> str:
    if ctx.attempt == 1:
        raise ValueError("unreadable")
    return name


@shared.each(names, continues=read, isolation=Isolation())
def parse(read: str) -> str:
    raise ValueError(f"{read} is no number")


fragile = Pipeline("fragile")


@fragile.step(isolation="process")
def broken() -> None:
    os._exit(3)


poisoned = Pipeline("poisoned", retry=Retry(10, delays=[0]))


@poisoned.step
def documents() -> list[str]:
    return ["good", "poison", "fine"]


@poisoned.each(documents, isolation="process")
def text(document: str) -> str:
    if document == "poison":
        os.kill(os.getpid(), 11)
    return document.upper()


@poisoned.step
def report(text: Items[str]) -> list[str]:
    return [*text, *(failed.code for failed in text.failures)]


forking = Pipeline("forking", inputs=Way, retry=Retry(0))


@forking.step(isolation="process")
def forked(way: str) -> str:
    os.fork()
    return way


class Crowd(BaseModel):
    """Each waits until `together` of them have started, which they signal by files in `folder`."""

    size: int
    together: int
    folder: str


crowd = Pipeline("crowd", inputs=Crowd, retry=Retry(0))


@crowd.step
def people(size: int) -> list[int]:
    return list(range(size))


@crowd.each(people, isolation="process", timeout=seconds(60))
def met(person: int, together: int, folder: str) -> int:
    (Path(folder) / str(person)).touch()
    while len(list(Path(folder).iterdir())) < together:
        time.sleep(0.01)
    return os.getpid()


@crowd.step
def children(met: Items[int]) -> int:
    return len(set(met))


class Place(BaseModel):
    file: str


telling = Pipeline("telling", inputs=Place, retry=Retry(0))


@telling.step(isolation=Isolation())
def told(file: str) -> None:
    """Fail with what the file says, as a parser does."""
    raise ValueError(Path(file).read_text())
