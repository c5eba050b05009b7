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
from retoma.engine.child_starter import ChildStart, ChildStarter, ChildStartState
from retoma.engine.claim_protocol import Claim
from retoma.errors import ChildRunFailed, GiveUp, InvalidInput, NotFound, RetryLater, RunBusy
from retoma.identifiers import JobKey, get_age
from retoma.outgoing import Guard
from retoma.settings import HEARTBEAT_TIMEOUT
from retoma.states import RunState
from retoma.store import external_work, runs
from retoma.store.database import Database
from retoma.store.effects import EffectFunctions
from retoma.store.external_work import StartedChild

LOCATION = "child runs"  # stands for the name of a resource; no parameter can have it
MAX_KNOWN_PARENTS = 1_000  # whose ancestors a worker remembers
MAX_DEPTH = 10  # of a child run below the run that no job started
RERUNNABLE = (RunState.COMPLETED, RunState.COMPLETED_WITH_ERRORS, RunState.FAILED)
MIN_SHARED_DELAY, MAX_SHARED_DELAY = 15.0, 600.0  # seconds between two polls of a run that another request started


@dataclass(frozen=True)
class ChildKey:
    """How a child run is found again: by its pipeline, its tenant, and the key of its start.

    Without a key of the caller, the job and the input identify the child, so a rerun of the job finds it. A child that
    ended without a result, or is about to, is replaced by another one under the next key. There is one run under a key
    of the caller, which `is_shared`: it is a child of the job only if this job has started it.
    """

    pipeline: str
    tenant: str
    key: str
    is_shared: bool
    job: JobKey

    def list_keys(self) -> Iterator[str]:
        """Yield the keys of the child and of those that replace it."""
        return iter([self.key]) if self.is_shared else chain([self.key], map(f"{self.key}:{{}}".format, count(2)))

    def to_text(self) -> str:
        run, *job = self.job
        return json.dumps([self.pipeline, self.tenant, self.key, self.is_shared, [str(run), *job]])

    @classmethod
    def from_text(cls, text: str) -> Self:
        pipeline, tenant, key, is_shared, (run, step, item, revision) = json.loads(text)
        return cls(pipeline, tenant, key, is_shared, (UUID(run), step, item, revision))


@dataclass(frozen=True)
class FoundChild:
    """The run under a key that was not replaced; without one, the key for the next one."""

    run: StartedChild | None
    unused_key: str


@dataclass(frozen=True)
class Child:
    """A child run as its parent asks for it."""

    claim: Claim
    key: ChildKey
    inputs: BaseModel | None
    digest: bytes

    @property
    def action_key(self) -> str:
        """Return the key under which this job acts on an existing run, once per revision."""
        return f"{self.claim.run}:{self.claim.step}:{self.claim.item}:{self.claim.revision}"


