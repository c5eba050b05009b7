"""Runs claimed jobs: finds the step of each, loads its data, and returns the outcome of the attempt."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from retoma.define.context import Context
from retoma.define.file import File, find_files
from retoma.define.items import SKIPPED
from retoma.define.review import Feedback
from retoma.engine import outcomes
from retoma.engine.claim_protocol import Claim, EarlierWork
from retoma.engine.outcomes import Outcome
from retoma.errors import ConnectionKeyMissing, DatabaseUnavailable
from retoma.logs import CURRENT_ATTEMPT, get_logger
from retoma.records.wait import NO_PROVIDER
from retoma.states import ReviewState
from retoma.store import budgets, charges, revisions, runs
from retoma.store.database import Database
from retoma.store.revisions import PreviousWork
from retoma.store.tenants import Tenants
from retoma.tracing import TRACES
from retoma.worker.attempt import build_crash_outcome, build_failure_outcome, build_timeout_outcome, run_attempt
from retoma.worker.attempt_span import AttemptSpan, begin_span
from retoma.worker.context_backend import ContextBackends
from retoma.worker.passed_budget import describe_passed_budget
from retoma.worker.process_pool import ProcessPool
from retoma.worker.provider_breakers import ProviderBreakers, Wait
from retoma.worker.provider_choice import choose_provider
from retoma.worker.served_versions import ServedVersions
from retoma.worker.stacks import format_task_stack, format_thread_stack
from retoma.worker.step_call import MICROS_PER_DOLLAR, DependencyMissing, StepCall
from retoma.worker.thread_pool import ThreadPool

log = get_logger(__name__)
UNAVAILABLE_DELAY = timedelta(seconds=1)
NO_KEY_DELAY = timedelta(seconds=30)  # until a worker with the right key may take the job
START_TIMEOUT = 60.0  # beyond its timeout, for preparing an attempt before its function starts
INPUTS_KEPT = 8
REJECTED = "REJECTED"
COST_LIMIT = "COST_LIMIT"
CONNECTION_KEY_MISSING = "CONNECTION_KEY_MISSING"
RESOURCE_FAILED = "RESOURCE_FAILED"
ESTIMATE_FAILED = "ESTIMATE_FAILED"


class StepRunner:
    """What the attempts of a worker share."""

    def __init__(
        self,
        served_versions: ServedVersions,
        tenants: Tenants,
        thread_pool: ThreadPool,
        process_pool: ProcessPool,
        context_backends: ContextBackends,
        breakers: ProviderBreakers,
    ) -> None:
        self.served_versions = served_versions
        self.tenants = tenants
        self.thread_pool = thread_pool
        self.process_pool = process_pool
        self.context_backends = context_backends
        self.breakers = breakers
        self.database = context_backends.database
        self.input_cache = InputCache(self.database)

    def prepare(self, claim: Claim) -> JobAttempt | None:
        """Return the attempt at a job, or None if its step is not defined here."""
        step_call = self.served_versions.get_step_call(claim.version, claim.step)
        return None if step_call is None else JobAttempt(self, claim, step_call)


class JobAttempt:
    """One attempt at a job. Its function starts some time after `run`: only then its time limit begins."""

    __slots__ = ("_context_claim", "_runner", "_step_call", "claim", "deadline", "span", "started_at")

    def __init__(self, runner: StepRunner, claim: Claim, step_call: StepCall) -> None:
        self.claim = self._context_claim = claim  # once its data was loaded, `claim` is the claim with these
        self.started_at: float | None = None  # monotonic, when the function started
        self.span: AttemptSpan | None = None  # if traces are exported
        self._runner = runner
        self._step_call = step_call
        self.deadline = time.monotonic() + self.time_limit + START_TIMEOUT

    @property
    def time_limit(self) -> float:
        """Seconds that the function may take."""
        return self._step_call.get_time_limit(self.claim)

    @property
    def has_effect_in_progress(self) -> bool:
        """Whether it is within a call of `once` or `external`, which gets some time to finish."""
        return self._runner.context_backends.effects_in_progress[self.claim.key] > 0

    def format_stack(self, task: asyncio.Task[None], loop_thread: int) -> str | None:
        """Return where it is now; None while a child process runs its function. For other threads."""
        if self._step_call.step.policy.isolation is not None and self.started_at is not None:
            return None
        thread = self._runner.thread_pool.find_thread(self._context_claim)
        return format_task_stack(task, loop_thread) if thread is None else format_thread_stack(thread)

    async def run(self) -> Outcome:
        """Load the data, then run the step's function in the event loop, a thread or a child process."""
        CURRENT_ATTEMPT.set(self._context_claim)  # for the task of this attempt, which ends with it
        try:
            if TRACES.is_on:
                await self._begin_span()
            await self._load_data()
            before = await self._load_previous_work()
            if before and (resolved := resolve_without_attempt(self._step_call, self.claim, before)):
                return resolved
            if self._step_call.checks_before_attempt and (prevented := await self._prepare_attempt()):
                return prevented
            context = await self._build_context(before) if self._step_call.takes_context else None
        except DatabaseUnavailable:
            return outcomes.Returned(self.claim, delay=UNAVAILABLE_DELAY)
        except FileNotFoundError as error:
            sentence = f"a file that this job needs no longer exists: {error}"
            return build_failure_outcome(self.claim, "FILE_MISSING", sentence)
        isolation = self._step_call.step.policy.isolation
        if isolation is None:
            self._start()
            outcome = await run_attempt(self._step_call, self.claim, context, self._runner.thread_pool)
            if self._step_call.provider is not None:
                self._runner.breakers.add_report(self._step_call.provider, outcome)
            return outcome
        child = await self._runner.process_pool.get_child(isolation)
        self._start()
        return await self._runner.process_pool.run_attempt(child, self._step_call, self.claim, context)

    def build_crash_outcome(self, error: BaseException) -> Outcome:
        """Return the outcome if it failed because of Retoma, not of its step."""
        return build_crash_outcome(self._step_call, self.claim, error, 0.0)

    def build_timeout_outcome(self, advice: str = "") -> Outcome:
        """Return the outcome of a timeout. A job whose function has not started is returned unstarted."""
        if self.started_at is None:
            return outcomes.Returned(self.claim, delay=UNAVAILABLE_DELAY)
        return build_timeout_outcome(self._step_call, self.claim, self.time_limit, advice)

    async def _begin_span(self) -> None:
        claim = self.claim
        self.span = begin_span(claim, self._step_call.step.pipeline, self._runner.context_backends.worker)
        self.span.tenant = await self._runner.tenants.get_name(claim.tenant)

    def _start(self) -> None:
        """Begin the time limit: until now the attempt waited for the database, a file or a child process."""
        self.started_at = time.monotonic()
        self.deadline = self.started_at + self.time_limit

    async def _load_data(self) -> None:
        """Load what did not come with the claim."""
        claim, step = self.claim, self._step_call.step
        if self._step_call.takes_input and claim.run_input is None:
            self.claim = replace(claim, run_input=await self._runner.input_cache.get(claim.run))
        if step.continues:
            earlier = await runs.get_earlier_work(
                self._runner.database, claim.run, step.continues, claim.item, claim.revision
            )
            self.claim = replace(self.claim, earlier=EarlierWork(*earlier))

    async def _load_previous_work(self) -> PreviousWork | None:
        """Return the previous work of the job, or None if there is none. The first attempt at the first revision has
        none, except in reviews."""
        claim = self.claim
        if claim.revision == 1 and claim.is_first_attempt and self._step_call.step.review is None:
            return None
        return await revisions.get_previous_work(
            self._runner.database, claim.run, claim.step, claim.item, claim.revision
        )

    async def _prepare_attempt(self) -> Outcome | None:
        """Check the cost limit and the budgets, build the resources of the tenant, and choose a provider.

        Return an outcome if the attempt must not start.
        """
        step = self._step_call.step
        if step.policy.cost_limit is not None and (sentence := await self._explain_cost_limit(step.policy.cost_limit)):
            return build_failure_outcome(self.claim, COST_LIMIT, sentence)
        if step.may_charge and (prevented := await self._reserve_budget()):
            return prevented
        if self._step_call.needs_tenant and (prevented := await self._bind_tenant()):
            return prevented
        if self._step_call.chain is not None:
            chosen = await choose_provider(self._runner.database, self._runner.breakers, self._step_call, self.claim)
            if isinstance(chosen, Wait):
                return outcomes.Returned(self.claim, chosen.delay, NO_PROVIDER)
            self._step_call = self._step_call.with_provider(chosen)
        if (name := self._step_call.provider_name) is not None:
            self._runner.context_backends.attempt_providers.add(self.claim, name)
            if self.span is not None:
                self.span.provider = name
        return None

    async def _bind_tenant(self) -> Outcome | None:
        """Take the resources of the job's tenant. Return an outcome if they cannot be built here."""
        claim, runner = self.claim, self._runner
        try:
            built = await runner.served_versions.tenant_resources.bind(self._step_call.resources, claim.tenant)
        except DatabaseUnavailable:
            raise
        except ConnectionKeyMissing as error:
            log.warning("connection_key_missing", message="a job waits for a worker with the right key", error=error)
            return outcomes.Returned(claim, NO_KEY_DELAY, CONNECTION_KEY_MISSING)
        except Exception as error:  # noqa: BLE001  (application code builds them)
            return build_failure_outcome(claim, RESOURCE_FAILED, error)
        self._step_call = self._step_call.with_tenant(await runner.tenants.get_name(claim.tenant), built)
        return None

    async def _explain_cost_limit(self, limit: float) -> str | None:
        """Return a message if earlier attempts have cost as much as all attempts may."""
        claim = self.claim
        if claim.fence == 1:
            return None
        cost = await charges.get_job_cost(self._runner.database, claim.run, claim.step, claim.item, claim.revision)
        if cost is None or cost < limit * MICROS_PER_DOLLAR:
            return None
        return (
            f"the attempts at {claim.step!r} have cost US$ {cost / MICROS_PER_DOLLAR:.2f}, which reaches "
            f"cost_limit={limit:g}, the limit for all attempts together"
        )

    async def _reserve_budget(self) -> Outcome | None:
        """Reserve the estimated cost. Return an outcome if a hard budget would be passed, or is used up."""
        data = self._step_call.build_arguments_if_called(self.claim)
        if data is None:
            return None
        try:
            estimate = self._step_call.estimate_micros(data)
        except Exception as error:  # noqa: BLE001  (the estimate is application code)
            return build_failure_outcome(self.claim, ESTIMATE_FAILED, error)
        passed = await budgets.reserve(self._runner.database, self.claim.key, estimate)
        return None if passed is None else outcomes.OverBudget(self.claim, describe_passed_budget(passed))

    async def _build_context(self, previous_work: PreviousWork | None) -> Context:
        claim = self.claim
        return Context(
            run=claim.run,
            tenant=await self._runner.tenants.get_name(claim.tenant),
            pipeline=self._step_call.step.pipeline,
            step=claim.step,
            item=claim.item,
            revision=claim.revision,
            attempt=claim.attempt,
            maybe_done=claim.fence > 1,
            feedback=Feedback.from_json(json.loads(previous_work.feedback), previous_work.feedback_revision or 0)
            if previous_work and previous_work.feedback
            else None,
            previous_result=json.loads(previous_work.previous_result)
            if previous_work and previous_work.previous_result
            else None,
            provider=self._step_call.provider_name,
            traceparent=None if self.span is None else self.span.context.traceparent,
            paths=await self._fetch_paths(),
            backend=self._runner.context_backends.create(claim, self._step_call),
        )

    async def _fetch_paths(self) -> dict[str, str]:
        """Return the local paths of the files that the step's item and input results refer to."""
        files = self._runner.served_versions.get_application(self.claim.version).files
        if files is None:
            return {}
        return {file.file: str(await files.get_path(file)) for file in _list_files(self.claim, self._step_call)}


