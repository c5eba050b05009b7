"""Schedules: a list of them, the page of one with its history, and the form to create or change one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from starlette.responses import Response

from retoma.define.schedule import MAX_CATCH_UP, MAX_NAME_LENGTH, MAX_TITLE_LENGTH
from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.records import CatchUp, DeclaredBy, NoStart, Overlap, Schedule
from retoma.server.pages.formats import Formats
from retoma.server.pages.page import Page
from retoma.server.pages.page_context import PageContext, parse_number
from retoma.store.tenants import DEFAULT
from retoma.translations import N_

CHANGE = "schedules:write"
ACT = "runs:write"
HISTORY_SIZE = 50
MAX_SHOWN = 1_000
UNITS = {"minutes": N_("minutes"), "hours": N_("hours"), "days": N_("days"), "seconds": N_("seconds")}
RULE = {"cron", "every", "unit"}
AS_ENTERED = {"pipeline", "title", "time_zone", "catch_up", "overlap"}
CATCH_UPS = {
    CatchUp.LATEST: N_("Start the latest one"),
    CatchUp.ALL: N_("Start all of them, up to a limit"),
    CatchUp.SKIP: N_("Start none of them"),
}
OVERLAPS = {
    Overlap.ALLOW: N_("Start all the same"),
    Overlap.SKIP: N_("Start nothing"),
}
REASONS = {
    NoStart.PAUSED: N_("paused"),
    NoStart.MISSED: N_("missed"),
    NoStart.OVERLAPPING: N_("the last run was not over"),
    NoStart.INVALID_INPUTS: N_("invalid inputs"),
}


async def show_schedules(context: PageContext) -> Response:
    tenant, pipeline = context.query.get("tenant") or None, context.get_query_pipelines()
    return context.render(
        "schedules.html",
        schedules=await context.client.schedules.list(tenant=tenant, pipeline=pipeline, limit=MAX_SHOWN),
        now=await context.client.now(),
        describe_rule=lambda schedule: describe_rule(context, schedule),
        describe_local=lambda schedule, at: describe_local(context, schedule.time_zone, at),
        query=context.query,
    )


async def show_schedule(context: PageContext, status: int = 200, error: str = "") -> Response:
    schedule = await context.client.schedules.get(_read_id(context))
    before = _read_before(context)
    history = await context.client.schedules.list_occurrences(schedule.id, before=before, limit=HISTORY_SIZE + 1)
    return context.render(
        "schedule.html",
        status,
        schedule=schedule,
        rule=describe_rule(context, schedule),
        ahead=await context.client.schedules.list_next(schedule.id),
        history=history[:HISTORY_SIZE],
        next=history[HISTORY_SIZE - 1].due_at.isoformat() if len(history) > HISTORY_SIZE else None,
        inputs=json.dumps(schedule.inputs, indent=2, ensure_ascii=False),
        now=await context.client.now(),
        reasons=REASONS,
        catch_ups=CATCH_UPS,
        overlaps=OVERLAPS,
        describe_local=lambda at: describe_local(context, schedule.time_zone, at),
        error=error,
    )


async def show_form(
    context: PageContext, status: int = 200, error: str = "", schedule: Schedule | None = None
) -> Response:
    """Show the form, with the next times of the rule in it. With a schedule, it is prefilled with what that has."""
    initial = {"time_zone": context.time_zone.key, "unit": "hours", "tenant": _choose_tenant(context)}
    if schedule is not None:
        initial = _prefill(schedule)
    fields = initial | (context.fields if error else context.query)
    times: Sequence[datetime] = ()
    if schedule is not None and not _list_edited(fields, initial) & RULE:
        times = await context.client.schedules.list_next(schedule.id)
    elif fields.get("cron") or fields.get("every"):
        try:
            times = await context.client.schedules.preview(
                cron=fields.get("cron") or None, every=_read_interval(fields), time_zone=fields["time_zone"]
            )
        except InvalidInput as invalid:
            error, status = error or context.translate_error(invalid), 422
    return context.render(
        "schedule_form.html",
        status,
        schedule=schedule,
        fields=fields,
        error=error,
        times=times,
        describe_local=lambda at: describe_local(context, fields["time_zone"], at),
        pipelines=_list_pipelines(context, schedule),
        units=UNITS,
        catch_ups=CATCH_UPS,
        overlaps=OVERLAPS,
        max_catch_up=MAX_CATCH_UP,
        max_name=MAX_NAME_LENGTH,
        max_title=MAX_TITLE_LENGTH,
    )


async def create_schedule(context: PageContext) -> Response:
    """Create what the form describes, or show the form with what is wrong or, by its other button, the next times."""
    fields = context.fields
    try:
        created = await context.client.schedules.create(
            fields.get("name", "").strip(),
            fields.get("pipeline", ""),
            cron=fields.get("cron", "").strip() or None,
            every=_read_interval(fields),
            time_zone=fields.get("time_zone", "").strip(),
            inputs=_read_inputs(context),
            tenant=fields.get("tenant", "").strip() or DEFAULT,
            title=fields.get("title", "").strip() or None,
            catch_up=fields.get("catch_up") or CatchUp.LATEST,
            catch_up_limit=parse_number(fields.get("catch_up_limit", ""), 10),
            jitter=timedelta(minutes=_read_float(fields.get("jitter", "")) or 0),
            overlap=fields.get("overlap") or Overlap.ALLOW,
            by=context.by,
        )
    except (Conflict, InvalidInput, NotFound) as error:
        return await show_form(context, 422, context.translate_error(error))
    return context.redirect(f"/schedules/{created.id}", "schedule_created")


async def show_edit_form(context: PageContext) -> Response:
    schedule = await context.client.schedules.get(_read_id(context))
    if schedule.declared_by is DeclaredBy.CODE:
        return context.redirect(f"/schedules/{schedule.id}")
    return await show_form(context, schedule=schedule)


async def change_schedule(context: PageContext) -> Response:
    """Change what was edited in the form. What its numbers show rounded is kept unless somebody edits it."""
    schedule = await context.client.schedules.get(_read_id(context))
    if schedule.declared_by is DeclaredBy.CODE:
        message = context.gettext("This schedule is declared in the code: change it there.")
        return await show_schedule(context, 409, message)
    fields = context.fields
    edited = _list_edited(fields, _prefill(schedule))
    changes: dict[str, Any] = {name: fields[name].strip() for name in edited & AS_ENTERED}
    try:
        if "inputs" in edited:
            changes["inputs"] = _read_inputs(context)
        if "catch_up_limit" in edited:
            changes["catch_up_limit"] = parse_number(fields["catch_up_limit"], 0)
        if "jitter" in edited:
            changes["jitter"] = timedelta(minutes=_read_float(fields["jitter"]) or 0)
        if edited & RULE:
            changes |= {"cron": fields.get("cron", "").strip() or None, "every": _read_interval(fields)}
            await context.client.schedules.preview(cron=changes["cron"], every=changes["every"])  # neither is an error
        changed = await context.client.schedules.update(
            schedule.id, **changes, revision=parse_number(fields.get("revision", ""), 0), by=context.by
        )
    except (Conflict, InvalidInput, NotFound) as error:
        return await show_form(context, 422, context.translate_error(error), schedule)
    return context.redirect(f"/schedules/{changed.id}", "schedule_changed")


async def pause_schedule(context: PageContext) -> Response:
    schedule = await context.client.schedules.pause(_read_id(context), by=context.by)
    return context.redirect(f"/schedules/{schedule.id}", "schedule_paused")


async def resume_schedule(context: PageContext) -> Response:
    try:
        schedule = await context.client.schedules.resume(_read_id(context), by=context.by)
    except Conflict as error:
        return await show_schedule(context, 409, context.translate_error(error))
    return context.redirect(f"/schedules/{schedule.id}", "schedule_resumed")


async def trigger_schedule(context: PageContext) -> Response:
    schedule = _read_id(context)
    try:
        started = await context.client.schedules.trigger(schedule, key=context.idempotency_key, by=context.by)
    except InvalidInput as error:
        return await show_schedule(context, 422, context.translate_error(error))
    return context.redirect(f"/runs/{started.id}", "schedule_triggered")


async def delete_schedule(context: PageContext) -> Response:
    try:
        await context.client.schedules.delete(_read_id(context))
    except Conflict as error:
        return await show_schedule(context, 409, context.translate_error(error))
    return context.redirect("/schedules", "schedule_deleted")


def describe_rule(context: PageContext, schedule: Schedule) -> str:
    if schedule.cron is not None:
        return schedule.cron
    return context.gettext("every %(time)s", time=context.formats.duration(schedule.every))


def describe_local(context: PageContext, time_zone: str, at: datetime) -> str:
    """Return a time in the zone of a schedule, as text that the browser does not convert."""
    return f"{Formats(context.language, ZoneInfo(time_zone)).minute_text(at)} {time_zone}"


def _read_id(context: PageContext) -> int:
    number = parse_number(context.request.path_params["schedule"], 0)
    if not 0 < number < 2**31:
        raise NotFound(context.gettext("This is not a valid id."))
    return number


def _read_before(context: PageContext) -> datetime | None:
    try:
        found = datetime.fromisoformat(context.query["before"]) if context.query.get("before") else None
    except ValueError:
        raise NotFound("`before` must be a time") from None
    if found is not None and found.tzinfo is None:
        raise NotFound("`before` must be a time with a time zone")
    return found


def _list_pipelines(context: PageContext, schedule: Schedule | None) -> list[str]:
    known = set(context.client.app.pipelines) if context.client.app else set()
    return sorted(known | ({schedule.pipeline} if schedule else set()))


def _prefill(schedule: Schedule) -> dict[str, str]:
    """Return what the form has before anything is edited."""
    every = schedule.every
    unit = next(
        (unit for unit in ("days", "hours", "minutes") if every and not every % timedelta(**{unit: 1})), "seconds"
    )
    return {
        "revision": str(schedule.revision),
        "pipeline": schedule.pipeline,
        "title": schedule.title or "",
        "cron": schedule.cron or "",
        "every": _show_number(every / timedelta(**{unit: 1})) if every else "",
        "unit": unit if every else "hours",
        "time_zone": schedule.time_zone,
        "inputs": json.dumps(schedule.inputs, indent=2, ensure_ascii=False),
        "catch_up": schedule.catch_up,
        "catch_up_limit": str(schedule.catch_up_limit),
        "jitter": _show_number(schedule.jitter / timedelta(minutes=1)) if schedule.jitter else "",
        "overlap": schedule.overlap,
    }


def _show_number(number: float) -> str:
    return f"{number:.6f}".rstrip("0").rstrip(".")


def _list_edited(fields: dict[str, str], initial: dict[str, str]) -> set[str]:
    """Return the names of the fields that differ from how they were filled. Browsers end lines in their own way."""
    return {name for name, value in fields.items() if value.split() != initial.get(name, "").split()}


def _choose_tenant(context: PageContext) -> str:
    allowed = context.client.allowed_tenants
    return next(iter(allowed)) if allowed and len(allowed) == 1 else DEFAULT


def _read_interval(fields: dict[str, str]) -> timedelta | None:
    number, unit = fields.get("every", "").strip(), fields.get("unit", "hours")
    if not number:
        return None
    return timedelta(**{unit if unit in UNITS else "hours": min(_read_float(number) or 0, 10**6)})


def _read_float(text: str) -> float | None:
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        return None
    return number if 0 <= number < 10**9 else None


def _read_inputs(context: PageContext) -> dict[str, Any]:
    text = context.fields.get("inputs", "").strip()
    try:
        inputs = json.loads(text or "{}")
    except (ValueError, RecursionError):
        inputs = None
    if not isinstance(inputs, dict):
        raise InvalidInput(N_('the inputs must be a JSON object, such as {"topic": "tea"}'))
    return inputs


PAGES = (
    Page("/schedules", show_schedules),
    Page("/schedules/new", show_form, create_schedule, scope=CHANGE, submit_scope=CHANGE),
    Page("/schedules/{schedule}", show_schedule),
    Page("/schedules/{schedule}/edit", show_edit_form, change_schedule, scope=CHANGE, submit_scope=CHANGE),
    Page("/schedules/{schedule}/pause", submit=pause_schedule, submit_scope=ACT),
    Page("/schedules/{schedule}/resume", submit=resume_schedule, submit_scope=ACT),
    Page("/schedules/{schedule}/trigger", submit=trigger_schedule, submit_scope=ACT),
    Page("/schedules/{schedule}/delete", submit=delete_schedule, submit_scope=CHANGE),
)
