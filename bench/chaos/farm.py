"""A provider outside that is nothing but files: it takes work, says how it stands, and forgets nothing."""

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
from retoma import Context, PollResult, RateLimited

NAME = "outside"
POOL = "farm"
CAPACITY, MOST = 3, 4  # slots as declared, and the most that anybody sets
SLOTS = {"clip": 1, "poster": 2}  # of the steps that need the pool
GOOD, BAD, LOST, IDLE = "succeeded", "failed", "lost", "never begins"


def result_of(key: str) -> int:
    """What comes out of the work with this effect key."""
    return mix("farm", key)


def get_folder() -> Path:
    return Path(tempfile.gettempdir()) / NAME


def is_first(*about: object) -> bool:
    """Whether nobody asked this before, in whatever process."""
    folder = get_folder()
    folder.mkdir(exist_ok=True)
    return _create_file(folder / f"asked-{mix(*map(str, about))}", "")


@dataclass(frozen=True)
class Work:
    """One submission. Times are monotonic, which is one clock for all processes of a machine."""

    external_id: str

    @property
    def file(self) -> Path:
        return get_folder() / self.external_id

    @property
    def key(self) -> str:
        run, _, name = self.external_id.partition("/")
        return ":".join([run, *name.split(",")[:-1]])

    @property
    def slots(self) -> int:
        return SLOTS.get(self.external_id.partition("/")[2].partition(",")[0], 0)

    @property
    def submitted_at(self) -> float:
        return float(json.loads(self.file.read_text())["at"])

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
        return self.begins_at + (0 if _is_hurried() else 0.05 + 0.7 * chance("works", self.external_id))

    @property
    def cancelled_at(self) -> float | None:
        return _read_time(self.file.with_name(self.file.name + "!cancelled"))

    @property
    def first_polled_at(self) -> float | None:
        """When somebody first asked how it stands."""
        return _read_time(self.file.with_name(self.file.name + "!seen"))

    @property
    def over_at(self) -> float:
        return min(self.ends_at, self.cancelled_at or float("inf"))

    @property
    def fate(self) -> str:
        of = 1.0 if _is_hurried() else chance("fate", self.external_id)
        return BAD if of < 0.12 else LOST if of < 0.16 else IDLE if of < 0.19 else GOOD

    def state_at(self, now: float) -> str:
        if now >= (self.cancelled_at or float("inf")):
            return "cancelled"
        if now >= self.ends_at:
            return self.fate
        return "running" if now >= self.begins_at else "queued"

    def record(self, what: str) -> None:
        _create_file(self.file.with_name(f"{self.file.name}!{what}"), f"{time.monotonic():.6f}")


class Farm:
    """Its answers are lost at times, it says "too many" at times, and some of the work that it takes fails."""

    async def submit(self, ctx: Context) -> str:
        if not _is_hurried() and chance("too many", ctx.effect_key) < 0.1 and is_first("knock", ctx.effect_key):
            raise RateLimited(0.2)
        work = _new_work(ctx)
        if not _is_hurried() and chance("lost reply", work.external_id) < 0.1:
            raise ConnectionError("the farm's answer was lost")
        return work.external_id

    async def find(self, ctx: Context) -> str | None:
        """The work of this effect key that goes on or has ended well, for an attempt that does not know."""
        now = time.monotonic()
        known = [work for work in _list_work_of(ctx) if work.state_at(now) in ("queued", "running", GOOD)]
        return known[-1].external_id if known else None

    async def status(self, external_id: str) -> PollResult:
        work, now = Work(external_id), time.monotonic()
        work.record("seen")
        if not _is_hurried() and chance("no word", external_id, int(now * 4)) < 0.1:
            raise ConnectionError("the farm does not answer")
        match work.state_at(now):
            case "succeeded":
                return PollResult("succeeded", result=result_of(work.key))
            case "failed":
                return PollResult("failed", code="FARM", message="the machine broke")
            case "queued" | "running" | "cancelled" | "lost" as state:
                return PollResult(state)
        raise AssertionError(external_id)

    async def cancel(self, external_id: str) -> None:
        work = Work(external_id)
        if work.state_at(time.monotonic()) in ("queued", "running"):
            work.record("cancelled")


def list_work(folder: Path) -> list[Work]:
    """All that was ever submitted. `folder` must be where this process keeps its temporary files."""
    files = (folder / NAME).glob("*/*")
    return [
        Work(f"{file.parent.name}/{file.name}")
        for file in sorted(files)
        if file.name[0] != "." and "!" not in file.name
    ]


def find_duplicates(submissions: Iterable[Work]) -> dict[Work, Work]:
    """Work that was submitted while the same work went on or had ended well: paid for twice. With the former."""
    of_key: dict[str, list[Work]] = defaultdict(list)
    for work in submissions:
        of_key[work.key].append(work)
    return {
        later: former
        for same in of_key.values()
        for later in same
        for former in same
        if former.submitted_at < later.submitted_at
        and former.state_at(later.submitted_at) in ("queued", "running", GOOD)
    }


def most_slots_at_once(submissions: Iterable[Work]) -> int:
    """What goes on outside must hold its slots from its submission to its end there."""
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
    """Good work that nobody ever asked after, though no callback is to tell: paid for, and not used."""
    return [
        work
        for work in submissions
        if work.first_polled_at is None and ":letter:" not in work.key and work.fate in (GOOD, IDLE)
    ]


def _new_work(ctx: Context) -> Work:
    for number in range(1, 1_000):
        work = Work(f"{_start(ctx)}{number:03}")
        work.file.parent.mkdir(parents=True, exist_ok=True)
        if _create_file(work.file, json.dumps({"at": time.monotonic(), "callback": ctx.callback_url})):
            return work
    raise AssertionError(ctx.effect_key)


def _list_work_of(ctx: Context) -> Sequence[Work]:
    start = _start(ctx)
    folder, _, name = start.partition("/")
    files = sorted((get_folder() / folder).glob(f"{name}[0-9][0-9][0-9]"))
    return [Work(f"{folder}/{file.name}") for file in files]


def _start(ctx: Context) -> str:
    return f"{ctx.run}/{ctx.step},{ctx.item},{ctx.revision},"


def key_of(run: UUID, step: str, item: str = "") -> str:
    """The effect key of a job's first revision."""
    return f"{run}:{step}:{item}:1"


def _create_file(file: Path, text: str) -> bool:
    """Whole or not at all, and once."""
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