def resolve_without_attempt(step_call: StepCall, claim: Claim, previous_work: PreviousWork) -> Outcome | None:
    """Return the outcome of a job that needs no attempt: its inputs are unchanged, or a person has decided."""
    if previous_work.decision == ReviewState.REJECTED:
        return build_failure_outcome(claim, REJECTED, _describe_rejection(previous_work))
    if previous_work.reused is not None:
        return step_call.build_result(claim, previous_work.reused)
    if previous_work.decision is None:
        return None if step_call.step.review is None else _check_review_condition(step_call, claim)
    if previous_work.value is not None:
        return step_call.build_result(claim, previous_work.value)
    if step_call.step.review is None:  # a person decided to continue without it
        return outcomes.Skip(claim, SKIPPED)
    return step_call.build_result(
        claim, step_call.encode_result(step_call.step.function(**step_call.build_arguments(claim)))
    )


def _describe_rejection(previous_work: PreviousWork) -> str:
    if previous_work.decided_by is None:
        return "rejected because nobody decided before the review expired"
    return f"rejected by {previous_work.decided_by}: {previous_work.notes}"


def _check_review_condition(step_call: StepCall, claim: Claim) -> Outcome:
    """Open a review if its `when` says so; otherwise continue without a person."""
    try:
        data = step_call.build_arguments(claim)
        if step_call.step.should_run(data):
            return outcomes.ReviewRequest(claim)
        return step_call.build_result(claim, step_call.encode_result(step_call.step.function(**data)))
    except DependencyMissing:
        return outcomes.Skip(claim, "DEPENDENCY_FAILED")
    except BaseException as error:  # noqa: BLE001  (the condition is application code)
        return build_failure_outcome(claim, "CONDITION_FAILED", error)


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
