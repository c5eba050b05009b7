"""`client.runs`, its queries: runs, their jobs, items, errors and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from retoma.client.core import NO_TENANT, Namespace
from retoma.client.validation import check_revision, check_start_options, id_range
from retoma.define.graph import Graph
from retoma.define.pipeline import Pipeline
from retoma.engine import estimate, versions, wait_reasons
from retoma.engine.tenants import DEFAULT
from retoma.errors import NotFound
from retoma.identifiers import first_run_id
from retoma.records import (
    ErrorCounts,
    Event,
    FailedAttempt,
    Item,
    ItemTotals,
    Job,
    Run,
    StepProgress,
    Stuck,
    Wait,
    WaitReason,
)
from retoma.states import JobState, ReviewState, RunState
from retoma.store import clock, event_stream, items, reviews, runs, watchdog

_OPEN = [ReviewState.OPEN]


class RunQueries(Namespace):
    async def get(self, run: UUID, *, tenant: str | None = None, with_input: bool = True) -> Run:
        """Without its input, which may be large, the run's `input` is None."""
        found = await runs.get_run(self._database, run, await self._core.find_tenant_id(tenant), with_input=with_input)
        if found is None:
            raise NotFound(f"there is no run {run}")
        return found

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest runs whose ids begin like this; dashes and case do not matter."""
        ids = id_range(prefix)
        return [] if ids is None else await runs.find_by_id_range(self._database, *ids, limit)

    async def find_by_key(self, key: str, pipeline: Pipeline | str, *, tenant: str = DEFAULT) -> UUID | None:
        """The run that this key has started, if any."""
        check_start_options(tenant=tenant, key=key, priority=0, run_at=None)
        owner = await self._core.tenants.find_id(tenant) or NO_TENANT
        return await runs.find_by_key(self._database, owner, self._core.get_pipeline(pipeline).name, key)

    async def get_start_times(self, ids: Iterable[UUID]) -> dict[UUID, datetime]:
        """When work began in these runs: the first attempt, or where steps need pools, the first that got its slots.

        Runs in which none has begun are left out.
        """
        return await runs.get_start_times(self._database, ids)

    async def get_progress(self, run: UUID) -> list[StepProgress]:
        return await runs.get_progress(self._database, run)

    async def estimate_end(self, run: UUID) -> datetime | None:
        """When the run will be over if its items keep their pace.

        None while nothing tells, and while its end depends on people or on a cause that holds it up.
        """
        found = await self.get(run, with_input=False)
        if found.state is RunState.STUCK or await reviews.list_reviews(self._database, run=run, states=_OPEN, limit=1):
            return None
        steps = await runs.get_progress(self._database, run)
        return estimate.estimate_end(steps, await clock.now(self._database))

    async def list_waits(self, run: UUID) -> list[Wait]:
        """Why what could run does not."""
        return await wait_reasons.list_waits(self._database, run, self._core.heartbeat_timeout)

    async def find_missing_worker(self, run: UUID) -> Wait | None:
        """Return what waits in this run because no live worker serves its queue, or None if nothing does."""
        return next((wait for wait in await self.list_waits(run) if wait.reason is WaitReason.NO_WORKER), None)

    async def list_stuck(self, *, tenant: str | None = None, run: UUID | None = None, limit: int = 100) -> list[Stuck]:
        """Runs that should go on and do not, the longest first."""
        return await watchdog.list_stuck(self._database, await self._core.find_tenant_id(tenant), run, limit)

    async def count_resumes(self, run: UUID) -> int:
        """How often this run was resumed by itself since it last progressed."""
        return await watchdog.count_resumes(self._database, run)

    async def get_results(self, run: UUID, *, revision: int | None = None) -> dict[str, Any]:
        """The current results by step, or those of a revision; of an `each` step, a dictionary by item."""
        check_revision(revision)
        return await runs.get_results(self._database, run, revision)

    async def get_errors(
        self, run: UUID, *, revision: int | None = None, limit: int | None = None, with_stack: bool = True
    ) -> dict[tuple[str, str], Any]:
        """What the newest failure or retry of each job said, or that through a revision, by step and item.

        `retried` is true if the job has not failed: a later attempt succeeded, or is still to come.
        """
        check_revision(revision)
        return await runs.get_last_errors(self._database, run, through=revision, limit=limit, with_stack=with_stack)

    async def count_errors(self, run: UUID) -> int:
        """How many jobs `errors` is about."""
        counts = await self.get_error_counts(run)
        return counts.failed + counts.recovered

    async def get_error_counts(self, run: UUID) -> ErrorCounts:
        """Count the jobs that `errors` is about: those that have failed, and those that were retried."""
        return await runs.count_errors(self._database, run)

    async def get_graph(self, run: Run) -> Graph:
        """The shape that this run keeps."""
        return await versions.load_graph(self._database, run.version)

    async def list_jobs(self, run: UUID, *, revision: int | None = None) -> list[Job]:
        """The current job of each step and item, or that of a revision."""
        check_revision(revision)
        return await runs.list_jobs(self._database, run, revision)

    async def list_step_jobs(
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
        return await runs.list_jobs_of_step(
            self._database, run, step, states=states, item=item, after=after, limit=limit
        )

    async def list_job_events(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[Event]:
        """What happened to one job, the newest first."""
        return await runs.list_events_of_job(self._database, run, step, item, limit)

    async def list_failed_attempts(
        self, run: UUID, step: str = "", item: str = "", *, limit: int = 500
    ) -> list[FailedAttempt]:
        """Attempts that gave no result, in their order: of the steps that have one job, and of one item of `step`."""
        return await runs.list_failed_attempts(self._database, run, step, item, limit)

    async def list_events(
        self, run: UUID, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Event]:
        """What happened in a run, in order; with `kinds` only that. For the next page give the last id as `after`."""
        return await runs.list_events(self._database, run, kinds, after, limit)

    async def get_last_event_id(self, run: UUID) -> int:
        """The number of a run's newest event; 0 if it has none."""
        return await event_stream.get_last_event_id(self._database, run)

    async def list_items(
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
        return await items.list_items(
            self._database, run, source, states=states, search=search, only=only, after=after, limit=limit
        )

    async def get_item_totals(self, run: UUID, source: str) -> ItemTotals:
        """How many items are in which state, and which had the last result."""
        return await items.count_by_state(self._database, run, source)

    async def count_item_codes(self, run: UUID, source: str) -> list[tuple[str, int]]:
        """How many items failed with which code, the most frequent first."""
        return await items.count_by_code(self._database, run, source)

    async def list(
        self,
        *,
        tenant: str | None = None,
        pipeline: str | None = None,
        states: Sequence[RunState] | None = None,
        before: UUID | None = None,
        since: datetime | None = None,
        limit: int = 50,
        with_input: bool = True,
    ) -> list[Run]:
        """Runs, newest first, of those that were started `since`. For the next page give the last id as `before`.

        Without their inputs, which may be large, the `input` of each is None.
        """
        return await runs.list_runs(
            self._database,
            tenant=await self._core.find_tenant_id(tenant),
            pipeline=pipeline,
            states=states,
            before=before,
            first=None if since is None else first_run_id(since),
            limit=limit,
            with_input=with_input,
        )
