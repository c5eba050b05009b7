"""Child runs: runs that a job starts, and waits for without holding a worker. To the job they are external work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel

from retoma.app import App
from retoma.client.core import NO_TENANT, Core
from retoma.client.runs import Runs, describe_failure
from retoma.client.starts import build_start
from retoma.client.validation import digest_input, validate_input
from retoma.define.context import ChildRerun
from retoma.define.external_work import PollResult
from retoma.define.pipeline import Input, Pipeline
from retoma.engine.claim_protocol import Claim
from retoma.errors import ChildRunFailed, GiveUp, InvalidInput, KeyReused, RetryLater, RunBusy
from retoma.outgoing import Guard
from retoma.records import Run
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.states import RunState
from retoma.store import external_work, runs
from retoma.store.database import Database

LOCATION = "child runs"  # stands for the name of a resource; no parameter can have it
MAX_DEPTH = 10  # of a child run below the run that no job started
RERUNNABLE = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS, RunState.FAILED)
SHARED_DELAY = 15.0  # seconds between two looks at a run that another request started


@dataclass(frozen=True)
class ChildKey:
    """How a child run is found again: by its pipeline, its tenant, and the key of its start.

    Without a key of the caller, the parent's job and the input identify the child, so a rerun of the job finds it. A
    child that ended without a result, or is about to, is replaced by another one under the next key. `revision` is that
    of the job; None with a key of the caller, under which there is one run. It is a child only of the `job` (run, step
    and item) that started it.
    """

    pipeline: str
    tenant: str
    key: str
    revision: int | None
    job: tuple[str, ...] = ()

    def list_keys(self) -> Iterator[str]:
        """Yield the keys of the child and of those that replace it."""
        return (
            iter([self.key]) if self.revision is None else chain([self.key], map(f"{self.key}:{{}}".format, count(2)))
        )

    def to_text(self) -> str:
        return json.dumps([self.pipeline, self.tenant, self.key, self.revision, *self.job])

    @classmethod
    def from_text(cls, text: str) -> Self:
        pipeline, tenant, key, revision, *job = json.loads(text)
        return cls(pipeline, tenant, key, revision, tuple(job))


@dataclass(frozen=True)
class Child:
    """A child run as its parent asks for it."""

    claim: Claim
    key: ChildKey
    inputs: BaseModel | None

    @property
    def action_key(self) -> str:
        """Return the key under which this job acts on an existing run, once per revision."""
        return f"{self.claim.run}:{self.claim.step}:{self.claim.item}:{self.claim.revision}"


class ChildRuns:
    """Starts, finds, polls and cancels child runs. Any worker of the application may do the last three."""

    def __init__(self, app: App, database: Database) -> None:
        self._core = Core(app, database, Guard(), HEARTBEAT_TIMEOUT)
        self._runs = Runs(self._core)

    async def close(self) -> None:
        await self._core.close()

    def describe(self, claim: Claim, pipeline: Pipeline | str, inputs: Input, tenant: str, key: str | None) -> Child:
        """Check the input. Raise GiveUp if it is not valid: a retry would pass the same."""
        chosen = self._core.get_pipeline(pipeline)
        try:
            checked = validate_input(chosen, inputs)
        except InvalidInput as error:
            raise GiveUp(str(error), "INVALID_INPUT") from error
        if key is not None:
            job = (str(claim.run), claim.step, claim.item)
            return Child(claim, ChildKey(chosen.name, tenant, key, None, job), checked)
        own = f"{claim.run}:{claim.step}:{claim.item}:{digest_input(checked).hex()[:32]}"
        return Child(claim, ChildKey(chosen.name, tenant, own, claim.revision), checked)

    async def get_known_results(self, child: Child) -> dict[str, Any] | None:
        """Return the results of a run that has completed before. Return None if the job must start or await one.

        A run that another request started is not a child: raise RetryLater until it has ended, and ChildRunFailed if it
        did not complete. Raise GiveUp if it is this run itself, or waits for it.
        """
        run, _ = await self._find_run(child.key)
        if run is None or (run.state is not RunState.COMPLETED and await self._is_own(child.key, run.id)):
            return None
        await self._check_same_input(child, run)
        if not run.is_over:
            await self._check_not_itself(child, run)
            raise _wait_for_shared_run(run.id)
        result = await self.poll(str(run.id))
        if result.state != "succeeded":
            raise ChildRunFailed(result.message or "", result.code or "CHILD_FAILED")
        results: dict[str, Any] = result.result
        return results

    async def rerun_once(self, child: Child, rerun: ChildRerun) -> None:
        """Rerun the run under the child's key once for each key of a rerun, if it ended before the parent was created.

        So this reruns neither a run that the parent has started, nor one that was in progress, nor its own rerun. A run
        that was cancelled or rejected stays so.
        """
        run, _ = await self._find_run(child.key)
        if run is None or run.state not in RERUNNABLE or run.parent == child.claim.run:
            return
        parent = await self._runs.get(child.claim.run, with_input=False)
        if run.ended_at is not None and run.ended_at <= parent.created_at:
            with suppress(RunBusy):  # another request has just rerun it
                await self._runs.rerun(run.id, from_step=rerun.from_step, by=f"run {parent.id}", key=rerun.key)

    async def start(self, child: Child) -> str:
        """Start the child, or let it continue if it has failed before. Return its id.

        Raise RetryLater if another job or request has started the run under this key meanwhile.
        """
        run, unused_key = await self._find_run(child.key)
        if run is None:
            return await self._start_new(child, unused_key)
        if not await self._is_own(child.key, run.id):
            raise _wait_for_shared_run(run.id)
        if run.state is RunState.FAILED:
            await self._runs.resume(run.id, by="retoma", key=child.action_key)
        elif run.state is RunState.COMPLETED_WITH_ERRORS:
            await self._runs.rerun_failed(run.id, by="retoma", key=child.action_key)
        return str(run.id)

    async def find(self, key: str) -> str | None:
        child_key = ChildKey.from_text(key)
        run, _ = await self._find_run(child_key)
        return None if run is None or not await self._is_own(child_key, run.id) else str(run.id)

    async def poll(self, external_id: str) -> PollResult:
        """Return the state of a run. Its result are the results of the steps that no other step depends on."""
        run = await self._runs.get(UUID(external_id), with_input=False)
        if not run.is_over:
            return PollResult("running")
        if run.state is not RunState.COMPLETED:
            code = f"CHILD_{run.state.value.upper()}"
            return PollResult("failed", code=code, message=await describe_failure(self._runs, run))
        sinks = (await self._runs.get_graph(run)).sinks
        results = await self._runs.get_results(run.id)
        return PollResult("succeeded", result={step: value for step, value in results.items() if step in sinks})

    async def cancel(self, external_id: str) -> None:
        """Cancel a child, unless another revision of its job waits for it. Its late starter must not end it."""
        if not await external_work.is_child_run_awaited(self._core.database, UUID(external_id)):
            await self._runs.cancel(UUID(external_id), by="retoma")

    async def _start_new(self, child: Child, unused_key: str) -> str:
        claim, key = child.claim, child.key
        if len(await runs.list_ancestors(self._core.database, claim.run, MAX_DEPTH)) >= MAX_DEPTH:
            raise GiveUp(
                f"this run is already {MAX_DEPTH} child runs deep, so it cannot start a child run of {key.pipeline!r}: "
                "check whether a pipeline starts itself without end",
                "TOO_DEEP",
            )
        start = await build_start(
            self._core,
            key.pipeline,
            child.inputs,
            tenant=key.tenant,
            key=unused_key,
            parent=(claim.run, claim.step, claim.item, claim.revision),
        )
        try:
            started = await self._core.starter.start(start)
        except KeyReused as error:
            raise GiveUp(str(error), "KEY_REUSED") from error
        if not started.created and not await self._is_own(key, started.id):
            raise _wait_for_shared_run(started.id)
        return str(started.id)

    async def _is_own(self, key: ChildKey, run: UUID) -> bool:
        """Return whether the job started this run, or an earlier revision of it. Only that job is woken by its end."""
        if not key.job:
            return True
        parent, step, item = key.job
        return await runs.is_child_of_job(self._core.database, run, UUID(parent), step, item)

    async def _check_not_itself(self, child: Child, run: Run) -> None:
        waiting = await runs.list_ancestors(self._core.database, child.claim.run, MAX_DEPTH)
        if run.id in (child.claim.run, *waiting):
            raise GiveUp(
                f"the key {child.key.key!r} belongs to run {run.id}, which waits for this job: use another key",
                "WAITS_FOR_ITSELF",
            )

    async def _check_same_input(self, child: Child, run: Run) -> None:
        key, owner = child.key, await self._core.tenants.find_id(child.key.tenant)
        digest = digest_input(child.inputs)
        if key.revision is None and not await runs.has_start_digest(
            self._core.database, owner or NO_TENANT, key.pipeline, key.key, digest
        ):
            raise GiveUp(
                f"the key {key.key!r} belongs to run {run.id}, which was started with another input", "KEY_REUSED"
            )

    async def _find_run(self, key: ChildKey) -> tuple[Run | None, str]:
        """Return the run under this key that was not replaced, and else None with the key for the next one."""
        for each in key.list_keys():
            found = await self._runs.find_by_key(each, key.pipeline, tenant=key.tenant)
            if found is None:
                return None, each
            run = await self._runs.get(found, with_input=False)
            if key.revision is None or not await self._must_be_replaced(run, key.revision):
                return run, each
        raise AssertionError("a child can be replaced without end")

    async def _must_be_replaced(self, run: Run, revision: int) -> bool:
        if run.is_over:
            return run.state in (RunState.CANCELLED, RunState.REJECTED)
        return await external_work.is_child_run_abandoned(self._core.database, run.id, revision)


def _wait_for_shared_run(run: UUID) -> RetryLater:
    return RetryLater(SHARED_DELAY, f"waiting for run {run}, which another request started")
