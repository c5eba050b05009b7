"""Runs claimed jobs: finds the step of each, loads its data, and returns the outcome of the attempt."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from math import inf
from uuid import UUID

from retoma.define.context import Context
from retoma.define.file import File, find_files
from retoma.define.items import NOT_WANTED
from retoma.define.review import Feedback
from retoma.engine.claim_protocol import AttemptOutcome, Claim, ClaimResponse, EarlierWork, Result
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.logs import CURRENT_ATTEMPT
from retoma.store import revisions, runs
from retoma.store.database import Database
from retoma.store.revisions import PreviousWork
from retoma.worker.attempt import build_crash_outcome, build_failure_outcome, build_timeout_outcome, run_attempt
from retoma.worker.attempt_log import log_failed_attempts
from retoma.worker.context_backend import ContextBackends
from retoma.worker.process_pool import ProcessPool
from retoma.worker.served_versions import ServedVersions
from retoma.worker.step_call import DependencyMissing, StepCall
from retoma.worker.thread_pool import ThreadPool

UNDEFINED_STEP_DELAY = timedelta(seconds=30)
UNAVAILABLE_DELAY = timedelta(seconds=1)
INPUTS_KEPT = 8
LAST_TRY = 60.0  # seconds to find external work, in a run that is stopping


class StepRunner:
    def __init__(
        self,
        served_versions: ServedVersions,
        tenants: Tenants,
        thread_pool: ThreadPool,
        process_pool: ProcessPool,
        context_backends: ContextBackends,
    ) -> None:
        self._served_versions = served_versions
        self._tenants = tenants
        self._thread_pool = thread_pool
        self._process_pool = process_pool
        self._context_backends = context_backends
        self._input_cache = InputCache(context_backends.database)

    async def run(
        self, claim: Claim, on_step_start: Callable[[Claim], None] = lambda _: None
    ) -> Result | AttemptOutcome:
        """Run one attempt. If the step is not defined here, return the job for a worker that defines it.

        Calls `on_step_start` right before the step's function starts, for isolated steps once a child is ready.
        """
        if claim.over:
            return AttemptOutcome(claim, "stopped")
        step_call = self._served_versions.get_step_call(claim.version, claim.step)
        if step_call is None:
            return _build_undefined_outcome(claim)
        CURRENT_ATTEMPT.set(claim)  # for the task of this attempt, which ends with it
        try:
            if step_call.takes_input and claim.run_input is None:
                claim.run_input = await self._input_cache.get(claim.run)
            if step_call.step.continues:
                claim.earlier = await self._load_earlier_work(claim, step_call)
            before = await self._load_previous_work(claim, step_call)
            if before and (resolved := resolve_without_attempt(step_call, claim, before)):
                return resolved
            context = await self._build_context(claim, step_call, before) if step_call.takes_context else None
        except DatabaseUnavailable:
            return AttemptOutcome(claim, "back", delay=UNAVAILABLE_DELAY)
        except FileNotFoundError as error:
            return build_failure_outcome(claim, "FILE_MISSING", f"a file that this job needs no longer exists: {error}")
        if step_call.step.policy.isolation is not None:
            return await self._process_pool.run_attempt(step_call, claim, context, on_step_start)
        on_step_start(claim)
        return await run_attempt(step_call, claim, context, self._thread_pool)

    async def _load_earlier_work(self, claim: Claim, step_call: StepCall) -> EarlierWork:
        steps = step_call.step.continues
        return EarlierWork(
            *await runs.get_earlier_work(self._context_backends.database, claim.run, steps, claim.item, claim.revision)
        )

    async def _load_previous_work(self, claim: Claim, step_call: StepCall) -> PreviousWork | None:
        """Return the previous work of the job, or None if there is none."""
        if not _has_previous_work(claim, step_call):
            return None
        return await revisions.get_previous_work(
            self._context_backends.database, claim.run, claim.step, claim.item, claim.revision
        )

    async def _build_context(self, claim: Claim, step_call: StepCall, previous_work: PreviousWork | None) -> Context:
        return Context(
            run=claim.run,
            tenant=await self._tenants.get_name(claim.tenant),
            pipeline=step_call.step.pipeline,
            step=claim.step,
            item=claim.item,
            revision=claim.revision,
            attempt=claim.attempt,
            maybe_done=claim.fence > 1,
            feedback=Feedback.from_json(json.loads(previous_work.feedback))
            if previous_work and previous_work.feedback
            else None,
            previous_result=json.loads(previous_work.previous_result)
            if previous_work and previous_work.previous_result
            else None,
            paths=await self._fetch_paths(claim, step_call),
            backend=self._context_backends.create(claim, step_call),
        )

    async def _fetch_paths(self, claim: Claim, step_call: StepCall) -> dict[str, str]:
        """Return the local paths of the files that the step's item and input results refer to."""
        files = self._served_versions.files
        return (
            {}
            if files is None
            else {file.file: str(await files.get_path(file)) for file in _list_files(claim, step_call)}
        )

    async def log_failed_attempts(self, outcomes: Sequence[Result | AttemptOutcome]) -> None:
        await log_failed_attempts(outcomes, self._tenants)

    def get_timeout(self, claim: Claim) -> float:
        """Return the seconds that one attempt may take."""
        step_call = self._served_versions.get_step_call(claim.version, claim.step)
        return min(step_call.get_time_limit(claim) if step_call else inf, LAST_TRY if claim.last else inf)

    def build_crash_outcome(self, claim: Claim, error: BaseException) -> AttemptOutcome:
        """Return the outcome of an attempt that failed because of Retoma, not of its step."""
        step_call = self._served_versions.get_step_call(claim.version, claim.step)
        return (
            _build_undefined_outcome(claim) if step_call is None else build_crash_outcome(step_call, claim, error, 0.0)
        )

    def build_timeout_outcome(self, claim: Claim, advice: str = "") -> AttemptOutcome:
        step_call = self._served_versions.get_step_call(claim.version, claim.step)
        return (
            _build_undefined_outcome(claim)
            if step_call is None
            else build_timeout_outcome(step_call, claim, self.get_timeout(claim), advice)
        )

    def prepare_claims(self, response: ClaimResponse, results: Sequence[Result]) -> list[Claim]:
        """Return all jobs of a response, each with its data."""
        if response.successors:
            self._pass_on_results(response.successors, results)
        return [*response.successors, *response.claimed]

    def makes_work_for_others(self, outcomes: Sequence[Result | AttemptOutcome]) -> bool:
        step_calls = {
            self._served_versions.get_step_call(outcome.claim.version, outcome.claim.step) for outcome in outcomes
        }
        return any(step_call is not None and step_call.wakes_others for step_call in step_calls)

    def _pass_on_results(self, successors: Sequence[Claim], results: Sequence[Result]) -> None:
        """Pass the results of jobs to the successors that this worker keeps, with the input and item of each."""
        by_job = {(result.claim.run, result.claim.step, result.claim.item): result for result in results}
        for claim in successors:
            step = self._served_versions.find_creating_step(claim.version, claim.step)
            if same_item := by_job.get((claim.run, step, claim.item)):
                claim.run_input = same_item.claim.run_input
                claim.item_value = same_item.claim.item_value
                claim.results = [same_item.output]
            else:
                source = by_job[claim.run, step, ""]
                claim.run_input = source.claim.run_input
                claim.item_value = (source.items or {})[claim.item]


