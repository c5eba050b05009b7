"""The one in-process door to runs: start, wait, look, cancel."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from retoma.app import App
from retoma.define.codec import LARGEST_RESULT, codec_of
from retoma.define.file import File, files_in
from retoma.define.graph import Graph
from retoma.define.mistakes import suggestion
from retoma.define.options import HIGHEST_PRIORITY
from retoma.define.pipeline import MOST_RESUMES, Pipeline
from retoma.define.pool import LARGEST_CAPACITY, LOWEST_RATE
from retoma.define.webhook import Webhook, recorded
from retoma.engine import estimate, figures, keys, versions, wait_reasons
from retoma.engine import reviews as review_rules
from retoma.engine.keys import OVERLAP
from retoma.engine.reviews import Decision
from retoma.engine.start import Start, Started, Starter
from retoma.engine.tenants import DEFAULT, Tenants
from retoma.engine.waiter import Waiter
from retoma.engine.watchdog import FIRST_PAUSE
from retoma.errors import AtWork, Conflict, Gone, InvalidInput, NotFound, RetomaError, RunFailed
from retoma.identifiers import first_run_id, new_run_id
from retoma.outgoing import Guard
from retoma.records import (
    ChargeRecord,
    ChargeTotal,
    Decided,
    Delivery,
    Endpoint,
    Event,
    Figures,
    Item,
    ItemTotals,
    Job,
    KeyRecord,
    Made,
    NewKey,
    Outside,
    PipelineFigures,
    PoolRecord,
    Price,
    Profile,
    QueueFigures,
    Review,
    ReviewCount,
    ReviewFigures,
    Revision,
    Run,
    Scope,
    Standing,
    StepProgress,
    Stuck,
    Subject,
    Try,
    Wait,
    WorkerRecord,
)
from retoma.settings import Settings
from retoma.signing import new_secret
from retoma.states import JOB_ENDS, DeliveryState, JobState, ReviewState, RunState
from retoma.store import (
    charges,
    clock,
    deliveries,
    gauges,
    items,
    live,
    outside,
    pools,
    profiles,
    reviews,
    revisions,
    runs,
    watchdog,
    workers,
)
from retoma.store.database import Database

LONGEST_NAME = 500
INPUTS_AT_A_TIME = 1_000
LAST_YEAR = 9000
LONGEST_DEADLINE = timedelta(days=3650)
HIGHEST_PRICE = 10**10
ChargedBy = Literal["tenant", "run", "step", "item", "provider", "what"]
Input = BaseModel | Mapping[str, Any] | None
NOBODY = 0
REVIEW_CLAIM = timedelta(minutes=10)
SECRETS_OVERLAP = timedelta(hours=24)
MOST_MENTIONS = 20  # of a file in the data of a run


class Client:
    """Acts on runs of an application. Make it with `connect`; use it from one event loop.

    Without an application it can do everything but start runs.
    """

    def __init__(self, app: App | None, database: Database, guard: Guard | None = None) -> None:
        self.app = app
        self.database = database
        self.guard = guard or Guard()
        self._starter = Starter(database)
        self._waiter = Waiter(database)
        self._tenants = Tenants(database)
        self._figures = figures.Reader(database, figures.look)
        self._standing = figures.Reader(database, figures.look_for_people)
        self._versions: dict[str, int] = {}

    async def close(self) -> None:
        """Give up waiting, and let what is being started be answered."""
        await self._waiter.close()
        await self._starter.close()

    async def start(
        self,
        pipeline: Pipeline | str,
        given: Input = None,
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        resumes: int | None = None,
        retries: int | None = None,
        deadline: timedelta | None = None,
        webhook: Webhook | None = None,
        asked: BaseModel | None = None,
    ) -> Started:
        """Start a run. When this returns, the run is committed and will reach its end.

        The same `key` with the same input gives back the same run, whatever its state; with another input it
        raises Conflict. Of an input that was made of something else, `asked` is that: it is compared in place of the
        input. `run_at` lets it begin later. A level of `priority` is worth ten minutes of waiting.
        If it is not over `deadline` after it began, it fails. `resumes` is in place of its pipeline's; of its jobs none
        is retried more than `retries` times, whatever its step says.
        `webhook` is told of the run; if the key was used before, that of the first start is.
        """
        pipeline = self._own(pipeline)
        inputs = _validated(pipeline, given)
        _check(tenant=tenant, key=key, priority=priority, run_at=run_at)
        _check_limits(resumes, retries, deadline)
        return await self._starter.start(
            Start(
                id=new_run_id(),
                tenant=await self._tenants.id_of(tenant),
                version=await self._version_of(pipeline),
                input=_json(inputs),
                key=key,
                digest=None if key is None else _digest(asked or inputs),
                run_at=run_at,
                head_start=versions.head_start(priority),
                resumes=resumes,
                retries=retries,
                deadline=deadline,
                hook=self._hook(webhook),
            )
        )

    async def started_by(self, key: str, pipeline: Pipeline | str, *, tenant: str = DEFAULT) -> UUID | None:
        """The run that this key has started, if any."""
        _check(tenant=tenant, key=key, priority=0, run_at=None)
        owner = await self._tenants.known_id(tenant) or NOBODY
        return await runs.started_by(self.database, owner, self._own(pipeline).name, key)

    async def start_many(
        self,
        pipeline: Pipeline | str,
        given: Sequence[Input],
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        priority: int = 0,
        webhook: Webhook | None = None,
    ) -> list[Started]:
        """Start many runs of one pipeline, in their order; `webhook` is told of each.

        The same `key` with the same inputs gives back the same runs; with others it raises Conflict and starts none.
        """
        pipeline = self._own(pipeline)
        inputs = await _all_validated(pipeline, given)
        _check(tenant=tenant, key=key, priority=priority, run_at=None)
        owner, version = await self._tenants.id_of(tenant), await self._version_of(pipeline)
        ahead, hook = versions.head_start(priority), self._hook(webhook)
        digest = None if key is None else _digest_of_all(inputs)
        starts = [
            Start(
                id=new_run_id(),
                tenant=owner,
                version=version,
                input=_json(one),
                key=None if key is None else f"{key}/{number}",
                digest=digest,
                head_start=ahead,
                hook=hook,
            )
            for number, one in enumerate(inputs)
        ]
        # With a key the first goes alone: if the key belongs to other inputs, none of the others may start.
        alone = starts[:1] if key is not None else []
        return [*await self._starter.start_many(alone), *await self._starter.start_many(starts[len(alone) :])]

    async def wait(self, run: UUID, timeout: timedelta | None = None) -> Run:
        """The run once it is over. Raises TimeoutError if it is not over in time."""
        await self.show(run)
        await self._waiter.until_over(run, timeout)
        return await self.show(run)

    async def run(self, /, pipeline: Pipeline | str, given: Input = None, **options: Any) -> dict[str, Any]:
        """Start a run, wait for its end, and give its results by step. Raises RunFailed if it did not complete."""
        started = await self.start(pipeline, given, **options)
        run = await self.wait(started.id)
        if run.state is not RunState.COMPLETED:
            raise RunFailed(await self._why(run))
        return await self.results(run.id)

    async def show(self, run: UUID, *, tenant: str | None = None) -> Run:
        found = await runs.show(self.database, run, await self._tenant_filter(tenant))
        if found is None:
            raise NotFound(f"there is no run {run}")
        return found

    async def runs(
        self,
        *,
        tenant: str | None = None,
        pipeline: str | None = None,
        states: Sequence[RunState] | None = None,
        before: UUID | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[Run]:
        """Runs, newest first, of those that were started `since`. For the next page give the last id as `before`."""
        return await runs.listed(
            self.database,
            tenant=await self._tenant_filter(tenant),
            pipeline=pipeline,
            states=states,
            before=before,
            first=None if since is None else first_run_id(since),
            limit=limit,
        )

    async def began(self, ids: Iterable[UUID]) -> dict[UUID, datetime]:
        """When work began in these runs: the first attempt, or where steps need pools, the first that got its slots.

        Runs in which none has begun are left out.
        """
        return await runs.began(self.database, ids)

    async def results(self, run: UUID) -> dict[str, Any]:
        """The current results by step; of an `each` step, a dictionary by item."""
        return await runs.results(self.database, run)

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest runs whose ids begin like this; dashes and case do not matter."""
        ids = _range(prefix)
        return [] if ids is None else await runs.between(self.database, *ids, limit)

    async def graph(self, run: Run) -> Graph:
        """The shape that this run keeps."""
        return await versions.shape(self.database, run.version)

    async def waits(self, run: UUID, *, silence: timedelta = timedelta(seconds=6)) -> list[Wait]:
        """Why what could run does not. A worker that was silent for longer than `silence` does not count."""
        return await wait_reasons.of_run(self.database, run, silence)

    async def jobs(self, run: UUID) -> list[Job]:
        return await runs.jobs(self.database, run)

    async def step_jobs(
        self,
        run: UUID,
        step: str,
        *,
        states: Sequence[JobState] | None = None,
        item: str | None = None,
        after: int = -1,
        limit: int = 50,
    ) -> list[Job]:
        """Jobs of one step in the order of items. For the next page give the last `position` as `after`."""
        return await runs.jobs_of_step(self.database, run, step, states=states, item=item, after=after, limit=limit)

    async def job_events(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[Event]:
        """What happened to one job, the newest first."""
        return await runs.events_of_job(self.database, run, step, item, limit)

    async def files(self, run: Run, *, limit: int = 100) -> list[File]:
        """Files that the run's input and the results of its steps name, but for those of single items."""
        said = await runs.data_with(self.database, run.id, '"file"', limit, of_items=False)
        found: dict[File, None] = {}
        for file in files_in([run.input, *said]):
            found[file] = None
            if len(found) == limit:
                break
        return list(found)

    async def file(self, run: UUID, digest: str) -> File:
        """The file of this content, as the data of the run names it. Raises NotFound if it does not."""
        said = await runs.data_with(self.database, run, digest, MOST_MENTIONS)
        for file in files_in(said):
            if file.file == digest:
                return file
        raise NotFound(f"run {run} names no file {digest}")

    async def tries(self, run: UUID, step: str = "", item: str = "", *, limit: int = 500) -> list[Try]:
        """Attempts that gave no result, in their order: of the steps that have one job, and of one item of `step`."""
        return await runs.tries(self.database, run, step, item, limit)

    async def items(
        self,
        run: UUID,
        source: str,
        *,
        states: Sequence[JobState] | None = None,
        search: str | None = None,
        only: Sequence[str] | None = None,
        after: int = -1,
        limit: int = 100,
    ) -> list[Item]:
        """The items that `source` gave, in their order, each over all the steps that go over them.

        `search` is a part of an item's key; `only` are keys. For the next page give the last `position` as `after`.
        """
        return await items.listed(
            self.database, run, source, states=states, search=search, only=only, after=after, limit=limit
        )

    async def item_totals(self, run: UUID, source: str) -> ItemTotals:
        """How many items are in which state, and which had the last result."""
        return await items.totals(self.database, run, source)

    async def item_codes(self, run: UUID, source: str) -> list[tuple[str, int]]:
        """How many items failed with which code, the most frequent first."""
        return await items.codes(self.database, run, source)

    async def profile(self, tenant: str) -> Profile:
        """What this application knows of a tenant. Raises NotFound if that is nothing."""
        found = await profiles.listed(self.database, self._app_name, tenant)
        if not found:
            raise NotFound(f"there is no {tenant!r}")
        return found[0]

    async def profiles(self) -> list[Profile]:
        """All that this application knows of tenants, by name."""
        return await profiles.listed(self.database, self._app_name)

    async def set_profile(self, tenant: str, value: Any, *, revision: int | None = None) -> Profile:
        """Keep what the application knows of a tenant: its settings, as JSON.

        With `revision`, only if it is still of that revision, and 0 means that there is none yet; otherwise Conflict.
        """
        _check(tenant=tenant, key=None, priority=0, run_at=None)
        owner = await self._tenants.id_of(tenant)
        if not await profiles.put(self.database, self._app_name, owner, _encoded(value), revision):
            raise Conflict(f"{tenant!r} was changed by somebody else: look at it again")
        return await self.profile(tenant)

    async def drop_profile(self, tenant: str) -> None:
        """Forget it. Runs of the tenant stay."""
        if not await profiles.drop(self.database, self._app_name, tenant):
            raise NotFound(f"there is no {tenant!r}")

    @property
    def _app_name(self) -> str:
        if self.app is None:
            raise NotFound("this client has no application: give one to `connect`")
        return self.app.name

    async def now(self) -> datetime:
        """The database's time."""
        return await clock.now(self.database)

    async def progress(self, run: UUID) -> list[StepProgress]:
        return await runs.progress(self.database, run)

    async def errors(self, run: UUID) -> dict[tuple[str, str], Any]:
        """What the newest failure or retry of each job said, by step and item."""
        return await runs.last_errors(self.database, run)

    async def events(
        self, run: UUID, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Event]:
        """What happened in a run, in order; with `kinds` only that. For the next page give the last id as `after`."""
        return await runs.events(self.database, run, kinds, after, limit)

    async def last_event(self, run: UUID) -> int:
        """The number of a run's newest event; 0 if it has none."""
        return await live.last_of_run(self.database, run)

    async def cancel(self, run: UUID, *, tenant: str | None = None, by: str = "client") -> RunState:
        """Let nothing new start in this run. Gives its state: `cancelling` while something still ends."""
        state = await runs.cancel(self.database, run, await self._tenant_filter(tenant), by)
        if state is None:
            raise NotFound(f"there is no run {run}")
        return state

    async def rerun_failed(
        self,
        run: UUID,
        *,
        step: str | None = None,
        items: Sequence[str] | None = None,
        tenant: str | None = None,
        by: str = "client",
    ) -> Revision:
        """Make anew what has no result in a run that is over, and what depends on it; the rest keeps its results.

        With `step`, only what failed of that step, and with `items` only these of its items. Raises AtWork while the
        run is not over; who asks for the same while it is under way gets the same answer.
        """
        made = await revisions.rerun_failed(self.database, run, await self._tenant_filter(tenant), by, step, items)
        return self._revised(made, f"run {run}")

    async def rerun(
        self,
        run: UUID,
        *steps: str,
        items: Sequence[str] | None = None,
        group: str | None = None,
        after: str | None = None,
        stale: bool = False,
        alone: bool = False,
        fresh: bool = False,
        tenant: str | None = None,
        by: str = "client",
        why: str | None = None,
    ) -> Revision:
        """Make these steps anew, or these `items` of one, and what depends on them, at a new revision.

        `group` names steps that belong together; `after` means a step and every step that depends on it; `stale` is
        what was made of something that is no longer current. What depends on them keeps its result where it would be
        made of the same, unless `fresh`. With `alone` it stays as it is, and stale.

        Raises AtWork while the same part of the run is being made.
        """
        found = await self.show(run, tenant=tenant)
        chosen = None if stale else await self._chosen_steps(found, steps, group, after)
        made = await revisions.rerun(
            self.database,
            run,
            await self._tenant_filter(tenant),
            by=by,
            why=why,
            steps=chosen,
            items=items,
            stale=stale,
            alone=alone,
            fresh=fresh or after is not None,
        )
        return self._revised(made, f"run {run}")

    async def stale(self, run: UUID) -> list[tuple[str, str]]:
        """Steps and items whose results are made of something that is no longer current."""
        return await revisions.stale(self.database, run)

    async def made(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[Made]:
        """Every revision of one job, the newest first: results are never written over."""
        return await revisions.made(self.database, run, step, item, limit)

    async def fork(
        self, run: UUID, changes: Mapping[str, Any] | None = None, *, tenant: str | None = None, by: str = "client"
    ) -> Started:
        """Start a run with a changed input that shares the results of one that is over.

        What takes a changed field is made anew, what publishes too, and what depends on these where it would be made
        of something else. The last review before something is published is asked again. Shared results cost nothing.
        """
        found = await self.show(run, tenant=tenant)
        pipeline = self._own(found.pipeline)
        given = _validated(pipeline, {**(found.input or {}), **(changes or {})})
        new = new_run_id()
        made = await revisions.fork(
            self.database,
            run,
            await self._tenant_filter(tenant),
            by=by,
            new=new,
            value=_json(given),
            steps=_touched(pipeline, json.loads(_json(given)), found.input or {}),
        )
        self._revised(made, f"run {run}")
        return Started(new, True)

    async def edit(
        self,
        run: UUID,
        step: str,
        value: Any,
        *,
        item: str = "",
        and_continue: bool = True,
        tenant: str | None = None,
        by: str = "client",
    ) -> Revision:
        """Put a person's result in place of a job's, and make anew what depends on it; or leave that stale.

        It must be of the type that the step gives, as far as this client's application defines the step.
        """
        found, text = await self.show(run, tenant=tenant), _encoded(value)
        if found.state not in (RunState.CANCELLED, RunState.REJECTED):
            await self._check_ended(found, step, item)
            text = self._fitting(found.pipeline, step, text)
        made = await revisions.edit(
            self.database, run, await self._tenant_filter(tenant), by, step, item, text, stay=not and_continue
        )
        return self._revised(made, f"{step}{f' of {item}' if item else ''} in run {run}")

    async def skip(
        self, run: UUID, step: str, items: Sequence[str], *, tenant: str | None = None, by: str = "client"
    ) -> Revision:
        """Leave out items that a person does not want, in a run that is over, and make anew what joins them."""
        made = await revisions.skip(self.database, run, await self._tenant_filter(tenant), by, step, items)
        return self._revised(made, f"any of these items of {step} in run {run}")

    async def reviews(
        self,
        *,
        tenant: str | None = None,
        run: UUID | None = None,
        pipeline: str | None = None,
        step: str | None = None,
        assignee: str | None = None,
        states: Sequence[ReviewState] | None = (ReviewState.OPEN,),
        after: Review | None = None,
        limit: int = 50,
    ) -> list[Review]:
        """What waits for people, the oldest first. For the next page give the last one as `after`."""
        return await reviews.listed(
            self.database,
            tenant=await self._tenant_filter(tenant),
            run=run,
            pipeline=pipeline,
            step=step,
            assignee=assignee,
            states=states,
            after=after,
            limit=limit,
        )

    async def review(self, review: UUID, *, tenant: str | None = None) -> Review:
        found = await reviews.listed(self.database, ids=[review], tenant=await self._tenant_filter(tenant))
        if not found:
            raise NotFound(f"there is no review {review}")
        return found[0]

    async def find_review(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest reviews whose ids begin like this; dashes and case do not matter."""
        ids = _range(prefix)
        return [] if ids is None else await reviews.between(self.database, *ids, limit)

    async def review_counts(self, *, tenant: str | None = None) -> list[ReviewCount]:
        """How many reviews are open, by pipeline and step."""
        return await reviews.counts(self.database, await self._tenant_filter(tenant))

    async def review_figures(self, pipeline: str, since: datetime) -> ReviewFigures:
        """What the planned reviews of a pipeline have come to since then."""
        return await reviews.figures(self.database, pipeline, since)

    async def pipeline_figures(self, pipeline: str, since: datetime, *, without: Sequence[str] = ()) -> PipelineFigures:
        """What the runs of a pipeline that ended since then have come to. The time of the steps `without` is not
        counted, as that of reviews is not."""
        return await gauges.of_pipeline(self.database, pipeline, since, without)

    async def subjects(self, review: Review) -> dict[str, Subject]:
        """The results that a person is asked about, by step."""
        return {subject.step: subject for subject in await reviews.subjects(self.database, review.id)}

    async def decide(self, review: UUID, decision: Decision, *, tenant: str | None = None) -> Review:
        """Decide a review; the first decision wins. Gives the review as it stands.

        Raises AlreadyDecided with the winner, Conflict if another revision was seen, and InvalidInput if what was given
        does not fit; then the review stays open.
        """
        found = await self.review(review, tenant=tenant)
        pipeline = self.app.pipelines.get(found.pipeline) if self.app else None
        await review_rules.decide(self.database, found, await self._tenant_filter(tenant), decision, pipeline)
        self._starter.tell_of_work()
        return await self.review(review)

    async def decide_many(self, decisions: Mapping[UUID, Decision], *, tenant: str | None = None) -> list[Decided]:
        """Many single decisions, each with an outcome of its own."""
        return [await self._decided(review, decision, tenant) for review, decision in decisions.items()]

    async def undo(self, review: UUID, *, by: str, tenant: str | None = None) -> Review:
        """Take a decision back before it takes effect. Raises Conflict if that is too late."""
        undone = await reviews.undo(self.database, review, await self._tenant_filter(tenant), by)
        if undone is None:
            raise NotFound(f"there is no review {review}")
        if not undone:
            raise Conflict(f"the decision on review {review} has taken effect, or there is none: it cannot be undone")
        return await self.review(review)

    async def claim_review(
        self, review: UUID, *, by: str, lasts: timedelta = REVIEW_CLAIM, tenant: str | None = None
    ) -> str | None:
        """Let others see that this person looks at it. Gives who does; it keeps nobody from deciding."""
        return await reviews.claim(self.database, review, await self._tenant_filter(tenant), by, lasts)

    async def assign_review(self, review: UUID, assignee: str | None, *, by: str, tenant: str | None = None) -> Review:
        if not await reviews.assign(self.database, review, await self._tenant_filter(tenant), assignee, by):
            raise Conflict(f"review {review} is not open")
        return await self.review(review)

    async def _decided(self, review: UUID, decision: Decision, tenant: str | None) -> Decided:
        try:
            return Decided(review, await self.decide(review, decision, tenant=tenant))
        except RetomaError as error:
            return Decided(review, error=error)

    async def _chosen_steps(self, run: Run, steps: Sequence[str], group: str | None, after: str | None) -> list[str]:
        known = (await self.graph(run)).names
        pipeline = self.app.pipelines.get(run.pipeline) if self.app else None
        groups = pipeline.groups if pipeline else {}
        if group is not None and group not in groups:
            raise NotFound(f"pipeline {run.pipeline!r} has no group {group!r}; {suggestion(group, groups)}")
        chosen = [*steps, *(groups[group] if group else ()), *([after] if after else ())]
        if not chosen:
            raise InvalidInput("say what is to be made anew: steps, a group, or everything that is stale")
        for step in chosen:
            if step not in known:
                raise NotFound(f"run {run.id} has no step {step!r}; {suggestion(step, known)}")
        return chosen

    async def stuck(self, *, tenant: str | None = None, run: UUID | None = None, limit: int = 100) -> list[Stuck]:
        """Runs that should go on and do not, the longest first."""
        return await watchdog.listed(self.database, await self._tenant_filter(tenant), run, limit)

    async def resumes(self, run: UUID) -> int:
        """How often this run was resumed by itself since it last progressed."""
        return await watchdog.resumes(self.database, run)

    async def resume(self, run: UUID, *, tenant: str | None = None, by: str = "client") -> RunState:
        """Let a run go on that is stuck or has failed: from where it stood, with all results that it has.

        Gives the run's state; for one that goes on already it changes nothing. Raises AtWork for a run that has
        ended in another way.
        """
        state = await watchdog.resume(
            self.database, run, await self._tenant_filter(tenant), by, automatic=False, pause=FIRST_PAUSE
        )
        if state is None:
            raise NotFound(f"there is no run {run}")
        if state is RunState.FAILED:
            await self.rerun_failed(run, tenant=tenant, by=by)
            return RunState.RUNNING
        if state.is_over or state is RunState.CANCELLING:
            raise AtWork(f"run {run} is {state}: only a run that is stuck or has failed can be resumed")
        self._starter.tell_of_work()
        return state

    async def _check_ended(self, run: Run, step: str, item: str) -> None:
        name = f"{step}{f' of {item}' if item else ''} in run {run.id}"
        newest = await self.made(run.id, step, item, limit=1)
        if newest and newest[0].state in JOB_ENDS:
            return
        if newest or (not run.is_over and step in (await self.graph(run)).names):
            raise AtWork(f"{name} has not ended yet: put its result right when it has")
        raise NotFound(f"there is no {name}")

    def _fitting(self, pipeline: str, step: str, text: str) -> str:
        defined = self.app.pipelines.get(pipeline) if self.app else None
        if defined is None or step not in defined.steps:
            return text
        codec = codec_of(defined.steps[step].returns)
        try:
            return codec.encode(codec.decode(text))
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"this is no result of {step!r}: {error}") from error

    def _revised(self, made: Revision | None, what: str) -> Revision:
        if made is None:
            raise NotFound(f"there is no {what}")
        if made.jobs:
            self._starter.tell_of_work()
        return made

    async def pools(self, name: str | None = None) -> list[PoolRecord]:
        """All pools, or the one of this name."""
        return await pools.listed(self.database, name)

    async def set_pool(
        self,
        name: str,
        *,
        capacity: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
        per_tenant: int | None = None,
        resume: bool = False,
    ) -> PoolRecord:
        """Change a pool while it is in use: holders may finish, and waiters begin at once if there is room.

        A `rate` of 0 means none, as does `per_tenant`, the most that one tenant holds; `resume` ends a pause that a
        provider asked for.
        """
        numbers = {"capacity": capacity, "rate": rate, "burst": burst, "per_tenant": per_tenant}
        for what, given in numbers.items():
            if given is not None and not (what == "burst") <= given <= LARGEST_CAPACITY:
                raise InvalidInput(f"a pool's {what} goes up to {LARGEST_CAPACITY:,}; given: {given!r:.40}")
        if rate and rate < LOWEST_RATE:
            raise InvalidInput(f"a pool's rate is 0, for none, or at least {LOWEST_RATE:f}; given: {rate!r}")
        if not await pools.set_numbers(self.database, name, **numbers, resume=resume):  # type: ignore[arg-type]
            raise NotFound(f"there is no pool {name!r}")
        self._starter.tell_of_work()
        (found,) = await self.pools(name)
        return found

    async def charges(self, run: UUID, *, after: UUID | None = None, limit: int = 1_000) -> list[ChargeRecord]:
        """What the attempts of a run have used, failed ones too, in order. For the next page give the last id."""
        return await charges.of_run(self.database, run, after, limit)

    async def charge_totals(
        self,
        *,
        by: Sequence[ChargedBy] = ("step",),
        run: UUID | None = None,
        tenant: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1_000,
    ) -> list[ChargeTotal]:
        """Sums of charges, told apart by these, the most costly first."""
        owner = await self._tenant_filter(tenant)
        return await charges.totals(self.database, by=by, run=run, tenant=owner, since=since, until=until, limit=limit)

    async def spent(self, tenant: str | None = None, since: datetime | None = None) -> int:
        """Millionths of a US dollar that a tenant, or all, have spent, in all or since then."""
        return sum(total.micros for total in await self.charge_totals(by=(), tenant=tenant, since=since))

    async def prices(self) -> list[Price]:
        """Every version of every price, the newest first."""
        return await charges.prices(self.database)

    async def set_price(
        self, provider: str, what: str, *, tokens_in: int = 0, tokens_out: int = 0, unit: int = 0
    ) -> Price:
        """A new version of a price, in millionths of a US dollar: for a million tokens, and for one unit.

        What was charged before stays as it is.
        """
        for name, given in (("tokens_in", tokens_in), ("tokens_out", tokens_out), ("unit", unit)):
            if not 0 <= given <= HIGHEST_PRICE:
                raise InvalidInput(f"a price is 0 to {HIGHEST_PRICE:,} micro-dollars; {name} is {given!r:.40}")
        if not _is_name(provider) or not _is_name(what):
            raise InvalidInput(f"a price is of a provider and of what it gives: names of up to {LONGEST_NAME} letters")
        return await charges.set_price(
            self.database, provider, what, tokens_in=tokens_in, tokens_out=tokens_out, unit=unit
        )

    async def outside(self, run: UUID) -> list[Outside]:
        """The work of this run that is or was done outside."""
        return await outside.of_run(self.database, run)

    async def call_back(self, token: str, body: Any = None) -> bool:
        """The outside calls the one-time address of a parked job. False if it did before.

        Raises NotFound if there is no such callback, or not any more.
        """
        answer = await outside.call_back(self.database, hashlib.sha256(token.encode()).digest(), json.dumps(body))
        if answer == "expired":
            raise Gone("this callback came too late: its time has passed")
        if answer == "unknown":
            raise NotFound("there is no such callback")
        self._starter.tell_of_work()
        return answer == "taken"

    async def workers(self) -> list[WorkerRecord]:
        """The workers that live."""
        return await workers.listed(self.database)

    async def figures(self) -> Figures:
        """What metrics show, of all tenants, as it was at most a second ago."""
        return await self._figures.read()

    async def standing(self) -> Standing:
        """The part of the figures that people look at, as it was at most a second ago; it costs less."""
        return await self._standing.read()

    async def queues(self) -> list[QueueFigures]:
        """Every queue that a step is on or a worker serves, as it was at most a second ago."""
        return (await self.figures()).queues

    async def estimate(self, run: UUID) -> datetime | None:
        """When the run will be over if its items keep their pace; None while nothing tells."""
        steps = await runs.progress(self.database, run)
        return estimate.end_of(steps, await clock.now(self.database))

    async def make_key(
        self,
        name: str,
        scopes: Iterable[Scope | str],
        *,
        tenant: str | None = None,
        expires_at: datetime | None = None,
    ) -> NewKey:
        """A new API key, whose secret only this answer has. Without a tenant it is for all of them.

        Raises Conflict if two keys of this name live already.
        """
        _check(tenant=name if tenant is None else tenant, key=name, priority=0, run_at=expires_at)
        owner = None if tenant is None else (await self._tenants.id_of(tenant), tenant)
        return await keys.make(self.database, name, map(Scope, scopes), owner, expires_at)

    async def keys(self, *, tenant: str | None = None, with_ended: bool = False) -> list[KeyRecord]:
        """API keys, newest first; `with_ended` also those that are revoked or expired."""
        return await keys.listed(self.database, tenant, with_ended)

    async def revoke_key(self, key: int) -> KeyRecord:
        """From now on every server refuses it, after a second at most."""
        return await keys.revoke(self.database, key)

    async def rotate_key(self, key: int, *, overlap: timedelta = OVERLAP) -> NewKey:
        """A key that replaces this one, which stays valid for `overlap`."""
        former = await keys.shown(self.database, key)
        made = await self.make_key(
            former.name,
            former.scopes,
            tenant=former.tenant,
            expires_at=await keys.successor_expiry(self.database, former),
        )
        await keys.let_expire(self.database, key, overlap)
        return made

    async def key_of(self, secret: str) -> KeyRecord | None:
        """The live key that this secret is, if it is one."""
        return await keys.of_secret(self.database, secret)

    async def deliveries(
        self,
        *,
        tenant: str | None = None,
        states: Sequence[DeliveryState] | None = None,
        run: UUID | None = None,
        endpoint: int | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[Delivery]:
        """Webhooks that are or were owed, newest first; the dead ones are the dead letters."""
        return await deliveries.listed(
            self.database,
            tenant=await self._tenant_filter(tenant),
            states=states,
            run=run,
            endpoint=endpoint,
            before=before,
            limit=limit,
        )

    async def delivery(self, delivery: UUID, *, tenant: str | None = None) -> Delivery:
        """One webhook with its body and every attempt."""
        found = await deliveries.shown(self.database, delivery, await self._tenant_filter(tenant))
        if found is None:
            raise NotFound(f"there is no delivery {delivery}")
        return found

    async def find_delivery(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest deliveries whose ids begin like this; dashes and case do not matter."""
        ids = _range(prefix)
        return [] if ids is None else await deliveries.between(self.database, *ids, limit)

    async def redrive(self, delivery: UUID, *, tenant: str | None = None) -> None:
        """Let a dead webhook be sent again, with the same id and body. Raises Conflict if it is not dead, or if its
        endpoint is disabled."""
        owner = await self._tenant_filter(tenant)
        if await deliveries.redrive(self.database, tenant=owner, id=delivery):
            return
        found = await self.delivery(delivery, tenant=tenant)
        if found.state is not DeliveryState.DEAD:
            raise Conflict(f"delivery {delivery} is {found.state}: only a dead one is sent again")
        raise Conflict(f"endpoint {found.endpoint} of delivery {delivery} is disabled: enable it first")

    async def redrive_all(
        self,
        *,
        tenant: str | None = None,
        endpoint: int | None = None,
        url: str | None = None,
        from_at: datetime | None = None,
        to_at: datetime | None = None,
    ) -> int:
        """The same for all dead webhooks of an endpoint or a URL, or made within a time; gives how many.

        Those of disabled endpoints stay dead.
        """
        return await deliveries.redrive(
            self.database,
            tenant=await self._tenant_filter(tenant),
            endpoint=endpoint,
            url=url,
            from_at=from_at,
            to_at=to_at,
        )

    async def endpoints(
        self, *, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[Endpoint]:
        """The URLs that webhooks went to, newest first."""
        owner = await self._tenant_filter(tenant)
        return await deliveries.endpoints(self.database, tenant=owner, before=before, limit=limit)

    async def endpoint(self, endpoint: int, *, tenant: str | None = None) -> Endpoint:
        found = await deliveries.endpoints(self.database, id=endpoint, tenant=await self._tenant_filter(tenant))
        if not found:
            raise NotFound(f"there is no endpoint {endpoint}")
        return found[0]

    async def enable_endpoint(self, endpoint: int, *, tenant: str | None = None) -> None:
        """Send to it again what will be owed from now on; what is dead is for `redrive_all`."""
        if not await deliveries.enable(self.database, endpoint, await self._tenant_filter(tenant)):
            raise NotFound(f"there is no endpoint {endpoint}")

    async def rotate_secret(
        self, endpoint: int, *, tenant: str | None = None, overlap: timedelta = SECRETS_OVERLAP
    ) -> str:
        """A new secret for the webhooks of this endpoint's tenant to its host, shown only now.

        The former one signs beside it for `overlap`.
        """
        secret = new_secret()
        owner = await self._tenant_filter(tenant)
        if await deliveries.rotate(self.database, endpoint, owner, secret, overlap) is None:
            raise NotFound(f"there is no endpoint {endpoint}")
        return secret

    def _hook(self, webhook: Webhook | None) -> str | None:
        """As the database takes it. Raises UnsafeUrl if its URL must not be called."""
        return None if webhook is None else recorded(webhook, self.guard.check(webhook.url).origin)

    def _own(self, pipeline: Pipeline | str) -> Pipeline:
        if self.app is None:
            raise NotFound("this client has no application, so it knows no pipelines: give one to `connect`")
        return self.app.pipeline(pipeline if isinstance(pipeline, str) else pipeline.name)

    async def _version_of(self, pipeline: Pipeline) -> int:
        if pipeline.name not in self._versions:
            self._versions[pipeline.name] = await versions.register(self.database, pipeline)
        return self._versions[pipeline.name]

    async def _tenant_filter(self, tenant: str | None) -> int | None:
        """The tenant's id, or one that nobody has: looking makes no tenant."""
        return None if tenant is None else await self._tenants.known_id(tenant) or NOBODY

    async def _why(self, run: Run) -> str:
        errors = await self.errors(run.id)
        said = "; ".join(
            f"{step}{f' of {item}' if item else ''}: {error.get('message') or error.get('code')}"
            for (step, item), error in list(errors.items())[:3]
        )
        return f"run {run.id} of {run.pipeline!r} ended as {run.state}{f': {said}' if said else ''}"


@asynccontextmanager
async def connect(app: App | None, settings: Settings | None = None) -> AsyncIterator[Client]:
    """A client on the database that the settings name, with its schema brought to this release."""
    settings = settings or Settings()
    async with await Database.open(settings) as database:
        await database.upgrade()
        client = Client(app, database, Guard.of(settings))
        try:
            yield client
        finally:
            await client.close()


def _range(prefix: str) -> tuple[UUID, UUID] | None:
    """The first and the last id that begin like this."""
    digits = prefix.strip().lower().replace("-", "")
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def _validated(pipeline: Pipeline, given: Input) -> BaseModel | None:
    """The input, after its model accepted it."""
    if pipeline.inputs is None:
        if given:
            raise InvalidInput(f"pipeline {pipeline.name!r} takes no input")
        return None
    if isinstance(given, pipeline.inputs):
        return given
    try:
        plain = given.model_dump() if isinstance(given, BaseModel) else dict(given or {})
        return pipeline.inputs.model_validate(plain)
    except ValidationError as error:
        raise InvalidInput(f"pipeline {pipeline.name!r} refuses this input: {_said(error)}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"pipeline {pipeline.name!r} takes its input as a dictionary or a model: {error}") from error


async def _all_validated(pipeline: Pipeline, given: Sequence[Input]) -> list[BaseModel | None]:
    """In parts, so that others on this loop need not wait for the last of many."""
    inputs: list[BaseModel | None] = []
    for first in range(0, len(given), INPUTS_AT_A_TIME):
        inputs += [_validated(pipeline, one) for one in given[first : first + INPUTS_AT_A_TIME]]
        await asyncio.sleep(0)
    return inputs


def _touched(pipeline: Pipeline, given: Mapping[str, Any], former: Mapping[str, Any]) -> list[str]:
    """The steps that take a field whose value is another now, those that publish, and the reviews that let them."""
    changed = {name for name in given.keys() | former.keys() if given.get(name) != former.get(name)}
    taking = [step.name for step in pipeline.steps.values() if changed & set(step.inputs)]
    publishing = [step.name for step in pipeline.steps.values() if step.policy.publishes]
    asked = pipeline.graph.above(publishing) & {step.name for step in pipeline.steps.values() if step.review}
    last = asked - pipeline.graph.above(asked)
    return list(dict.fromkeys([*taking, *publishing, *last]))


def _encoded(value: Any) -> str:
    try:
        text = json.dumps(to_jsonable_python(value), allow_nan=False)
    except ValueError as error:
        raise InvalidInput(f"this result cannot be JSON: {error}") from error
    if len(text) > LARGEST_RESULT:  # written so that each letter that is not ASCII takes six
        raise InvalidInput(f"this result is {len(text):,} bytes of JSON, over the limit of {LARGEST_RESULT:,}")
    return text


def _json(inputs: BaseModel | None) -> str:
    """So that the model can read it again, by alias and without what it computes."""
    try:
        return "{}" if inputs is None else inputs.model_dump_json(by_alias=True, round_trip=True)
    except ValueError as error:
        raise InvalidInput(f"this input cannot be JSON: {error}") from error


def _check(*, tenant: str, key: str | None, priority: int, run_at: datetime | None) -> None:
    for what, name in (("tenant", tenant), ("key", key)):
        if name is not None and not _is_name(name):
            raise InvalidInput(f"a {what} is 1 to {LONGEST_NAME} characters of text; given: {name!r:.80}")
    if not isinstance(priority, int) or abs(priority) > HIGHEST_PRIORITY:
        raise InvalidInput(f"a priority is a whole number up to {HIGHEST_PRIORITY}; given: {priority!r:.80}")
    if run_at is not None and (run_at.tzinfo is None or run_at.year > LAST_YEAR):
        raise InvalidInput(f"run_at is a time with its zone, up to the year {LAST_YEAR}; given: {run_at}")


def _check_limits(resumes: int | None, retries: int | None, deadline: timedelta | None) -> None:
    for what, number in (("resumes", resumes), ("retries", retries)):
        if number is not None and not 0 <= number <= MOST_RESUMES:
            raise InvalidInput(f"{what} are a number from 0 to {MOST_RESUMES}; given: {number!r:.40}")
    if deadline is not None and not timedelta(0) < deadline <= LONGEST_DEADLINE:
        raise InvalidInput(
            f"a deadline is above zero and at most {LONGEST_DEADLINE.days} days; given: {deadline!r:.60}"
        )


def _is_name(given: object) -> bool:
    """Whether PostgreSQL can hold it: neither NUL nor half a character."""
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST_NAME:
        return False
    return "\0" not in given and not any("\ud800" <= character <= "\udfff" for character in given)


def _said(error: ValidationError) -> str:
    """Field by field, on one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}".lstrip(": ") for each in error.errors())


def _digest(inputs: BaseModel | None) -> bytes:
    """Of what the caller gave, in one form: neither defaults nor the order of keys or of a set matter."""
    given = {} if inputs is None else inputs.model_dump(exclude_unset=True, exclude_defaults=True)
    return hashlib.sha256(json.dumps(_canonical(given), sort_keys=True).encode()).digest()


def _digest_of_all(inputs: Sequence[BaseModel | None]) -> bytes:
    return hashlib.sha256(b"".join(map(_digest, inputs))).digest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_canonical(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return to_jsonable_python(value, fallback=repr)
