"""`client.schedules`: rules that start runs at set times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from retoma.app import App
from retoma.client.audit_values import keep_set, list_changes
from retoma.client.core import Namespace, as_list
from retoma.client.file_access import admit_files
from retoma.client.schedule_plans import describe, find_due_time, get_rule, list_columns, make_plan
from retoma.client.schedule_starts import build_scheduled_start, make_digest, start_due
from retoma.client.validation import check_name, check_time
from retoma.define.catch_up import MAX_COUNTED
from retoma.define.definition_errors import suggest_name
from retoma.define.durations import Duration, as_timedelta
from retoma.define.input_template import Occurrence, render
from retoma.define.pipeline import Pipeline
from retoma.define.recurrence import count_before, list_next
from retoma.define.schedule import (
    Schedule as Declaration,
)
from retoma.define.schedule import (
    SchedulePlan,
    check_inputs,
    check_schedule_name,
    encode_template,
    parse_catch_up,
    parse_overlap,
)
from retoma.engine.run_starter import StartedRun
from retoma.errors import Conflict, InvalidInput, NotFound
from retoma.logs import get_logger
from retoma.records import (
    AuditAction,
    CatchUp,
    DeclaredBy,
    Overlap,
    PauseReason,
    Schedule,
    ScheduleOccurrence,
)
from retoma.store import schedules, versions
from retoma.store.tenants import DEFAULT
from retoma.translations import N_

log = get_logger(__name__)
MAX_PREVIEW = 100
MAX_TRIGGER_KEY_LENGTH = 300


class Schedules(Namespace):
    """A schedule that the code declares is changed in the code; here it can be paused, resumed and triggered."""

    async def create(
        self,
        name: str,
        pipeline: Pipeline | str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        time_zone: str = "UTC",
        inputs: Mapping[str, Any] | BaseModel | None = None,
        tenant: str = DEFAULT,
        title: str | None = None,
        catch_up: CatchUp | str = CatchUp.LATEST,
        catch_up_limit: int = 10,
        jitter: Duration = 0,
        overlap: Overlap | str = Overlap.ALLOW,
        by: str | None = None,
    ) -> Schedule:
        """Create a schedule, as `retoma.schedules.Schedule` describes it.

        Raise Conflict if the tenant has one with this name.
        """
        wanted = Declaration(
            name,
            pipeline,
            cron=cron,
            every=every,
            time_zone=time_zone,
            inputs=inputs,
            tenant=tenant,
            title=title,
            catch_up=catch_up,
            catch_up_limit=catch_up_limit,
            jitter=jitter,
            overlap=overlap,
        )
        created = await self._add(wanted, self._get_author(by), None)
        if created is None:
            raise Conflict(
                N_("the tenant %(tenant)s already has a schedule %(name)s: update it, or use another name"),
                tenant=f"{tenant!r:.80}",
                name=repr(name),
            )
        return created

    async def update(
        self,
        schedule: int,
        *,
        pipeline: Pipeline | str | None = None,
        cron: str | None = None,
        every: Duration | None = None,
        time_zone: str | None = None,
        inputs: Mapping[str, Any] | BaseModel | None = None,
        title: str | None = None,
        catch_up: CatchUp | str | None = None,
        catch_up_limit: int | None = None,
        jitter: Duration | None = None,
        overlap: Overlap | str | None = None,
        revision: int | None = None,
        by: str | None = None,
    ) -> Schedule:
        """Change what is given; an empty title removes it.

        A new rule is due for the first time after now, and `every` counts from now.

        With the `revision` that you have read, raise Conflict if somebody has changed the schedule since.
        """
        current = await self.get(schedule)
        _require_own(current)
        if revision not in (None, current.revision):
            raise _changed_since(current)
        changes: dict[str, Any] = {
            "pipeline": pipeline.name if isinstance(pipeline, Pipeline) else pipeline,
            "time_zone": time_zone,
            "inputs": inputs.model_dump(mode="json") if isinstance(inputs, BaseModel) else inputs,
            "title": title or None,
            "catch_up": None if catch_up is None else parse_catch_up(catch_up),
            "catch_up_limit": catch_up_limit,
            "jitter": None if jitter is None else as_timedelta(jitter),
            "overlap": None if overlap is None else parse_overlap(overlap),
        }
        rule: dict[str, Any] = {} if cron is None and every is None else {"cron": cron, "every": _as_interval(every)}
        cleared: dict[str, Any] = {"title": None} if title == "" else {}
        given = {name: value for name, value in changes.items() if value is not None}
        plan = replace(make_plan(current), **given, **rule, **cleared)
        return await self._change(current, plan, self._get_author(by))

    async def pause(self, schedule: int, *, by: str | None = None) -> Schedule:
        """Start nothing until it is resumed. A pause outlives restarts and new releases of the code."""
        author = self._get_author(by)
        check_name("name", author)
        current = await self.get(schedule)
        recording = self._recording(
            "pause_schedule", AuditAction.SCHEDULE_PAUSE, schedule, after={"name": current.name}
        )
        if await schedules.pause_schedule(recording, schedule, author, PauseReason.PERSON):
            log.info("schedule_paused", message="a schedule was paused", schedule=current.name, by=author)
        return await self.get(schedule)

    async def resume(self, schedule: int, *, by: str | None = None) -> Schedule:
        """Start runs again. Times at which it was due during the pause start nothing.

        Raise Conflict if the code no longer declares it.
        """
        author = self._get_author(by)
        check_name("name", author)
        current = await self.get(schedule)
        if current.pause_reason is PauseReason.REMOVED:
            raise Conflict(
                f"the application {current.application!r} no longer declares the schedule {current.name!r}: declare it "
                "again, or delete it"
            )
        await self._resume(current, author)
        return await self.get(schedule)

    async def delete(self, schedule: int) -> None:
        """Delete a schedule with its history. The runs that it has started stay.

        Raise Conflict if the code declares it.
        """
        current = await self.get(schedule)
        if current.pause_reason is not PauseReason.REMOVED:
            _require_own(current)
        recording = self._recording(
            "delete_schedule",
            AuditAction.SCHEDULE_DELETE,
            schedule,
            tenant=await self._core.find_tenant_id(current.tenant),
            before=keep_set(name=current.name, **current.settings),
        )
        await schedules.delete_schedule(recording, schedule)

    async def trigger(self, schedule: int, *, key: str | None = None, by: str | None = None) -> StartedRun:
        """Start a run now, also while the schedule is paused. When it is due next does not change.

        With the same `key`, return the same run.
        """
        author = self._get_author(by)
        check_name("name", author)
        if key is not None and len(key) > MAX_TRIGGER_KEY_LENGTH:
            raise InvalidInput(f"a key has at most {MAX_TRIGGER_KEY_LENGTH} characters")
        check_name("key", key)
        current = await self.get(schedule)
        trigger = key or str(uuid4())
        start = await build_scheduled_start(self._core, current, await self._core.now())
        recording = self._recording(
            "trigger_schedule",
            AuditAction.SCHEDULE_TRIGGER,
            schedule,
            after=lambda rows: {"name": current.name, "run": str(rows[0]["run"])},
            applies=lambda rows: bool(rows and rows[0]["created"]),
        )
        run_key = f"schedule:{schedule}:manual:{trigger}"
        started = await schedules.trigger_schedule(
            recording, schedule, trigger, author, key=run_key, start=start, digest=make_digest(run_key)
        )
        if started is None:
            raise NotFound(f"there is no schedule {schedule}")
        return StartedRun(*started)

    async def declare(self) -> Sequence[Schedule]:
        """Save the schedules that the code of this application declares, and return those that have changed.

        Pause those that it no longer declares. Servers and workers do this when they start.
        """
        self._core.require_all_tenants()
        applications = () if self._core.app is None else self._core.app.applications
        return [each for application in applications for each in await self._declare_all(application)]

    async def start_due(self) -> int:
        """Start the runs that are due now, of the pipelines of this application. Return how many were started.

        Servers and workers do this every second.
        """
        self._core.require_all_tenants()
        return await start_due(self._core)

    async def preview(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        time_zone: str = "UTC",
        after: datetime | None = None,
        limit: int = 5,
    ) -> Sequence[datetime]:
        """Return the next times of a rule, in UTC and without jitter. `every` counts from `after`, by default now."""
        plan = SchedulePlan(pipeline="", cron=cron, every=_as_interval(every), time_zone=time_zone)
        check_time("after", after)
        start = after or await self._core.now()
        return list_next(plan.get_rule(start), start, max(1, min(limit, MAX_PREVIEW)))

    async def list_next(self, schedule: int, *, limit: int = 5) -> Sequence[datetime]:
        """Return when a schedule is due next, in UTC and without jitter, as if it were not paused."""
        current = await self.get(schedule)
        return list_next(get_rule(current), await self._core.now(), max(1, min(limit, MAX_PREVIEW)))

    async def list_occurrences(
        self, schedule: int, *, before: datetime | None = None, limit: int = 50
    ) -> Sequence[ScheduleOccurrence]:
        """Return what became of the last 1,000 due times, newest first. For the next page pass the last `due_at`."""
        check_time("before", before)
        await self.get(schedule)
        return await schedules.list_occurrences(self._database, schedule, before, limit)

    async def get(self, schedule: int) -> Schedule:
        """Return the schedule with this id."""
        tenants = await self._core.find_tenants()
        found = await schedules.list_schedules(self._database, ids=[schedule], tenants=tenants)
        if found:
            return found[0]
        await self._core.find_owner("schedule", schedule)  # raises RoleMissing if the caller may see it, but not act
        raise NotFound(f"there is no schedule {schedule}")

    async def find(self, name: str, *, tenant: str = DEFAULT) -> Schedule:
        """Return the schedule with this name. Raise NotFound without one, which names the nearest."""
        tenants = await self._core.find_tenants(tenant)
        found = await schedules.list_schedules(self._database, tenants=tenants, name=name)
        if not found:
            near = get_close_matches(name, [each.name for each in await self.list(tenant=tenant)], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise NotFound(f"the tenant {tenant!r:.80} has no schedule {name!r:.80}{hint}")
        return found[0]

    async def list(
        self, *, tenant: str | None = None, pipeline: str | Sequence[str] | None = None, limit: int = 1_000
    ) -> Sequence[Schedule]:
        """Return schedules by tenant and name."""
        return await schedules.list_schedules(
            self._database,
            tenants=await self._core.find_tenants(tenant),
            pipelines=as_list(pipeline),
            limit=limit,
        )

    async def _declare_all(self, application: App) -> Sequence[Schedule]:
        known = await schedules.list_schedules(self._database, application=application.name)
        wanted = {(each.tenant, each.name): each for each in application.schedules}
        changed = [await self._declare(each, application.name) for each in wanted.values()]
        removed = [each for each in known if (each.tenant, each.name) not in wanted and not each.is_paused]
        changed += [await self._pause_removed(each) for each in removed]
        return [each for each in changed if each is not None]

    async def _declare(self, wanted: Declaration, application: str) -> Schedule | None:
        """Save one schedule. Return it if that has changed anything."""
        author = f"application {application}"
        if (added := await self._add(wanted, author, application)) is not None:
            return added
        current = await self.find(wanted.name, tenant=wanted.tenant)
        if (current.declared_by, current.application) != (DeclaredBy.CODE, application):
            log.error(
                "schedule_name_taken",
                message="a schedule of the code is not saved: the tenant has another one with its name; rename one",
                schedule=wanted.name,
                tenant=wanted.tenant,
                application=application,
            )
            return None
        try:
            changed = await self._change(current, wanted.plan, author)
        except Conflict:  # another process has just saved it
            return None
        if changed.pause_reason is PauseReason.REMOVED:
            await self._resume(changed, author)
            changed = await self.get(current.id)
        return None if changed == current else changed

    async def _pause_removed(self, schedule: Schedule) -> Schedule:
        author = f"application {schedule.application}"
        recording = self._recording(
            "pause_schedule", AuditAction.SCHEDULE_PAUSE, schedule.id, after={"name": schedule.name, "removed": True}
        )
        await schedules.pause_schedule(recording, schedule.id, author, PauseReason.REMOVED)
        log.warning(
            "schedule_removed",
            message="the code no longer declares a schedule: it is paused, with its history",
            schedule=schedule.name,
            tenant=schedule.tenant,
        )
        return await self.get(schedule.id)

    async def _add(self, wanted: Declaration, author: str, application: str | None) -> Schedule | None:
        """Return the new schedule, or None if the tenant has one with this name."""
        await self._check_pipeline(wanted.pipeline_name)
        check_schedule_name(wanted.name)
        check_name("name", author)
        check_name("tenant", wanted.tenant)
        plan = wanted.plan
        tenant = await self._core.get_or_create_tenant(wanted.tenant)
        await self._check_plan(wanted.name, wanted.tenant, plan)
        now = await self._core.now()
        recording = self._recording(
            "add_schedule",
            AuditAction.SCHEDULE_CREATE,
            lambda rows: str(rows[0]["id"]),
            after=keep_set(name=wanted.name, **describe(plan)),
        )
        values = {
            "tenant": tenant,
            "name": wanted.name,
            "declared_by": DeclaredBy.API if application is None else DeclaredBy.CODE,
            "application": application,
            "anchor_at": now,
            "by": author,
            **find_due_time(plan, wanted.tenant, wanted.name, now, now)._asdict(),
        }
        added = await schedules.add_schedule(recording, values | list_columns(plan))
        if added is None:
            return None
        log.info("schedule_created", message="a schedule was created", schedule=wanted.name, by=author)
        return await self.get(added)

    async def _change(self, current: Schedule, plan: SchedulePlan, author: str) -> Schedule:
        check_name("name", author)
        before, after = list_changes(describe(make_plan(current)), describe(plan))
        if not after and not before:
            return current
        await self._check_plan(current.name, current.tenant, plan)
        now = await self._core.now()
        moves = not plan.is_due_like(make_plan(current))
        recording = self._recording(
            "change_schedule", AuditAction.SCHEDULE_UPDATE, current.id, before=before, after=after
        )
        values = {
            "id": current.id,
            "revision": current.revision,
            "moves": moves,
            "anchor_at": now,
            "by": author,
            **find_due_time(plan, current.tenant, current.name, now, now)._asdict(),
        }
        if not await schedules.change_schedule(recording, values | list_columns(plan)):
            raise _changed_since(current)
        log.info("schedule_updated", message="a schedule was changed", schedule=current.name, by=author)
        return await self.get(current.id)

    async def _resume(self, current: Schedule, author: str) -> None:
        now, plan = await self._core.now(), make_plan(current)
        due = find_due_time(plan, current.tenant, current.name, current.anchor_at, now)
        rule = plan.get_rule(current.anchor_at)
        skipped = 0 if current.next_at is None else count_before(rule, current.next_at, now, MAX_COUNTED)
        recording = self._recording(
            "resume_schedule", AuditAction.SCHEDULE_RESUME, current.id, after={"name": current.name}
        )
        if await schedules.resume_schedule(recording, current, *due, skipped=skipped, by=author):
            log.info("schedule_resumed", message="a schedule was resumed", schedule=current.name, by=author)

    async def _check_plan(self, name: str, tenant: str, plan: SchedulePlan) -> None:
        """Check the inputs if this process has the code of the pipeline."""
        now = await self._core.now()
        rendered = render(plan.inputs, Occurrence(name, now, now, plan.time_zone))
        await admit_files(self._core, tenant, encode_template(rendered))
        await self._check_pipeline(plan.pipeline)
        app = self._core.app
        if app is not None and plan.pipeline in app.pipelines:
            check_inputs(app.pipelines[plan.pipeline], name, plan, now)

    async def _check_pipeline(self, pipeline: str) -> None:
        """Raise NotFound if nobody has ever had the code of the pipeline."""
        if self._core.app is None or pipeline not in self._core.app.pipelines:
            known = await versions.list_pipelines(self._database)
            if pipeline not in known:
                raise NotFound(f"there is no pipeline {pipeline!r:.80}; {suggest_name(pipeline[:80], known)}")


def _changed_since(schedule: Schedule) -> Conflict:
    return Conflict(N_("the schedule %(name)s was changed since: look at it again"), name=repr(schedule.name))


def _require_own(schedule: Schedule) -> None:
    if schedule.declared_by is DeclaredBy.CODE:
        raise Conflict(
            f"the application {schedule.application!r} declares the schedule {schedule.name!r}: change it in the code"
        )


def _as_interval(every: Duration | None) -> timedelta | None:
    return None if every is None else as_timedelta(every)
