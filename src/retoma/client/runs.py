"""`client.runs`, its actions: cancel, resume, rerun, edit, skip, fork."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from retoma.client.run_queries import RunQueries
from retoma.client.validation import check_name, digest_values, encode_input, encode_value, validate_input
from retoma.define.codec import describe_validation_error
from retoma.define.definition_errors import suggest_name
from retoma.define.pipeline import Pipeline
from retoma.engine.result_types import check_result
from retoma.engine.run_starter import StartedRun
from retoma.engine.watchdog import FIRST_PAUSE
from retoma.errors import InvalidInput, NotFound, RunBusy
from retoma.identifiers import new_run_id
from retoma.records import Revision, Run, StepRevision
from retoma.states import JOB_FINAL_STATES, RunState
from retoma.store import revisions
from retoma.store.revisions import ActionKey


class Runs(RunQueries):
    """An act that makes a revision or a run takes a `key`: asked for again with it, it is answered as before and not
    done twice. The same key for something else raises KeyReused.
    """

    async def cancel(
        self, run: UUID, *, tenant: str | None = None, by: str = "client", key: str | None = None
    ) -> RunState:
        """Let nothing new start in this run. Gives its state: `cancelling` while something still ends."""
        owner = await self._core.find_tenant_id(tenant)
        state = await revisions.cancel_run(self._database, run, owner, by, _action_key(key, "cancel"))
        if state is None:
            raise NotFound(f"there is no run {run}")
        return state

    async def resume(
        self, run: UUID, *, tenant: str | None = None, by: str = "client", key: str | None = None
    ) -> RunState:
        """Let a run go on that is stuck or has failed: from where it stood, with all results that it has.

        Gives the run's state; for one that goes on already it changes nothing. Raises AtWork for a run that has
        ended in another way.
        """
        owner = await self._core.find_tenant_id(tenant)
        state, goes_on = await revisions.resume_run(
            self._database, run, owner, by, _action_key(key, "resume"), FIRST_PAUSE
        )
        if state is None:
            raise NotFound(f"there is no run {run}")
        if not goes_on:
            raise RunBusy(f"run {run} is {state}: only a run that is stuck or has failed can be resumed")
        self._core.starter.notify_workers()
        return state

    async def get_or_record_answer(
        self, run: UUID, key: str | None, request: str, action: Callable[[str | None], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """Do an act of an application once for each key; a repetition gets the JSON object that was the first answer.

        `act` gets a key of its own to pass on to the acts of this client, so that it is not repeated if its answer was
        lost before it was kept. `request` names what is asked for.
        """
        check_name("key", key)
        if key is None:
            return await action(None)
        own = digest_values((request, key)).hex()
        known = await revisions.get_answer(self._database, run, f"answer {own}")
        if known is None:
            given = encode_value(await action(own))
            known = await revisions.record_answer(self._database, run, ActionKey(f"answer {own}", own), given)
        answer: Mapping[str, Any] = known
        return answer

    async def has_action(self, run: UUID, key: str) -> bool:
        """Return whether an act was done on this run with this key."""
        return await revisions.get_answer(self._database, run, key) is not None

    async def rerun_failed(
        self,
        run: UUID,
        *,
        step: str | None = None,
        items: Sequence[str] | None = None,
        tenant: str | None = None,
        by: str = "client",
        key: str | None = None,
    ) -> Revision:
        """Make anew what has no result in a run that is over, and what depends on it; the rest keeps its results.

        With `step`, only what failed of that step, and with `items` only these of its items. Raises AtWork while the
        run is not over; who asks for the same while it is under way gets the same answer.
        """
        ask = _action_key(key, "rerun_failed", step, items)
        made = await revisions.rerun_failed(
            self._database, run, await self._core.find_tenant_id(tenant), by, step, items, ask
        )
        return self._check_revision_made(made, f"run {run}")

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
        by: str = "client",
        reason: str | None = None,
        key: str | None = None,
    ) -> Revision:
        """Make these steps anew, or these `items` of one, and what depends on them, at a new revision.

        `group` names steps that belong together; `after` means a step and every step that depends on it; `stale` is
        what was made of something that is no longer current. What depends on them keeps its result where it would be
        made of the same, unless `fresh`. With `alone` it stays as it is, and stale.

        Raises AtWork while the same part of the run is being made.
        """
        owner = await self._core.find_tenant_id(tenant)
        ask = _action_key(key, "rerun", steps, items, group, from_step, stale, downstream, reuse, reason)
        if known := await revisions.find_answer(self._database, run, owner, ask):
            return known
        found = await self.get(run, tenant=tenant)
        chosen = None if stale else await self._choose_steps(found, steps, group, from_step)
        made = await revisions.rerun(
            self._database,
            run,
            owner,
            by=by,
            reason=reason,
            steps=chosen,
            items=items,
            stale=stale,
            isolated=not downstream,
            no_reuse=not reuse or from_step is not None,
            action_key=ask,
        )
        return self._check_revision_made(made, f"run {run}")

    async def list_stale(self, run: UUID) -> list[tuple[str, str]]:
        """Steps and items whose results are made of something that is no longer current."""
        return await revisions.list_stale(self._database, run)

    async def get_step_history(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[StepRevision]:
        """Every revision of one job, the newest first: results are never written over."""
        return await revisions.get_step_history(self._database, run, step, item, limit)

    async def fork(
        self,
        run: UUID,
        changes: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        by: str = "client",
        key: str | None = None,
    ) -> StartedRun:
        """Start a run with a changed input that shares the results of one that is over.

        What takes a changed field is made anew, what publishes too, and what depends on these where it would be made
        of something else. The last review before something is published is asked again. Shared results cost nothing.
        A `key` is as that of a start: it is one of its tenant and pipeline.
        """
        found = await self.get(run, tenant=tenant)
        pipeline = self._core.get_pipeline(found.pipeline)
        given = validate_input(pipeline, {**(found.input or {}), **(changes or {})})
        new = new_run_id()
        forked, made = await revisions.fork_run(
            self._database,
            run,
            await self._core.find_tenant_id(tenant),
            by=by,
            new=new,
            value=encode_input(given),
            steps=_list_changed_steps(pipeline, json.loads(encode_input(given)), found.input or {}),
            action_key=_action_key(key, "fork", run, changes),
        )
        self._check_revision_made(made, f"run {run}")
        return StartedRun(forked, forked == new)

    async def edit(
        self,
        run: UUID,
        step: str,
        value: Any,
        *,
        item: str = "",
        rerun_dependents: bool = True,
        tenant: str | None = None,
        by: str = "client",
        key: str | None = None,
    ) -> Revision:
        """Put a person's result in place of a job's, and make anew what depends on it; or leave that stale.

        It must be of the type that the step returns. Raise InvalidInput if this client has no application that defines
        the step, as the result cannot be checked then.
        """
        owner, ask = (
            await self._core.find_tenant_id(tenant),
            _action_key(key, "edit", step, item, value, rerun_dependents),
        )
        if known := await revisions.find_answer(self._database, run, owner, ask):
            return known
        found, text = await self.get(run, tenant=tenant), encode_value(value)
        if found.state not in (RunState.CANCELLED, RunState.REJECTED):
            await self._check_ended(found, step, item)
            text = self._validate_result(found.pipeline, step, text)
        made = await revisions.edit_result(
            self._database, run, owner, by, step, item, text, ask, keep_dependents=not rerun_dependents
        )
        return self._check_revision_made(made, f"{step}{f' of {item}' if item else ''} in run {run}")

    async def skip(
        self,
        run: UUID,
        step: str,
        items: Sequence[str],
        *,
        tenant: str | None = None,
        by: str = "client",
        key: str | None = None,
    ) -> Revision:
        """Leave out items that a person does not want, in a run that is over, and make anew what joins them."""
        ask = _action_key(key, "skip", step, items)
        made = await revisions.skip_items(
            self._database, run, await self._core.find_tenant_id(tenant), by, step, items, ask
        )
        return self._check_revision_made(made, f"such item of {step} in run {run}")

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
            raise InvalidInput("say what is to be made anew: steps, a group, or everything that is stale")
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
            raise RunBusy(f"{name} has not ended yet: put its result right when it has")
        raise NotFound(f"there is no {name}")

    def _validate_result(self, pipeline: str, step: str, text: str) -> str:
        defined = self._core.app.pipelines.get(pipeline) if self._core.app else None
        try:
            return check_result(defined, pipeline, step, text)
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"this is no result of {step!r}: {describe_validation_error(error)}") from error

    def _check_revision_made(self, revision: Revision | None, what: str) -> Revision:
        if revision is None:
            raise NotFound(f"there is no {what}")
        if revision.jobs:
            self._core.starter.notify_workers()
        return revision


def _action_key(key: str | None, *request: Any) -> ActionKey:
    check_name("key", key)
    return ActionKey(key or uuid4().hex, digest_values(request).hex())


def _list_changed_steps(pipeline: Pipeline, inputs: Mapping[str, Any], previous: Mapping[str, Any]) -> list[str]:
    """The steps that take a field whose value is another now, those that publish, and the reviews that let them."""
    changed = {name for name in inputs.keys() | previous.keys() if inputs.get(name) != previous.get(name)}
    taking = [step.name for step in pipeline.steps.values() if changed & set(step.inputs)]
    publishing = [step.name for step in pipeline.steps.values() if step.policy.publishes]
    asked = pipeline.graph.ancestors(publishing) & {step.name for step in pipeline.steps.values() if step.review}
    last = asked - pipeline.graph.ancestors(asked)
    return list(dict.fromkeys([*taking, *publishing, *last]))