class ChildRuns:
    """Starts, finds, polls and cancels child runs. Any worker of the application may do the last three."""

    def __init__(self, app: App, database: Database) -> None:
        self._core = Core(app, database, Guard(), HEARTBEAT_TIMEOUT)
        self._runs = Runs(self._core)
        self._starter = ChildStarter(database)
        self._ancestors: dict[UUID, list[UUID]] = {}

    async def close(self) -> None:
        await self._starter.close()
        await self._core.close()

    def describe(self, claim: Claim, pipeline: Pipeline | str, inputs: Input, tenant: str, key: str | None) -> Child:
        """Check the input. Raise GiveUp if it is not valid: a retry would pass the same."""
        chosen = self._core.get_pipeline(pipeline)
        try:
            checked = validate_input(chosen, inputs, tenant)
        except InvalidInput as error:
            raise GiveUp(str(error), "INVALID_INPUT") from error
        digest, job = digest_input(checked), (claim.run, claim.step, claim.item, claim.revision)
        own_key = f"{claim.run}:{claim.step}:{claim.item}:{digest.hex()[:32]}"
        is_shared = key is not None
        return Child(
            claim, ChildKey(chosen.name, tenant, own_key if key is None else key, is_shared, job), checked, digest
        )

    async def guess_run(self, child: Child) -> FoundChild:
        """Return the same as `find_run`, without a query if there is probably none: the start finds it."""
        is_probably_new = child.claim.is_first_attempt and child.claim.revision == 1
        if is_probably_new and not await self._is_too_deep(child):
            return FoundChild(None, child.key.key)
        return await self.find_run(child)

    async def find_run(self, child: Child) -> FoundChild:
        """Return the run that the job would start, if there is one already."""
        return await self._find_run(child.key, child.digest)

    async def get_known_results(self, child: Child, run: StartedChild) -> dict[str, Any] | None:
        """Return the results of a run that has completed before. Return None if the job must await it.

        A run that another job or request started is not a child: raise RetryLater until it has ended, and
        ChildRunFailed if it did not complete. Raise GiveUp if it is this run itself, or waits for it, or was started
        with another input.
        """
        if child.key.is_shared and not run.has_same_input:
            raise GiveUp(
                f"the key {child.key.key!r} belongs to run {run.id}, which was started with another input", "KEY_REUSED"
            )
        if run.is_own and run.state is not RunState.COMPLETED:
            return None
        if not run.state.is_over:
            await self._check_not_itself(child, run)
            raise AwaitsRun(run.id)
        result = await self.poll(str(run.id))
        if result.state != "succeeded":
            raise ChildRunFailed(result.message or "", result.code or "CHILD_FAILED")
        results: dict[str, Any] = result.result
        return results

    async def rerun_once(self, child: Child, run: StartedChild, rerun: ChildRerun) -> StartedChild:
        """Rerun a run once for each key of a rerun, if it ended before the parent was created.

        Return the run as it is then. A run that the parent has started, that was in progress, that this has rerun
        before, or that was cancelled or rejected is not rerun.
        """
        if run.state not in RERUNNABLE:
            return run
        found = await self._runs.get(run.id, with_input=False)
        parent = await self._runs.get(child.claim.run, with_input=False)
        if found.parent == parent.id or found.ended_at is None or found.ended_at > parent.created_at:
            return run
        with suppress(RunBusy):  # another request has just rerun it
            await self._runs.rerun(run.id, from_step=rerun.from_step, by=f"run {parent.id}", key=rerun.key)
        return (await self.find_run(child)).run or run

    async def start(
        self, child: Child, key: str, worker: int, effect: str, functions: EffectFunctions
    ) -> ChildStartState:
        """Start the child under this key, and record that as the effect of its job, unless another run has the key."""
        claim = child.claim
        if await self._is_too_deep(child):
            raise GiveUp(
                f"this run is already {MAX_DEPTH} child runs deep, so it cannot start a child run of "
                f"{child.key.pipeline!r}: check whether a pipeline starts itself without end",
                "TOO_DEEP",
            )
        start = await build_start(self._core, child.key.pipeline, child.inputs, tenant=child.key.tenant, key=key)
        return await self._starter.start(
            ChildStart(
                worker=worker,
                job=child.key.job,
                fence=claim.fence,
                effect=effect,
                **vars(functions),
                id=start.id,
                tenant=start.tenant,
                version=start.version,
                input=start.input,
                key=key,
                digest=child.digest,
                title=start.title,
            )
        )

    async def resume(self, child: Child, run: StartedChild) -> str:
        """Let a child that has failed before continue. Return its id."""
        if run.state is RunState.FAILED:
            await self._runs.resume(run.id, by="retoma", key=child.action_key)
        elif run.state is RunState.COMPLETED_WITH_ERRORS:
            await self._runs.rerun_failed(run.id, by="retoma", key=child.action_key)
        return str(run.id)

    async def find(self, key: str) -> str | None:
        """Return the child that this job has started, if any. A run of another job must not be cancelled with it."""
        run = (await self._find_run(ChildKey.from_text(key))).run
        return str(run.id) if run is not None and run.is_own else None

    async def poll(self, external_id: str) -> PollResult:
        """Return the state of a run. Its result are the results of the steps that no other step depends on."""
        outcome = await runs.get_outcome(self._core.database, UUID(external_id))
        if outcome is None:
            raise NotFound(f"there is no run {external_id}")
        state, results = outcome
        if not state.is_over:
            return PollResult("running")
        if state is RunState.COMPLETED:
            return PollResult("succeeded", result=results)
        run = await self._runs.get(UUID(external_id), with_input=False)
        if run.state is not state:  # somebody has just let it continue
            return PollResult("running")
        code = f"CHILD_{state.value.upper()}"
        return PollResult("failed", code=code, message=await describe_failure(self._runs, run))

    async def cancel(self, external_id: str) -> None:
        """Cancel a child, unless another revision of its job waits for it. Its late starter must not end it."""
        if not await external_work.is_child_run_awaited(self._core.database, UUID(external_id)):
            await self._runs.cancel(UUID(external_id), by="retoma")

    async def _is_too_deep(self, child: Child) -> bool:
        return len(await self._list_ancestors(child.claim.run)) >= MAX_DEPTH

    async def _check_not_itself(self, child: Child, run: StartedChild) -> None:
        if run.id in (child.claim.run, *await self._list_ancestors(child.claim.run)):
            raise GiveUp(
                f"the key {child.key.key!r} belongs to run {run.id}, which waits for this job: use another key",
                "WAITS_FOR_ITSELF",
            )

    async def _list_ancestors(self, run: UUID) -> list[UUID]:
        """Return the runs that wait for this one. They never change, and many jobs of one run ask for them."""
        if run not in self._ancestors:
            if len(self._ancestors) >= MAX_KNOWN_PARENTS:
                self._ancestors.clear()
            self._ancestors[run] = await runs.list_ancestors(self._core.database, run, MAX_DEPTH)
        return self._ancestors[run]

    async def _find_run(self, key: ChildKey, digest: bytes = b"") -> FoundChild:
        database, owner = self._core.database, await self._core.tenants.find_id(key.tenant) or NO_TENANT
        for each in key.list_keys():
            run = await external_work.find_child_run(database, key.job, owner, key.pipeline, each, digest)
            if run is None or key.is_shared or not _must_be_replaced(run):
                return FoundChild(run, each)
        raise AssertionError("a child can be replaced without end")


def _must_be_replaced(run: StartedChild) -> bool:
    return run.state in (RunState.CANCELLED, RunState.REJECTED) if run.state.is_over else run.is_abandoned


class AwaitsRun(RetryLater):
    """Many jobs may wait for days, for runs that wait for people: the longer it takes, the less often they look."""

    wait_code = "AWAITS_RUN"  # by which `record_outcomes` knows waits of which only the first one is an event

    def __init__(self, run: UUID) -> None:
        delay = min(max(get_age(run) / 10, MIN_SHARED_DELAY), MAX_SHARED_DELAY)
        super().__init__(delay, f"waiting for run {run}, which another job or request started")
