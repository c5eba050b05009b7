"""How an execution stands for those who look at it: whether they may wait, or it needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from retoma import Client
from retoma.records import Run, Stuck, Wait
from retoma.server import PageContext, StuckEpisode, find_fatal_episode, list_stuck_episodes
from retoma_apps.classifier.executions import Execution, get_execution, get_label_summary
from retoma_apps.classifier.pages.ended_run_cache import EndedRunCache
from retoma_apps.classifier.pages.words import KNOWN, Words
from retoma_apps.classifier.states import Status

# What may keep an execution from going on for good, and what of it only a person can mend.
BLOCKING_CAUSES = ("no_worker", "undefined_step", "not_claimed", "provider_down", "provider_rejected")
CAUSES_FOR_PEOPLE = ("no_worker", "undefined_step", "provider_rejected")
TEMPORARY_CAUSES = ("pool_paused", "delayed", "pool_rate", "provider_down")
MIN_DOCUMENTS_TO_ESTIMATE = 10  # documents
_ENDED_EXECUTIONS = EndedRunCache[tuple[Execution, dict[str, Any] | None]]()
_STUCK_EPISODES = EndedRunCache[list[StuckEpisode]]()


@dataclass(frozen=True)
class Overview:
    """`turn` is whose turn it is. A halted execution goes on only when somebody acts, or its cause passes."""

    execution: Execution
    status: Status
    turn: Literal["wait", "act", "none"]
    advice: str
    cause: str | None
    since: datetime | None
    stuck: Stuck | None
    summary: dict[str, Any] | None
    episodes: Sequence[StuckEpisode]

    @property
    def unsure_count(self) -> int:
        """How many labels a person should look at, once that is known."""
        return int((self.summary or {}).get("pouca_confianca", 0))

    @property
    def is_stopped(self) -> bool:
        return self.status in ("TRAVADO", "ERRO")


async def get_overview(visit: PageContext, say: Words, run: Run, now: datetime) -> Overview:
    client = visit.client
    (seen, summary), waits = await asyncio.gather(
        _ENDED_EXECUTIONS.get_or_load(run, lambda: _load_execution(client, run)),
        _no_waits() if run.is_over else client.runs.list_waits(run.id),
    )
    unsure = int((summary or {}).get("pouca_confianca", 0))
    turn, advice = _advice(visit, say, seen, waits, unsure, _estimate(seen, now), now)
    halts = await _STUCK_EPISODES.get_or_load(run, lambda: list_stuck_episodes(client, run))
    cause, since = _find_stop_cause(say, seen, find_fatal_episode(halts, run))
    return Overview(seen, seen.status, turn, advice, cause, since, seen.stuck, summary, halts)


def _find_stop_cause(say: Words, execution: Execution, end: StuckEpisode | None) -> tuple[str | None, datetime | None]:
    """Return why it does not go on, and since when, if it does not."""
    if execution.stuck:
        return describe_cause(say, execution.stuck.cause), execution.stuck.since
    if end:
        return describe_cause(say, end.cause), end.stuck.at
    return None, None


async def _no_waits() -> list[Wait]:
    return []


async def _load_execution(client: Client, run: Run) -> tuple[Execution, dict[str, Any] | None]:
    return await get_execution(client, run), await get_label_summary(client, run) if run.is_over else None


def _estimate(execution: Execution, now: datetime) -> datetime | None:
    """When it ends at its pace so far. None while that says little: at its beginning, and in later rounds."""
    left = execution.total - execution.finished_count
    if execution.run.revision > 1 or execution.finished_count < MIN_DOCUMENTS_TO_ESTIMATE or not left:
        return None
    return now + (now - execution.run.run_at) * (left / execution.finished_count)


def _advice(
    visit: PageContext,
    say: Words,
    execution: Execution,
    waits: Sequence[Wait],
    unsure: int,
    estimate: datetime | None,
    now: datetime,
) -> tuple[Literal["wait", "act", "none"], str]:
    """Whose turn it is, and a sentence that says so."""
    match execution.status:
        case "TRAVADO":
            return _stuck_advice(say, execution.stuck)
        case "ERRO":
            return "act", say("next you")
        case "CANCELADO":
            return "none", say("was cancelled" if execution.run.is_over else "being cancelled")
        case "CONCLUIDO" | "CONCLUIDO_COM_ERROS":
            return _ended_advice(visit, say, execution, unsure)
        case "PENDENTE" | "EM_ANDAMENTO":
            return _running_advice(visit, say, execution, waits, estimate, now)


def _stuck_advice(say: Words, stuck: Stuck | None) -> tuple[Literal["wait", "act"], str]:
    if stuck is None:
        return "act", say("next you")
    if stuck.cause in BLOCKING_CAUSES:
        return "act", say("next mend")
    if stuck.resumes < stuck.max_resumes:
        return "wait", say("next resume", times=stuck.resumes, most=stuck.max_resumes)
    return "act", say("next you")


def _ended_advice(
    visit: PageContext, say: Words, execution: Execution, unsure: int
) -> tuple[Literal["act", "none"], str]:
    failed = execution.counts["ERRO"]
    if failed:
        return "act", say("act one error") if failed == 1 else say("act errors", count=visit.formats.number(failed))
    if unsure:
        return "act", say("act check", count=visit.formats.number(unsure))
    return "none", say("all done")


def _running_advice(
    visit: PageContext,
    say: Words,
    execution: Execution,
    waits: Sequence[Wait],
    estimate: datetime | None,
    now: datetime,
) -> tuple[Literal["wait", "act"], str]:
    held = [wait for wait in waits if wait.reason in CAUSES_FOR_PEOPLE]
    if waits and len(held) == len(waits):
        return "act", say("act because", why=describe_cause(say, held[0].reason))
    if estimate is not None and estimate > now:
        return "wait", say("wait estimate", time=visit.formats.ago(estimate, now))
    paused = [wait for wait in waits if wait.reason in TEMPORARY_CAUSES]
    if paused and len(paused) == len(waits):
        return "wait", say("wait until", why=describe_cause(say, paused[0].reason))
    return "wait", say("wait to begin" if execution.status == "PENDENTE" else "wait for it")


def describe_cause(say: Words, cause: str) -> str:
    return say(f"cause {cause}") if f"cause {cause}" in KNOWN else say("cause unknown")
