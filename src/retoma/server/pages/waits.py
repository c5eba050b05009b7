"""Explain in the viewer's language why jobs wait, why runs are stuck and how they were resumed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from retoma.records import Stuck, Wait
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.stuck_episodes import Resolution, StuckEpisode
from retoma.translations import N_

WAIT_REASONS = {
    "delayed": N_("next retry at %(until)s"),
    "external_work": N_("external work is in progress; next poll at %(until)s"),
    "person": N_("it waits for a reviewer's decision"),
    "undefined_step": N_("no worker defines %(step)s the way this run needs it; retoma check APP says why"),
    "no_worker": N_(
        "no running worker serves queue %(queue)s for this pipeline; start one: retoma worker APP -q %(queue)s"
    ),
    "suspect": N_("it was running when a worker died, so it reruns in isolation"),
    "capacity": N_("all workers of queue %(queue)s are at capacity"),
    "pool": N_("pool %(pool)s does not have enough free slots"),
    "pool_too_small": N_("it needs more slots than pool %(pool)s has"),
    "pool_paused": N_("the provider behind %(pool)s asked us to wait"),
    "pool_rate": N_("%(pool)s has reached its limit of starts per second"),
    "pool_share": N_("its tenant already uses its full share of %(pool)s"),
    "provider_down": N_("the provider behind %(pool)s is failing; one job retries at %(until)s"),
    "provider_rejected": N_("the provider behind %(pool)s rejected our credentials; check the API key and billing"),
    "no_progress": N_("a worker has held it past its time limit without progress"),
    "nothing_runs": N_("nothing is running although it is not finished"),
    "not_claimed": N_("ready; if this does not change, no worker of queue %(queue)s defines its pipeline"),
}
RESOLUTIONS: dict[Resolution, str] = {
    "still": N_("still stuck"),
    "itself": N_("resumed when the cause was resolved"),
    "watchdog": N_("resumed automatically"),
    "person": N_("resumed by %(by)s"),
    "not": N_("not resumed"),
}


def explain_stuck_runs(context: PageContext, stuck: list[Stuck]) -> list[tuple[Stuck, str]]:
    return [(each, explain_cause(context, each.cause, each.data or {})) for each in stuck]


def explain_cause(context: PageContext, cause: str, data: Mapping[str, Any]) -> str:
    """Return the recorded explanation, in English, of a cause that has no translation."""
    about = {name: data.get(name) or "" for name in ("queue", "pool", "step")}
    until = context.formats.time(_parse_time(data.get("until")))
    if cause in WAIT_REASONS:
        why = context.translate(WAIT_REASONS[cause], until=until, **about)
    else:
        why = str(data.get("explanation") or cause)
    where = " · ".join(str(data[name]) for name in ("step", "item") if data.get(name))
    return Markup("{}: {}").format(where, why) if where else why


def explain_wait(context: PageContext, wait: Wait) -> str:
    label = context.get_step_label(wait.step)
    who = f"{label} ({wait.item})" if wait.item and wait.jobs == 1 else label
    until = context.formats.time(wait.until)
    why = context.translate(
        WAIT_REASONS[wait.reason], queue=wait.queue, pool=wait.pool or "", until=until, step=wait.step
    )
    if wait.jobs == 1:
        return Markup("{}: {}").format(who, why)
    return context.gettext("%(who)s, %(jobs)s jobs: %(why)s", who=who, jobs=context.formats.number(wait.jobs), why=why)


def _parse_time(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value)) if value else None
    except ValueError:
        return None


def describe_resolution(context: PageContext, episode: StuckEpisode) -> str:
    return context.translate(RESOLUTIONS[episode.resolution], by=episode.resumed_by)
