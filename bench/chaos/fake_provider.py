"""An external provider made of files: it accepts work, reports its state, and keeps a record of everything."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from bench.chaos.chance import chance, mix
from retoma import Context, PollResult
from retoma.errors import RateLimited

NAME = "fake-provider"
POOL = "provider"
CAPACITY, MOST = 3, 4  # slots as declared, and the maximum that is ever set
SLOTS = {"clip": 1, "poster": 2}  # of the steps that need the pool
# Steps whose work continues until it is cancelled, or until it calls back. Neither is polled.
ENDLESS, CALLS_BACK = {"ship"}, {"letter"}
UNPOLLED = ENDLESS | CALLS_BACK
IN_PROGRESS = ("queued", "running")
GOOD, BAD, LOST, IDLE = "succeeded", "failed", "lost", "never begins"


def result_of(key: str) -> int:
    """Return the result of the work with this effect key."""
    return mix("provider", key)


def get_folder() -> Path:
    return Path(tempfile.gettempdir()) / NAME


def is_first(*about: object) -> bool:
    """Return whether this is the first request of its kind, across all processes."""
    folder = get_folder()
    folder.mkdir(exist_ok=True)
    return _create_file(folder / f"asked-{mix(*map(str, about))}", "")


@dataclass(frozen=True)
class Work:
    """One submission. Times are monotonic, a clock that all processes of a machine share."""

    external_id: str

    @property
    def file(self) -> Path:
        return get_folder() / self.external_id

    @property
    def key(self) -> str:
        run, _, name = self.external_id.partition("/")
        return ":".join([run, *name.split(",")[:-1]])

    @property
    def step(self) -> str:
        return self.external_id.partition("/")[2].partition(",")[0]

    @property
    def slots(self) -> int:
        return SLOTS.get(self.step, 0)

    @property
    def submitted_at(self) -> float:
        return float(json.loads(self.file.read_text())["at"])

    @property
    def submitted_by(self) -> int:
        """Return the id of the process."""
        return int(json.loads(self.file.read_text())["by"])

    @property
    def callback(self) -> str | None:
        url: str | None = json.loads(self.file.read_text())["callback"]
        return url

    @property
    def begins_at(self) -> float:
        if self.fate == IDLE:
            return float("inf")
        return self.submitted_at + (0 if _is_hurried() else 0.3 * chance("queued", self.external_id))

    @property
    def ends_at(self) -> float:
        if self.step in ENDLESS:
            return float("inf")
        if self.step in CALLS_BACK and not _is_hurried():
            return _read_time(self.file.with_name(f"{self.file.name}!called_back")) or float("inf")
        return self.begins_at + (0 if _is_hurried() else 0.05 + 0.7 * chance("works", self.external_id))

    @property
    def cancelled_at(self) -> float | None:
        return _read_time(self.file.with_name(self.file.name + "!cancelled"))

    @property
    def first_polled_at(self) -> float | None:
        """Return the time of the first poll."""
        return _read_time(self.file.with_name(self.file.name + "!seen"))

    @property
    def over_at(self) -> float:
        return min(self.ends_at, self.cancelled_at or float("inf"))

    @property
    def fate(self) -> str:
        of = 1.0 if _is_hurried() or self.step in UNPOLLED else chance("fate", self.external_id)
        return BAD if of < 0.12 else LOST if of < 0.16 else IDLE if of < 0.19 else GOOD

    def state_at(self, now: float) -> str:
        if now >= (self.cancelled_at or float("inf")):
            return "cancelled"
        if now >= self.ends_at:
            return self.fate
        return "running" if now >= self.begins_at else "queued"

    def record(self, what: str) -> None:
        _create_file(self.file.with_name(f"{self.file.name}!{what}"), f"{time.monotonic():.6f}")


class FakeProvider:
    """Sometimes its responses are lost, sometimes it rate limits, and some of its work fails."""

    async def submit(self, ctx: Context) -> str:
        if not _is_hurried() and chance("too many", ctx.effect_key) < 0.1 and is_first("knock", ctx.effect_key):
            raise RateLimited(0.2)
        work = _new_work(ctx)
        if not _is_hurried() and chance("lost reply", work.external_id) < 0.1:
            raise ConnectionError("the answer of the provider was lost")
        return work.external_id

    async def find(self, key: str) -> str | None:
        """Return the work with this effect key that is running or succeeded, for a caller that does not know."""
        now = time.monotonic()
        _fail_sometimes("find", key, now)
        known = [work for work in _list_work_of(key) if work.state_at(now) in (*IN_PROGRESS, GOOD)]
        return known[-1].external_id if known else None

    async def status(self, external_id: str) -> PollResult:
        work, now = Work(external_id), time.monotonic()
        work.record("seen")
        _fail_sometimes("status", external_id, now)
        match work.state_at(now):
            case "succeeded":
                return PollResult("succeeded", result=result_of(work.key))
            case "failed":
                return PollResult("failed", code="RENDERING_FAILED", message="the machine broke")
            case "queued" | "running" | "cancelled" | "lost" as state:
                return PollResult(state)
        raise AssertionError(external_id)

    async def cancel(self, external_id: str) -> None:
        work, now = Work(external_id), time.monotonic()
        _fail_sometimes("cancel", external_id, now)
        if work.state_at(now) in IN_PROGRESS:
            work.record("cancelled")


def list_work(folder: Path) -> list[Work]:
    """Return all submissions. `folder` is the folder for temporary files of the processes."""
    files = (folder / NAME).glob("*/*")
    return [
        Work(f"{file.parent.name}/{file.name}")
        for file in sorted(files)
        if file.name[0] != "." and "!" not in file.name
    ]


def find_duplicates(submissions: Iterable[Work]) -> dict[Work, Work]:
    """Return duplicate submissions (the same work was running or had succeeded), each with the earlier one."""
    of_key: dict[str, list[Work]] = defaultdict(list)
    for work in submissions:
        of_key[work.key].append(work)
    return {
        later: former
        for same in of_key.values()
        for later in same
        for former in same
        if former.submitted_at < later.submitted_at and former.state_at(later.submitted_at) in (*IN_PROGRESS, GOOD)
    }


def most_slots_at_once(submissions: Iterable[Work]) -> int:
    """Return the peak of slots: external work holds its slots from its submission to its end."""
    steps = [
        step
        for work in submissions
        for step in ((work.submitted_at, work.slots), (min(work.over_at, time.monotonic()), -work.slots))
    ]
    now, most = 0, 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most


def find_never_polled(submissions: Iterable[Work]) -> list[Work]:
    """Return successful work that was never polled, although its step polls it: paid for, but not used."""
    return [
        work
        for work in submissions
        if work.first_polled_at is None and work.step not in UNPOLLED and work.fate in (GOOD, IDLE)
    ]


def _new_work(ctx: Context) -> Work:
    for number in range(1, 1_000):
        work = Work(f"{_start(ctx.effect_key)}{number:03}")
        work.file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"at": time.monotonic(), "by": os.getpid(), "callback": ctx.callback_url})
        if _create_file(work.file, text):
            return work
    raise AssertionError(ctx.effect_key)


def _list_work_of(key: str) -> Sequence[Work]:
    start = _start(key)
    folder, _, name = start.partition("/")
    files = sorted((get_folder() / folder).glob(f"{name}[0-9][0-9][0-9]"))
    return [Work(f"{folder}/{file.name}") for file in files]


def _start(key: str) -> str:
    run, _, name = key.partition(":")
    return f"{run}/{name.replace(':', ',')},"


def key_of(run: UUID, step: str, item: str = "") -> str:
    """Return the effect key of a job's first revision."""
    return f"{run}:{step}:{item}:1"


def _fail_sometimes(call: str, about: str, now: float) -> None:
    if not _is_hurried() and chance("no word", call, about, int(now * 4)) < 0.1:
        raise ConnectionError("the provider does not answer")


def _create_file(file: Path, text: str) -> bool:
    """Create the file atomically, and only once."""
    draft = file.with_name(f".{uuid4().hex}")
    draft.write_text(text)
    try:
        os.link(draft, file)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _read_time(file: Path) -> float | None:
    return float(file.read_text()) if file.exists() else None


def _is_hurried() -> bool:
    return bool(os.environ.get("CHAOS_HURRY"))
