"""`client.runs`: queries, and the actions cancel, resume, rerun, edit, skip and fork."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_args
from uuid import UUID, uuid4, uuid5

from retoma.client.audit_values import keep_set, list_changes, summarize
from retoma.client.file_access import admit_files
from retoma.client.run_queries import RunQueries
from retoma.client.titles import make_title
from retoma.client.validation import (
    check_name,
    check_revision,
    digest_values,
    encode_input,
    encode_value,
    validate_input,
)
from retoma.define.codec import describe_validation_error
from retoma.define.definition_errors import suggest_name
from retoma.define.pipeline import Pipeline
from retoma.engine.result_types import check_result
from retoma.engine.run_starter import StartedRun
from retoma.engine.watchdog import FIRST_PAUSE
from retoma.errors import Conflict, InvalidInput, NotFound, RunBusy
from retoma.identifiers import new_run_id
from retoma.records import AuditAction, Orphan, OrphanResolution, Revision, Run, StepRevision
from retoma.states import JOB_FINAL_STATES, RunState
from retoma.store import bulk_actions, effects, revisions
from retoma.store.database import Database
from retoma.store.revisions import Action

# Keys of our own are in one table with those of callers. An Idempotency-Key has no control characters.
_DERIVED_MARK = "\x1f"  # begins the key that an application's action passes on
_ANSWER_MARK = "\x1e"  # begins the key of its recorded answer; no action may have it


class Runs(RunQueries):
    """Actions that create a revision or a run take an idempotency `key`: a repeated call with the same key returns the
    first answer and does nothing. The same key for another action raises KeyReused.
    """

    async def cancel(
        self, run: UUID, *, tenant: str | None = None, by: str | None = None, key: str | None = None
    ) -> RunState:
        """Cancel a run: no new job starts. Return its state, `cancelling` while jobs are still ending."""
        before = await self.get(run, tenant=tenant)
        action = await self._make_action(run, tenant, by, key, "cancel")
        recording = self._recording_action(
            "cancel", AuditAction.RUN_CANCEL, action, before={"state": before.state}, applies=_has_state
        )
        state = await revisions.cancel_run(recording, action)
        if state is None:
            raise NotFound(f"there is no run {run}")
        return state

    async def resume(
        self, run: UUID, *, tenant: str | None = None, by: str | None = None, key: str | None = None
    ) -> RunState:
        """Resume a run that is stuck or has failed, from where it stopped and with all results that it has.

        Return the run's state. A run that is in progress does not change. Raise RunBusy for a run that has ended in
        any other way.
        """
        action = await self._make_action(run, tenant, by, key, "resume")
        recording = self._recording_action("resume", AuditAction.RUN_RESUME, action, applies=_is_done)
        state, is_resumed = await revisions.resume_run(recording, action, FIRST_PAUSE)
        if state is None:
            raise NotFound(f"there is no run {run}")
        if not is_resumed:
            raise RunBusy(f"run {run} is {state}: only a run that is stuck or has failed can be resumed")
        self._core.starter.notify_workers()
        return state

    async def get_or_record_answer(
        self, run: UUID, key: str | None, request: str, action: Callable[[str | None], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """Perform an application's action once per key; a repetition returns the JSON object of the first answer.

        `action` receives a key to pass on to the actions of this client, so they are not repeated if the answer was
        lost before it was recorded. `request` identifies the request.
        """
        check_name("key", key)
        if key is None:
            return await action(None)
        digest = digest_values((request, key)).hex()
        await self._core.check_run(run)
        known = await revisions.get_answer(self._database, run, _ANSWER_MARK + digest)
        if known is None:
            result = encode_value(await action(_DERIVED_MARK + digest))
            known = await revisions.record_answer(self._database, run, _ANSWER_MARK + digest, digest, result)
        answer: Mapping[str, Any] = known
        return answer

    async def has_action(self, run: UUID, key: str) -> bool:
        """Return whether an action with this key was performed on this run."""
        await self._core.check_run(run)
        return await revisions.get_answer(self._database, run, key) is not None

    async def retry_now(
        self, run: UUID, step: str, *, item: str = "", tenant: str | None = None, by: str | None = None
    ) -> None:
        """Start the next attempt of a job now, instead of after its delay. Raise Conflict if it waits for none."""
        author = self._get_author(by)
        check_name("name", author)
        owner = await self._core.find_owner("run", run, tenant)
        recording = self._recording("retry_job", AuditAction.RUN_RETRY_NOW, run, after=keep_set(step=step, item=item))
        is_released = await bulk_actions.retry_job(recording, run=run, step=step, item=item, tenant=owner, by=author)
        name = f"{step}{f' of {item}' if item else ''} in run {run}"
        if is_released is None:
            raise NotFound(f"there is no {name}")
        if not is_released:
            raise Conflict(f"{name} does not wait for its next attempt")
        self._core.starter.notify_workers()

    async def rerun_failed(
        self,
        run: UUID,
        *,
        step: str | None = None,
        items: Sequence[str] | None = None,
        tenant: str | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> Revision:
        """Rerun the jobs without a result in a finished run, and their dependents; other results are kept.

        With `step`, rerun only the failed jobs of that step, and with `items` only these items of it. Raise RunBusy if
        the run is not finished. The same request while its rerun is in progress returns the same answer.
        """
        action = await self._make_action(run, tenant, by, key, "rerun_failed", step, items)
        recording = self._recording_revision(
            "rerun_failed", AuditAction.RUN_RERUN_FAILED, action, keep_set(step=step, items=items)
        )
        revision = await revisions.change_run(recording, action, "rerun_failed", step=step, items=items)
        return self._require_revision(revision, f"run {run}")

    async def rerun(
        self,
        run: UUID,
        *steps: str,
        items: Sequence[str] | None = None,
        group: str | None = None,
        from_step: str | None = None,
        stale: bool = False,
        downstream: bool = True,
        reuse: bool = True,
        tenant: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Revision:
        """Rerun these steps, or these `items` of one step, and their dependents, at a new revision.

        `group` names steps that are rerun together; `from_step` means a step and all its dependents; `stale` means the
        jobs whose inputs have changed since they ran. Dependents keep their result if their inputs did not change,
        unless `reuse=False`. With `downstream=False` they do not rerun and become stale.

        Raise RunBusy while the same part of the run is running.
        """
        request = ("rerun", steps, items, group, from_step, stale, downstream, reuse, reason)
        action = await self._make_action(run, tenant, by, key, *request)
        if known := await revisions.find_answer(self._database, action):
            return known
        found = await self.get(run, tenant=tenant)
        chosen = None if stale else await self._choose_steps(found, steps, group, from_step)
        changes = keep_set(steps=chosen, items=items, stale=stale or None, reason=reason)
        revision = await revisions.change_run(
            self._recording_revision("rerun", AuditAction.RUN_RERUN, action, changes),
            action,
            "rerun",
            reason=reason,
            steps=chosen,
            items=items,
            stale=stale,
            isolated=not downstream,
            no_reuse=not reuse or from_step is not None,
        )
        return self._require_revision(revision, f"run {run}")

    async def list_stale(self, run: UUID) -> list[tuple[str, str]]:
        """Return the steps and items whose inputs have changed since they ran."""
        await self._core.check_run(run)
        return await revisions.list_stale(self._database, run)

    async def get_step_history(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[StepRevision]:
        """Return all revisions of one job, newest first: results are never overwritten."""
        await self._core.check_run(run)
        return await revisions.get_step_history(self._database, run, step, item, limit)

    async def fork(
        self,
        run: UUID,
        changes: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> StartedRun:
        """Start a run with a changed input that shares the results of a finished run.

        Steps that take a changed field rerun, and so do steps that publish, and their dependents if their inputs
        changed. The last review before a step that publishes opens again. Shared results cost nothing. A `key` works as
        for a start: it is unique within its tenant and pipeline.
        """
        found = await self.get(run, tenant=tenant)
        pipeline = self._core.get_pipeline(found.pipeline)
        inputs = validate_input(pipeline, {**(found.input or {}), **(changes or {})}, found.tenant)
        text = encode_input(inputs)
        await admit_files(self._core, found.tenant, text, run=run)
        new = new_run_id()
        action = await self._make_action(run, tenant, by, key, "fork", run, changes)
        before, after = list_changes(found.input or {}, json.loads(text))
        forked, revision = await revisions.fork_run(
            self._recording_revision("fork", AuditAction.RUN_FORK, action, {**after, "run": str(new)}, before),
            action,
            new=new,
            input=text,
            title=make_title(pipeline, inputs),
            steps=_list_changed_steps(pipeline, json.loads(text), found.input or {}),
        )
        self._require_revision(revision, f"run {run}")
        return StartedRun(forked, forked == new)

    async def edit(
        self,
        run: UUID,
        step: str,
        value: Any,
        *,
        item: str = "",
        downstream: bool = True,
        tenant: str | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> Revision:
        """Replace the result of a job with a person's value, and rerun its dependents or leave them stale.

        The value must have the return type of the step. Raise InvalidInput if this client has no application that
        defines the step, because it cannot validate the value.
        """
        action = await self._make_action(run, tenant, by, key, "edit", step, item, value, downstream)
        if known := await revisions.find_answer(self._database, action):
            return known
        found, text = await self.get(run, tenant=tenant), encode_value(value)
        if found.state not in (RunState.CANCELLED, RunState.REJECTED):
            await self._check_ended(found, step, item)
            text = self._validate_result(found.pipeline, step, text)
            await admit_files(self._core, found.tenant, text, run=run)
        newest = await self.get_step_history(run, step, item, limit=1)
        place = keep_set(step=step, item=item)
        recording = self._recording_revision(
            "edit_result",
            AuditAction.RUN_EDIT,
            action,
            {**place, "value": summarize(json.loads(text))},
            {**place, "value": summarize(newest[0].output)} if newest else place,
        )
        revision = await revisions.change_run(
            recording, action, "edit_result", step=step, item=item, value=text, keep_dependents=not downstream
        )
        return self._require_revision(revision, f"{step}{f' of {item}' if item else ''} in run {run}")

    async def skip(
        self,
        run: UUID,
        step: str,
        items: Sequence[str],
        *,
        tenant: str | None = None,
        by: str | None = None,
        key: str | None = None,
    ) -> Revision:
        """Skip items of a finished run that a person does not want, and rerun the joins over them."""
        action = await self._make_action(run, tenant, by, key, "skip", step, items)
        recording = self._recording_revision(
            "skip_items", AuditAction.RUN_SKIP, action, keep_set(step=step, items=items)
        )
        revision = await revisions.change_run(recording, action, "skip_items", step=step, items=items)
        return self._require_revision(revision, f"such item of {step} in run {run}")

    async def resolve_orphan(
        self,
        run: UUID,
        step: str,
        effect: str,
        resolution: OrphanResolution,
        *,
        item: str = "",
        revision: int | None = None,
        tenant: str | None = None,
        by: str | None = None,
    ) -> Orphan:
        """Record what a person found out about an orphan, see `list_orphans`. Repeating it returns the same.

        Without a revision it is the newest that is not resolved. Raise Conflict if somebody resolved it in another way.
        """
        if resolution not in get_args(OrphanResolution):
            raise InvalidInput(
                f"a resolution is one of {', '.join(get_args(OrphanResolution))}, not {resolution!r:.80}"
            )
        check_revision(revision)
        author = self._get_author(by)
        recording = self._recording(
            "resolve_orphan",
            AuditAction.RUN_RESOLVE_ORPHAN,
            run,
            after=keep_set(step=step, item=item, effect=effect, resolution=resolution),
            applies=lambda rows: bool(rows) and (rows[0]["resolution"], rows[0]["resolved_by"]) == (resolution, author),
        )
        orphan = await effects.resolve_orphan(
            recording,
            run=run,
            tenant=await self._core.find_owner("run", run, tenant),
            step=step,
            item=item,
            revision=revision,
            name=effect,
            resolution=resolution,
            by=author,
        )
        if orphan is None:
            of = f" for {item!r}" if item else ""
            raise NotFound(f"{step!r}{of} left no orphan {effect!r} in run {run}")
        if orphan.resolution != resolution:
            raise Conflict(
                f"{orphan.resolved_by} resolved it as {orphan.resolution} at {orphan.resolved_at:%Y-%m-%d %H:%M}"
            )
        return orphan

    async def _make_action(
        self, run: UUID, tenant: str | None, by: str | None, key: str | None, *request: Any
    ) -> Action:
        check_name("key", key)
        if key is not None and _ANSWER_MARK in key:
            raise InvalidInput(f"a key must not contain the character {_ANSWER_MARK!r}; given: {key!r:.80}")
        owner = await self._core.find_owner("run", run, tenant)
        return Action(run, owner, self._get_author(by), key or uuid4().hex, digest_values(request).hex())

    def _recording_revision(
        self,
        statement: str,
        kind: AuditAction,
        action: Action,
        after: Mapping[str, Any],
        before: Mapping[str, Any] | None = None,
    ) -> Database:
        """Record an action that made a revision, with its number."""
        return self._recording_action(
            statement,
            kind,
            action,
            before=before,
            after=lambda rows: {**after, "revision": _read_answer(rows)["revision"]},
            applies=lambda rows: _read_answer(rows).get("jobs", 0) > 0,
        )

    def _recording_action(
        self, statement: str, kind: AuditAction, action: Action, after: Any = None, **details: Any
    ) -> Database:
        """Record an action once, however often it is repeated under its key."""
        entry = uuid5(action.run, f"{kind} {action.key}")
        return self._recording(statement, kind, action.run, id=entry, after=after or _read_answer, **details)

    async def _choose_steps(
        self, run: Run, steps: Sequence[str], group: str | None, from_step: str | None
    ) -> list[str]:
        known = (await self.get_graph(run)).names
        pipeline = self._core.app.pipelines.get(run.pipeline) if self._core.app else None
        groups = pipeline.groups if pipeline else {}
        if group is not None and group not in groups:
            raise NotFound(f"pipeline {run.pipeline!r} has no group {group!r}; {suggest_name(group, groups)}")
        chosen = [*steps, *(groups[group] if group else ()), *([from_step] if from_step else ())]
        if not chosen:
            raise InvalidInput("name what to rerun: steps, a group, or stale=True for everything that is stale")
        for step in chosen:
            if step not in known:
                raise NotFound(f"run {run.id} has no step {step!r}; {suggest_name(step, known)}")
        return chosen

    async def _check_ended(self, run: Run, step: str, item: str) -> None:
        name = f"{step}{f' of {item}' if item else ''} in run {run.id}"
        newest = await self.get_step_history(run.id, step, item, limit=1)
        if newest and newest[0].state in JOB_FINAL_STATES:
            return
        if newest or (not run.is_over and step in (await self.get_graph(run)).names):
            raise RunBusy(f"{name} has not ended yet: edit its result once it has")
        raise NotFound(f"there is no {name}")

    def _validate_result(self, pipeline: str, step: str, text: str) -> str:
        defined = self._core.app.pipelines.get(pipeline) if self._core.app else None
        try:
            return check_result(defined, pipeline, step, text)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"not a valid result for {step!r}: {describe_validation_error(error)}") from error

    def _require_revision(self, revision: Revision | None, what: str) -> Revision:
        if revision is None:
            raise NotFound(f"there is no {what}")
        if revision.jobs:
            self._core.starter.notify_workers()
        return revision


def _read_answer(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the answer of an action, as the database recorded it."""
    return json.loads(rows[0][0]) if rows and rows[0][0] is not None else {}


