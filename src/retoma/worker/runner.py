"""Runs claimed jobs: finds each one's step, gives it what it reads, and says how the attempt ended."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from math import inf
from uuid import UUID

from retoma.define.context import Context
from retoma.define.file import File, files_in
from retoma.define.items import NOT_WANTED
from retoma.define.review import Feedback
from retoma.engine.exchange import Answer, Claim, EarlierWork, Result, SetBack
from retoma.engine.tenants import Tenants
from retoma.errors import DatabaseUnavailable
from retoma.logs import ATTEMPT
from retoma.store import revisions, runs
from retoma.store.database import Database
from retoma.store.revisions import Before
from retoma.worker.attempt import attempt, crashed, failed, timed_out
from retoma.worker.catalog import Catalog
from retoma.worker.children import Children
from retoma.worker.desk import Desks
from retoma.worker.plan import NeedMissing, Plan
from retoma.worker.tell import tell
from retoma.worker.threads import Threads

UNDEFINED_STEP_DELAY = timedelta(seconds=30)
UNAVAILABLE_DELAY = timedelta(seconds=1)
INPUTS_KEPT = 8
LAST_TRY = 60.0  # seconds to find what goes on outside, in a run that is stopping


class Runner:
    def __init__(self, catalog: Catalog, tenants: Tenants, threads: Threads, children: Children, desks: Desks) -> None:
        self._catalog = catalog
        self._tenants = tenants
        self._threads = threads
        self._children = children
        self._desks = desks
        self._inputs = Inputs(desks.database)

    async def run(self, claim: Claim, on_body: Callable[[Claim], None] = lambda _: None) -> Result | SetBack:
        """One attempt. A step that is not defined here goes back, for a worker that defines it.

        `on_body` is told when the step's function is about to begin, in a child when there is one to run it.
        """
        if claim.over:
            return SetBack(claim, "stopped")
        plan = self._catalog.plan_of(claim.version, claim.step)
        if plan is None:
            return _undefined(claim)
        ATTEMPT.set(claim)  # for the task of this attempt, which ends with it
        try:
            if plan.takes_input and claim.run_input is None:
                claim.run_input = await self._inputs.of(claim.run)
            if plan.step.continues:
                claim.earlier = await self._earlier_work(claim, plan)
            before = await self._what_came_before(claim, plan)
            if before and (settled := settled_before(plan, claim, before)):
                return settled
            context = await self._context(claim, plan, before) if plan.takes_context else None
        except DatabaseUnavailable:
            return SetBack(claim, "back", delay=UNAVAILABLE_DELAY)
        except FileNotFoundError as error:
            return failed(claim, "FILE_MISSING", f"a file that this job needs is gone: {error}")
        if plan.step.policy.isolation is not None:
            return await self._children.attempt(plan, claim, context, on_body)
        on_body(claim)
        return await attempt(plan, claim, context, self._threads)

    async def _earlier_work(self, claim: Claim, plan: Plan) -> EarlierWork:
        steps = plan.step.continues
        return EarlierWork(*await runs.earlier_work(self._desks.database, claim.run, steps, claim.item, claim.revision))

    async def _what_came_before(self, claim: Claim, plan: Plan) -> Before | None:
        """None if nothing did."""
        if not _looks_back(claim, plan):
            return None
        return await revisions.what_came_before(self._desks.database, claim.run, claim.step, claim.item, claim.revision)

    async def _context(self, claim: Claim, plan: Plan, before: Before | None) -> Context:
        return Context(
            run=claim.run,
            tenant=await self._tenants.name_of(claim.tenant),
            pipeline=plan.step.pipeline,
            step=claim.step,
            item=claim.item,
            revision=claim.revision,
            attempt=claim.attempt,
            maybe_done=claim.fence > 1,
            feedback=Feedback.of(json.loads(before.feedback)) if before and before.feedback else None,
            former=json.loads(before.former) if before and before.former else None,
            paths=await self._paths(claim, plan),
            desk=self._desks.desk(claim, plan),
        )

    async def _paths(self, claim: Claim, plan: Plan) -> dict[str, str]:
        """Where the files are that the item and the results name which its step takes."""
        files = self._catalog.files
        return {} if files is None else {file.file: str(await files.path(file)) for file in _files_of(claim, plan)}

    async def tell(self, outcomes: Sequence[Result | SetBack]) -> None:
        """Log those that failed."""
        await tell(outcomes, self._tenants)

    def timeout_of(self, claim: Claim) -> float:
        """Seconds that one attempt may take."""
        plan = self._catalog.plan_of(claim.version, claim.step)
        return min(plan.time_for(claim) if plan else inf, LAST_TRY if claim.last else inf)

    def crashed(self, claim: Claim, error: BaseException) -> SetBack:
        """How a job goes back for which something of ours failed, and not its step."""
        plan = self._catalog.plan_of(claim.version, claim.step)
        return _undefined(claim) if plan is None else crashed(plan, claim, error, 0.0)

    def timed_out(self, claim: Claim, advice: str = "") -> SetBack:
        plan = self._catalog.plan_of(claim.version, claim.step)
        return _undefined(claim) if plan is None else timed_out(plan, claim, self.timeout_of(claim), advice)

    def taken(self, answer: Answer, results: Sequence[Result]) -> list[Claim]:
        """All jobs of an answer, each with what it reads."""
        if answer.kept:
            self._hand_down(answer.kept, results)
        return [*answer.kept, *answer.claimed]

    def makes_work_for_others(self, outcomes: Sequence[Result | SetBack]) -> bool:
        plans = {self._catalog.plan_of(outcome.claim.version, outcome.claim.step) for outcome in outcomes}
        return any(plan is not None and plan.wakes_others for plan in plans)

    def _hand_down(self, kept: Sequence[Claim], results: Sequence[Result]) -> None:
        """Give kept jobs the result that made each of them, and what its job was given."""
        made_by = {(result.claim.run, result.claim.step, result.claim.item): result for result in results}
        for claim in kept:
            step = self._catalog.made_after(claim.version, claim.step)
            if same_item := made_by.get((claim.run, step, claim.item)):
                claim.run_input = same_item.claim.run_input
                claim.item_value = same_item.claim.item_value
                claim.results = [same_item.output]
            else:
                source = made_by[claim.run, step, ""]
                claim.run_input = source.claim.run_input
                claim.item_value = (source.items or {})[claim.item]


def _looks_back(claim: Claim, plan: Plan) -> bool:
    """Whether something came before: nothing does before the first attempt at the first revision of a job, unless a
    person was asked."""
    return claim.revision > 1 or claim.fence > 1 or plan.step.review is not None


def settled_before(plan: Plan, claim: Claim, before: Before) -> Result | SetBack | None:
    """How a job ends without an attempt: it would be made of the same as before, or a person has decided."""
    if before.reused is not None:
        return plan.given(claim, before.reused)
    if before.decision is None:
        return None if plan.step.review is None else _asked(plan, claim)
    if before.value is not None:
        return plan.given(claim, before.value)
    if plan.step.review is None:  # a person goes on without it
        return SetBack(claim, "skipped", code=NOT_WANTED)
    return plan.given(claim, plan.output(plan.step.function(**plan.data(claim))))


def _asked(plan: Plan, claim: Claim) -> Result | SetBack:
    """A review whose `when` says whether a person is needed."""
    try:
        data = plan.data(claim)
        if plan.step.wanted(data):
            return SetBack(claim, "review")
        return plan.given(claim, plan.output(plan.step.function(**data)))
    except NeedMissing:
        return SetBack(claim, "skipped", code="NEED_FAILED")
    except BaseException as error:  # noqa: BLE001  (a condition of the application's)
        return failed(claim, "CONDITION_FAILED", error)


def _undefined(claim: Claim) -> SetBack:
    return SetBack(claim, "back", delay=UNDEFINED_STEP_DELAY, code="UNDEFINED_STEP")


def _files_of(claim: Claim, plan: Plan) -> Iterator[File]:
    for text in (claim.item_value if plan.takes_item else None, *claim.results):
        if text and '"file"' in text:
            yield from files_in(json.loads(text))


class Inputs:
    """The inputs of runs that are too large to travel with every claim; the last few are kept."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[UUID, str] = OrderedDict()

    async def of(self, run: UUID) -> str:
        if run not in self._kept:
            self._kept[run] = await runs.input_of(self._database, run)
        self._kept.move_to_end(run)
        if len(self._kept) > INPUTS_KEPT:
            self._kept.popitem(last=False)
        return self._kept[run]
