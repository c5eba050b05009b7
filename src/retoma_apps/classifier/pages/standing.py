"""How an execution stands for those who look at it: whether they may wait, or it needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from retoma import Client
from retoma.records import Run, Stuck, Wait
from retoma.server import Episode, Visit, ended_by, episodes
from retoma_apps.classifier.batches import Execution, execution, labels
from retoma_apps.classifier.pages.remembered import Remembered
from retoma_apps.classifier.pages.words import KNOWN, Words
from retoma_apps.classifier.states import Status

# What may keep an execution from going on for good, and what of it only a person can mend.
HOLDING = ("no_worker", "undefined_step", "not_taken", "provider_down", "provider_refuses")
FOR_PEOPLE = ("no_worker", "undefined_step", "provider_refuses")
PASSING = ("pool_paused", "delayed", "pool_rate", "provider_down")
FEWEST_TO_ESTIMATE = 10  # documents
_ENDED = Remembered[tuple[Execution, dict[str, Any] | None]]()
_HALTS = Remembered[list[Episode]]()


@dataclass(frozen=True)
class Standing:
    """`turn` is whose turn it is. A halted execution goes on only when somebody acts, or its cause passes."""

    seen: Execution
    status: Status
    turn: Literal["wait", "act", "none"]
    advice: str
    cause: str | None
    since: datetime | None
    stuck: Stuck | None
    summary: dict[str, Any] | None
    episodes: Sequence[Episode]

    @property
    def unsure(self) -> int:
        """How many labels a person should look at, once that is known."""
        return int((self.summary or {}).get("pouca_confianca", 0))

    @property
    def is_halted(self) -> bool:
        return self.status in ("TRAVADO", "ERRO")


async def standing(visit: Visit, say: Words, run: Run, now: datetime) -> Standing:
    client = visit.client
    (seen, summary), waits = await asyncio.gather(
        _ENDED.of(run, lambda: _seen(client, run)), _none() if run.is_over else client.waits(run.id)
    )
    unsure = int((summary or {}).get("pouca_confianca", 0))
    turn, advice = _advice(visit, say, seen, waits, unsure, _estimate(seen, now), now)
    halts = await _HALTS.of(run, lambda: episodes(client, run))
    cause, since = _halt(say, seen, ended_by(halts, run))
    return Standing(seen, seen.status, turn, advice, cause, since, seen.stuck, summary, halts)


def _halt(say: Words, seen: Execution, end: Episode | None) -> tuple[str | None, datetime | None]:
    """Return why it does not go on, and since when, if it does not."""
    if seen.stuck:
        return cause_of(say, seen.stuck.cause), seen.stuck.since
    if end:
        return cause_of(say, end.cause), end.stuck.at
    return None, None


async def _none() -> list[Wait]:
    return []


async def _seen(client: Client, run: Run) -> tuple[Execution, dict[str, Any] | None]:
    return await execution(client, run), await labels(client, run) if run.is_over else None


def _estimate(seen: Execution, now: datetime) -> datetime | None:
    """When it ends at its pace so far. None while that says little: at its beginning, and in later rounds."""
    left = seen.total - seen.ended
    if seen.run.revision > 1 or seen.ended < FEWEST_TO_ESTIMATE or not left:
        return None
    return now + (now - seen.run.run_at) * (left / seen.ended)


def _advice(
    visit: Visit,
    say: Words,
    seen: Execution,
    waits: Sequence[Wait],
    unsure: int,
    estimate: datetime | None,
    now: datetime,
) -> tuple[Literal["wait", "act", "none"], str]:
    """Whose turn it is, and a sentence that says so."""
    match seen.status:
        case "TRAVADO":
            return _stuck_advice(say, seen.stuck)
        case "ERRO":
            return "act", say("next you")
        case "CANCELADO":
            return "none", say("was cancelled" if seen.run.is_over else "being cancelled")
        case "CONCLUIDO" | "CONCLUIDO_COM_ERROS":
            return _ended_advice(visit, say, seen, unsure)
        case "PENDENTE" | "EM_ANDAMENTO":
            return _going_advice(visit, say, seen, waits, estimate, now)


def _stuck_advice(say: Words, stuck: Stuck | None) -> tuple[Literal["wait", "act"], str]:
    if stuck is None:
        return "act", say("next you")
    if stuck.cause in HOLDING:
        return "act", say("next mend")
    if stuck.resumes < stuck.may_resume:
        return "wait", say("next resume", times=stuck.resumes, most=stuck.may_resume)
    return "act", say("next you")


def _ended_advice(visit: Visit, say: Words, seen: Execution, unsure: int) -> tuple[Literal["act", "none"], str]:
    failed = seen.counts["ERRO"]
    if failed:
        return "act", say("act one error") if failed == 1 else say("act errors", count=visit.formats.number(failed))
    if unsure:
        return "act", say("act check", count=visit.formats.number(unsure))
    return "none", say("all done")


def _going_advice(
    visit: Visit,
    say: Words,
    seen: Execution,
    waits: Sequence[Wait],
    estimate: datetime | None,
    now: datetime,
) -> tuple[Literal["wait", "act"], str]:
    held = [wait for wait in waits if wait.reason in FOR_PEOPLE]
    if waits and len(held) == len(waits):
        return "act", say("act because", why=cause_of(say, held[0].reason))
    if estimate is not None and estimate > now:
        return "wait", say("wait estimate", time=visit.formats.ago(estimate, now))
    paused = [wait for wait in waits if wait.reason in PASSING]
    if paused and len(paused) == len(waits):
        return "wait", say("wait until", why=cause_of(say, paused[0].reason))
    return "wait", say("wait to begin" if seen.status == "PENDENTE" else "wait for it")


def cause_of(say: Words, cause: str) -> str:
    return say(f"cause {cause}") if f"cause {cause}" in KNOWN else say("cause unknown")
