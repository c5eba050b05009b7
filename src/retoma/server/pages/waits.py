"""Explain in the viewer's language why jobs wait, why runs are stuck and how they were resumed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from markupsafe import Markup

from retoma.records import REASON_MESSAGES, StuckRun, Wait
from retoma.server.pages.formats import NOTHING
from retoma.server.pages.page_context import PageContext
from retoma.server.pages.stuck_episodes import Resolution, StuckEpisode
from retoma.translations import N_

RESOLUTIONS: dict[Resolution, str] = {
    "still": N_("still stuck"),
    "itself": N_("resumed when the cause was resolved"),
    "watchdog": N_("resumed automatically"),
    "person": N_("resumed by %(by)s"),
    "not": N_("not resumed"),
}


def explain_stuck_runs(context: PageContext, stuck: list[StuckRun]) -> list[tuple[StuckRun, str]]:
    return [(each, explain_cause(context, each.cause, each.data or {})) for each in stuck]


def explain_cause(context: PageContext, cause: str, data: Mapping[str, Any]) -> str:
    """Return the recorded explanation, in English, of a cause that has no translation."""
    if cause in REASON_MESSAGES:
        values = {name: data.get(name) or NOTHING for name in ("queue", "pool", "step", "child")}
        until = context.formats.time(_parse_time(data.get("until")))
        why = context.translate(REASON_MESSAGES[cause], until=until, **values)
    else:
        why = str(data.get("explanation") or cause)
    where = " · ".join(str(data[name]) for name in ("step", "item") if data.get(name))
    return Markup("{}: {}").format(where, why) if where else why


def explain_wait(context: PageContext, wait: Wait) -> str:
    label = context.get_step_label(wait.step)
    who = f"{label} ({wait.item})" if wait.item and wait.jobs == 1 else label
    values = wait.get_values(context.formats.time(wait.until))
    if wait.child is not None:
        values["child"] = Markup('<a class="link" href="/runs/{0}"><code>{0}</code></a>').format(wait.child)
    why = context.translate(wait.message, **values)
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