def _has_state(rows: Sequence[Any]) -> bool:
    return _read_answer(rows).get("state") is not None


def _is_done(rows: Sequence[Any]) -> bool:
    return bool(_read_answer(rows).get("done"))


def _list_changed_steps(pipeline: Pipeline, inputs: Mapping[str, Any], previous: Mapping[str, Any]) -> list[str]:
    """Return the steps that take a changed field, the steps that publish, and the last reviews before those."""
    changed = {name for name in inputs.keys() | previous.keys() if inputs.get(name) != previous.get(name)}
    taking = [step.name for step in pipeline.steps.values() if changed & set(step.inputs)]
    publishing = [step.name for step in pipeline.steps.values() if step.policy.publishes]
    reviews = pipeline.graph.ancestors(publishing) & {step.name for step in pipeline.steps.values() if step.review}
    last = reviews - pipeline.graph.ancestors(reviews)
    return list(dict.fromkeys([*taking, *publishing, *last]))


async def describe_failure(runs: RunQueries, run: Run) -> str:
    """Return a sentence about a run that did not complete, with its first errors."""
    errors = await runs.get_errors(run.id, limit=3, with_stack=False)
    messages = "; ".join(
        f"{step}{f' of {item}' if item else ''}: {error.get('message') or error.get('code')}"
        for (step, item), error in errors.items()
    )
    return f"run {run.id} of {run.pipeline!r} ended as {run.state}{f': {messages}' if messages else ''}"
