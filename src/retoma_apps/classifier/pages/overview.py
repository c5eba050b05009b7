"""The state of an execution for its viewers: whether they can wait or it needs their attention."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from retoma import Client
from retoma.records import REASON_MESSAGES, Run, StuckRun, Wait, WaitReason
from retoma.server import PageContext, StuckEpisode, find_fatal_episode, list_stuck_episodes
from retoma_apps.classifier.operations.executions import Execution, get_execution, get_label_summary
from retoma_apps.classifier.pages.ended_run_cache import EndedRunCache
from retoma_apps.classifier.pages.messages import CAUSES, UNKNOWN_CAUSE

# Causes that can block an execution permanently, those that only a person can fix, and those that pass. The page only
# names all others.
BLOCKING_CAUSES = frozenset(
    {
        WaitReason.NO_WORKER,
        WaitReason.UNDEFINED_STEP,
        WaitReason.NOT_CLAIMED,
        WaitReason.PROVIDER_DOWN,
        WaitReason.PROVIDER_REJECTED,
    }
)
CAUSES_FOR_PEOPLE = frozenset(
    {WaitReason.NO_WORKER, WaitReason.UNDEFINED_STEP, WaitReason.PROVIDER_REJECTED, WaitReason.PERSON}
)
TEMPORARY_CAUSES = frozenset(
    {WaitReason.POOL_PAUSED, WaitReason.DELAYED, WaitReason.POOL_RATE, WaitReason.PROVIDER_DOWN}
)
MIN_DOCUMENTS_TO_ESTIMATE = 10  # documents
_ENDED_EXECUTIONS = EndedRunCache[tuple[Execution, dict[str, Any] | None]]()
_STUCK_EPISODES = EndedRunCache[list[StuckEpisode]]()


@dataclass(frozen=True)
class Overview:
    """`turn` says who has to act. A stuck execution continues when someone acts or its cause is resolved."""

    execution: Execution
    turn: Literal["wait", "act", "none"]
    advice: str
    cause: str | None
    since: datetime | None
    unsure_count: int
    """The number of labels with low confidence, once known."""
    summary: dict[str, Any] | None
    episodes: Sequence[StuckEpisode]

    @property
    def is_stopped(self) -> bool:
        return self.execution.status in ("TRAVADO", "ERRO")


async def get_overview(context: PageContext, run: Run, now: datetime) -> Overview:
    client = context.client
    (seen, summary), waits = await asyncio.gather(
        _ENDED_EXECUTIONS.get_or_load(run, lambda: _load_execution(client, run)),
        _no_waits() if run.is_over else client.runs.list_waits(run.id),
    )
    unsure = int((summary or {}).get("pouca_confianca", 0))
    turn, advice = _advice(context, seen, waits, unsure, _estimate(seen, now), now)
    episodes = await _STUCK_EPISODES.get_or_load(run, lambda: list_stuck_episodes(client, run))
    cause, since = _find_stop_cause(context, seen, find_fatal_episode(episodes, run))
    return Overview(seen, turn, advice, cause, since, unsure, summary, episodes)


def _find_stop_cause(
    context: PageContext, execution: Execution, end: StuckEpisode | None
) -> tuple[str | None, datetime | None]:
    """Return why the execution is stopped and since when, or `None, None`."""
    if execution.stuck:
        return describe_cause(context, execution.stuck.cause), execution.stuck.since
    if end:
        return describe_cause(context, end.cause), end.stuck.at
    return None, None


async def _no_waits() -> list[Wait]:
    return []


async def _load_execution(client: Client, run: Run) -> tuple[Execution, dict[str, Any] | None]:
    return await get_execution(client, run), await get_label_summary(client, run) if run.is_over else None


def _estimate(execution: Execution, now: datetime) -> datetime | None:
    """Estimate the end from the pace so far; None at the beginning and in later rounds, when it says little."""
    left = execution.total - execution.finished_count
    if execution.run.revision > 1 or execution.finished_count < MIN_DOCUMENTS_TO_ESTIMATE or not left:
        return None
    return now + (now - execution.run.run_at) * (left / execution.finished_count)


def _advice(
    context: PageContext,
    execution: Execution,
    waits: Sequence[Wait],
    unsure: int,
    estimate: datetime | None,
    now: datetime,
) -> tuple[Literal["wait", "act", "none"], str]:
    """Return who has to act, and a sentence that says so."""
    match execution.status:
        case "TRAVADO" | "ERRO":
            return _stopped_advice(context, execution.stuck)
        case "CANCELADO":
            return "none", _describe_cancellation(context, execution)
        case "CONCLUIDO" | "CONCLUIDO_COM_ERROS":
            return _ended_advice(context, execution, unsure)
        case "PENDENTE" | "EM_ANDAMENTO":
            return _running_advice(context, execution, waits, estimate, now)


def _stopped_advice(context: PageContext, stuck: StuckRun | None) -> tuple[Literal["wait", "act"], str]:
    if stuck and stuck.cause in BLOCKING_CAUSES:
        return "act", context.gettext(
            "It resumes automatically as soon as this is fixed, and does not fail because of it."
        )
    if stuck and stuck.resumes < stuck.max_resumes:
        return "wait", context.ngettext(
            "It is about to resume automatically (resumed %(times)s of %(most)s time). You can wait, or continue now.",
            "It is about to resume automatically (resumed %(times)s of %(most)s times). You can wait, or continue now.",
            stuck.max_resumes,
            times=stuck.resumes,
            most=stuck.max_resumes,
        )
    return "act", context.gettext("It no longer resumes automatically: continue once the cause is fixed.")


def _ended_advice(context: PageContext, execution: Execution, unsure: int) -> tuple[Literal["act", "none"], str]:
    failed = execution.counts["ERRO"]
    if failed:
        return "act", context.ngettext(
            "One document has no label. See below what to do about it, then rerun only it.",
            "%(count)s documents have no label. See below what to do about each, then rerun only them.",
            failed,
            count=context.formats.number(failed),
        )
    if unsure:
        return "act", context.ngettext(
            "Done. One label has low confidence: please check it.",
            "Done. %(count)s labels have low confidence: please check them.",
            unsure,
            count=context.formats.number(unsure),
        )
    return "none", context.gettext("Done: nothing needs your attention.")


def _running_advice(
    context: PageContext,
    execution: Execution,
    waits: Sequence[Wait],
    estimate: datetime | None,
    now: datetime,
) -> tuple[Literal["wait", "act"], str]:
    held = [wait for wait in waits if wait.reason in CAUSES_FOR_PEOPLE]
    if waits and len(held) == len(waits):
        return "act", context.gettext("It needs your attention: %(why)s.", why=describe_cause(context, held[0].reason))
    if estimate is not None and estimate > now:
        return "wait", context.gettext(
            "Classification in progress: it should finish %(time)s. You do not need to do anything.",
            time=context.formats.ago_text(estimate, now),
        )
    paused = [wait for wait in waits if wait.reason in TEMPORARY_CAUSES]
    if paused and len(paused) == len(waits):
        return "wait", context.gettext(
            "You do not need to do anything: %(why)s, and it continues automatically.",
            why=describe_cause(context, paused[0].reason),
        )
    if execution.status == "PENDENTE":
        return "wait", context.gettext("It starts automatically: you do not need to do anything.")
    return "wait", context.gettext("Classification in progress: you do not need to do anything.")


def _describe_cancellation(context: PageContext, execution: Execution) -> str:
    if execution.run.is_over:
        return context.gettext("It was cancelled. Labels that existed by then are kept.")
    return context.gettext("It is being cancelled: running documents finish first.")


def describe_cause(context: PageContext, cause: str) -> str:
    return context.translate(CAUSES.get(cause) or REASON_MESSAGES.get(cause, UNKNOWN_CAUSE))
