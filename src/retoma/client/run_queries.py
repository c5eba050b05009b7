"""The queries of `client.runs`: runs, their jobs, items, errors and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from retoma.client.core import NO_TENANT, Namespace, as_list
from retoma.client.validation import check_name, check_revision, check_start_options, is_name
from retoma.define.graph import Graph
from retoma.define.pipeline import Pipeline
from retoma.engine import end_estimate, versions, wait_reasons
from retoma.errors import NotFound
from retoma.identifiers import first_run_id
from retoma.records import (
    ErrorCounts,
    Event,
    FailedAttempt,
    ItemStatus,
    ItemTotals,
    Job,
    Orphan,
    Run,
    StepProgress,
    StuckRun,
    Wait,
    WaitingRetry,
    WaitReason,
)
from retoma.records.external_work import parse_orphan_cursor
from retoma.states import JobState, ReviewState, RunState
from retoma.store import bulk_actions, clock, effects, event_stream, items, reviews, runs, watchdog
from retoma.store.id_prefixes import find_by_prefix
from retoma.store.items import ItemFilter
from retoma.store.reviews import ReviewFilter
from retoma.store.runs import RunFilter
from retoma.store.tenants import DEFAULT

MAX_TITLES_SEARCHED = 10_000


class RunQueries(Namespace):
    async def get(self, run: UUID, *, tenant: str | None = None, with_input: bool = True) -> Run:
        """Return a run. With `with_input=False` its `input`, which may be large, is None."""
        found = await runs.get_run(self._database, run, await self._core.find_tenants(tenant), with_input=with_input)
        if found is None:
            await self._core.find_owner("run", run)  # raises RoleMissing if it is visible
            raise NotFound(f"there is no run {run}")
        return found

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """Return the newest runs whose ids start with `prefix`, ignoring dashes and case."""
        return await find_by_prefix(self._database, "runs", prefix, await self._core.find_tenants(), limit)

    async def find_by_title(self, text: str, *, limit: int = 5) -> list[UUID]:
        """Return the newest runs whose titles contain this text. Case does not matter.

        A text that begins within a word is found only in the newest 10,000 runs.
        """
        if not is_name(text := text.strip()):
            return []
        return [run.id for run in await self.list(title=text, limit=limit, with_input=False)]

    async def find_by_key(self, key: str, pipeline: Pipeline | str, *, tenant: str = DEFAULT) -> UUID | None:
        """Return the run that was started with this key, if any."""
        check_start_options(tenant=tenant, key=key, priority=0, run_at=None)
        owner = next(iter(await self._core.find_tenants(tenant) or ()), NO_TENANT)
        return await runs.find_by_key(self._database, owner, self._core.get_pipeline(pipeline).name, key)

    async def get_start_times(self, ids: Iterable[UUID]) -> dict[UUID, datetime]:
        """Return when work started in these runs: the first attempt, or with pools, the first attempt with its slots.

        Runs without an attempt are left out.
        """
        return await runs.get_start_times(self._database, ids, await self._core.find_tenants())

    async def count_children(self, run: UUID, *, tenant: str | None = None) -> dict[RunState, int]:
        """Return the number of child runs in each state that occurs; with `tenant`, only those of this tenant."""
        return await runs.count_children(self._database, run, await self._core.find_tenants(tenant))

    async def list_retries(
        self,
        *,
        tenant: str | None = None,
        pipeline: str | Sequence[str] | None = None,
        queue: str | None = None,
        step: str | None = None,
        code: str | None = None,
        limit: int = 50,
    ) -> list[WaitingRetry]:
        """Return jobs that wait for their next attempt, the next one first; `code` is why the last one failed."""
        tenants = await self._core.find_tenants(tenant)
        return await bulk_actions.list_retries(
            self._database, tenants=tenants, pipelines=as_list(pipeline), queue=queue, step=step, code=code, limit=limit
        )

    async def get_progress(self, run: UUID) -> list[StepProgress]:
        await self._core.check_run(run)
        return await runs.get_progress(self._database, run)

    async def estimate_end(self, run: UUID) -> datetime | None:
        """Return when the run will end if its items keep their pace.

        None as long as there is no basis for an estimate, the run waits for people, or it is stuck.
        """
        found = await self.get(run, with_input=False)
        waits_for_people = ReviewFilter(run=run, states=[ReviewState.OPEN], limit=1)
        if found.state is RunState.STUCK or await reviews.list_reviews(self._database, waits_for_people):
            return None
        steps = await runs.get_progress(self._database, run)
        return end_estimate.estimate_end(steps, await clock.now(self._database))

    async def list_waits(self, run: UUID) -> list[Wait]:
        """Return why jobs that could run do not."""
        await self._core.check_run(run)
        return await wait_reasons.list_waits(self._database, run, self._core.heartbeat_timeout)

    async def find_missing_worker(self, run: UUID) -> Wait | None:
        """Return the jobs of this run that wait because no running worker serves their queue, or None."""
        return next((wait for wait in await self.list_waits(run) if wait.reason is WaitReason.NO_WORKER), None)

    async def list_orphans(
        self, run: UUID | None = None, *, tenant: str | None = None, after: str | None = None, limit: int = 1_000
    ) -> list[Orphan]:
        """Return effects that jobs without a result left behind and that only a person can resolve, oldest first.

        Of a run, including resolved ones; without a run, those of all runs that nobody has resolved. For the next page
        pass the last `cursor` as `after`.
        """
        tenants = await self._core.find_tenants(tenant)
        key = None if after is None else parse_orphan_cursor(after)
        return await effects.list_orphans(self._database, run, tenants, key, limit)

    async def list_stuck(
        self, *, tenant: str | None = None, run: UUID | None = None, limit: int = 100
    ) -> list[StuckRun]:
        """Return runs without progress, the longest stuck first."""
        return await watchdog.list_stuck(self._database, await self._core.find_tenants(tenant), run, limit)

    async def count_resumes(self, run: UUID) -> int:
        """Return how often this run was resumed automatically since its last progress."""
        await self._core.check_run(run)
        return await watchdog.count_resumes(self._database, run)

    async def get_results(self, run: UUID, *, revision: int | None = None) -> dict[str, Any]:
        """Return the current results by step, or those of a revision; for an `each` step, a dictionary by item."""
        check_revision(revision)
        await self._core.check_run(run)
        return await runs.get_results(self._database, run, revision)

    async def get_errors(
        self, run: UUID, *, revision: int | None = None, limit: int | None = None, with_stack: bool = True
    ) -> dict[tuple[str, str], Any]:
        """Return the newest error of each job by step and item, up to a revision if one is passed.

        `retried` is true if the job has not failed: a later attempt succeeded, or is pending.
        """
        check_revision(revision)
        await self._core.check_run(run)
        return await runs.get_last_errors(self._database, run, through=revision, limit=limit, with_stack=with_stack)

    async def get_error_counts(self, run: UUID) -> ErrorCounts:
        """Count the jobs with an error: failed jobs, and jobs that were retried."""
        await self._core.check_run(run)
        return await runs.count_errors(self._database, run)

    async def get_graph(self, run: Run) -> Graph:
        """Return the graph of the run, which stays the same for its lifetime."""
        await self._core.check_run(run.id)
        return await versions.load_graph(self._database, run.version)

    async def list_jobs(self, run: UUID, *, revision: int | None = None) -> list[Job]:
        """Return the current job of each step and item, or those of a revision."""
        check_revision(revision)
        await self._core.check_run(run)
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
        """Return jobs of one step in item order. For the next page pass the last `position` as `after`."""
        await self._core.check_run(run)
        return await runs.list_jobs_of_step(
            self._database, run, step, states=states or None, item=item, after=after, limit=limit
        )

    async def list_job_events(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[Event]:
        """Return the events of one job, newest first."""
        await self._core.check_run(run)
        return await runs.list_events_of_job(self._database, run, step, item, limit)

    async def list_failed_attempts(
        self, run: UUID, step: str = "", item: str = "", *, limit: int = 500
    ) -> list[FailedAttempt]:
        """Return attempts without a result in order: of all steps with a single job, and of one item of `step`."""
        await self._core.check_run(run)
        return await runs.list_failed_attempts(self._database, run, step, item, limit)

    async def list_events(
        self, run: UUID, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Event]:
        """Return the events of a run in order, filtered by `kinds`. For the next page pass the last id as `after`."""
        await self._core.check_run(run)
        return await runs.list_events(self._database, run, kinds, after, limit)

    async def get_last_event_id(self, run: UUID) -> int:
        """Return the id of a run's newest event; 0 if it has none."""
        await self._core.check_run(run)
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
    ) -> list[ItemStatus]:
        """Return the items of `source` in order, each across all steps that iterate over them.

        `search` matches part of an item's key; `only` are keys. For the next page pass the last `position` as `after`.
        """
        wanted = ItemFilter(states or None, search, only, after, limit)
        await self._core.check_run(run)
        return await items.list_items(self._database, run, source, wanted)

    async def get_item_totals(self, run: UUID, source: str) -> ItemTotals:
        """Return the number of items by state, and the item that ended last."""
        await self._core.check_run(run)
        return await items.count_by_state(self._database, run, source)

    async def count_item_codes(self, run: UUID, source: str) -> list[tuple[str, int]]:
        """Return the number of failed items by error code, the most frequent first."""
        await self._core.check_run(run)
        return await items.count_by_code(self._database, run, source)

    async def list(
        self,
        *,
        tenant: str | None = None,
        pipeline: str | Sequence[str] | None = None,
        states: Sequence[RunState] | None = None,
        parent: UUID | None = None,
        title: str | None = None,
        before: UUID | None = None,
        since: datetime | None = None,
        limit: int = 50,
        with_input: bool = True,
    ) -> list[Run]:
        """Return runs, newest first. For the next page pass the last id as `before`; `since` filters by start.

        With `title`, only runs whose titles contain this text, whatever the case, are returned. A text that begins
        within a word is found only in the newest 10,000 runs before `before`: of the tenant, if there is one.

        `pipeline` is the name of one pipeline, or of several. With `parent`, only the child runs of that run are
        returned. With `with_input=False` the `input` of each, which may be large, is None.
        """
        check_name("title", title)
        wanted = RunFilter(
            tenants=await self._core.find_tenants(tenant),
            title=title,
            depth=MAX_TITLES_SEARCHED,
            pipelines=as_list(pipeline),
            states=states or None,
            parent=parent,
            before=before,
            first=None if since is None else first_run_id(since),
            limit=limit,
            with_input=with_input,
        )
        return await runs.list_runs(self._database, wanted)