def _has_previous_work(claim: Claim, step_call: StepCall) -> bool:
    """Return whether the job may have previous work. The first attempt at the first revision has none, except in
    reviews."""
    return claim.revision > 1 or claim.fence > 1 or step_call.step.review is not None


def resolve_without_attempt(
    step_call: StepCall, claim: Claim, previous_work: PreviousWork
) -> Result | AttemptOutcome | None:
    """Return the outcome of a job that needs no attempt: its inputs are unchanged, or a person has decided."""
    if previous_work.reused is not None:
        return step_call.build_result(claim, previous_work.reused)
    if previous_work.decision is None:
        return None if step_call.step.review is None else _check_review_condition(step_call, claim)
    if previous_work.value is not None:
        return step_call.build_result(claim, previous_work.value)
    if step_call.step.review is None:  # a person decided to continue without it
        return AttemptOutcome(claim, "skipped", code=NOT_WANTED)
    return step_call.build_result(
        claim, step_call.encode_result(step_call.step.function(**step_call.build_arguments(claim)))
    )


def _check_review_condition(step_call: StepCall, claim: Claim) -> Result | AttemptOutcome:
    """Open a review if its `when` says so; otherwise continue without a person."""
    try:
        data = step_call.build_arguments(claim)
        if step_call.step.should_run(data):
            return AttemptOutcome(claim, "review")
        return step_call.build_result(claim, step_call.encode_result(step_call.step.function(**data)))
    except DependencyMissing:
        return AttemptOutcome(claim, "skipped", code="DEPENDENCY_FAILED")
    except BaseException as error:  # noqa: BLE001  (the condition is application code)
        return build_failure_outcome(claim, "CONDITION_FAILED", error)


def _build_undefined_outcome(claim: Claim) -> AttemptOutcome:
    return AttemptOutcome(claim, "back", delay=UNDEFINED_STEP_DELAY, code="UNDEFINED_STEP")


def _list_files(claim: Claim, step_call: StepCall) -> Iterator[File]:
    for text in (claim.item_value if step_call.takes_item else None, *claim.results):
        if text and '"file"' in text:
            yield from find_files(json.loads(text))


class InputCache:
    """Inputs of runs that are too large to come with every claim. Keeps the last few."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[UUID, str] = OrderedDict()

    async def get(self, run: UUID) -> str:
        if run not in self._kept:
            self._kept[run] = await runs.get_input(self._database, run)
        self._kept.move_to_end(run)
        if len(self._kept) > INPUTS_KEPT:
            self._kept.popitem(last=False)
        return self._kept[run]
