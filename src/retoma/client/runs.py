"""Looking at runs, their jobs, items, events and files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from retoma.client.base import Base
from retoma.client.validation import check_revision, id_range
from retoma.define.file import File, find_files
from retoma.define.graph import Graph
from retoma.engine import estimate, versions, wait_reasons
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
MAX_FILE_MENTIONS = 20  # of a file in the data of a run


class Runs(Base):
    async def show(self, run: UUID, *, tenant: str | None = None, with_input: bool = True) -> Run:
        """Without its input, which may be large, the run's `input` is None."""
        found = await runs.get_run(self.database, run, await self._tenant_filter(tenant), with_input=with_input)
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
        with_input: bool = True,
    ) -> list[Run]:
        """Runs, newest first, of those that were started `since`. For the next page give the last id as `before`.

        Without their inputs, which may be large, the `input` of each is None.
        """
        return await runs.list_runs(
            self.database,
            tenant=await self._tenant_filter(tenant),
            pipeline=pipeline,
            states=states,
            before=before,
            first=None if since is None else first_run_id(since),
            limit=limit,
            with_input=with_input,
        )

    async def find(self, prefix: str, *, limit: int = 5) -> list[UUID]:
        """The newest runs whose ids begin like this; dashes and case do not matter."""
        ids = id_range(prefix)
        return [] if ids is None else await runs.find_by_id_range(self.database, *ids, limit)

    async def began(self, ids: Iterable[UUID]) -> dict[UUID, datetime]:
        """When work began in these runs: the first attempt, or where steps need pools, the first that got its slots.

        Runs in which none has begun are left out.
        """
        return await runs.get_start_times(self.database, ids)

    async def wait(self, run: UUID, timeout: timedelta | None = None) -> Run:
        """The run once it is over. Raises TimeoutError if it is not over in time."""
        await self.show(run)
        await self._waiter.wait_until_over(run, timeout)
        return await self.show(run)

    async def progress(self, run: UUID) -> list[StepProgress]:
        return await runs.get_progress(self.database, run)

    async def estimate(self, run: UUID) -> datetime | None:
        """When the run will be over if its items keep their pace.

        None while nothing tells, and while its end depends on people or on a cause that holds it up.
        """
        found = await self.show(run, with_input=False)
        if found.state is RunState.STUCK or await reviews.list_reviews(self.database, run=run, states=_OPEN, limit=1):
            return None
        steps = await runs.get_progress(self.database, run)
        return estimate.estimate_end(steps, await clock.now(self.database))

    async def waits(self, run: UUID) -> list[Wait]:
        """Why what could run does not."""
        return await wait_reasons.list_waits(self.database, run, self.heartbeat_timeout)

    async def lacks_worker(self, run: UUID) -> Wait | None:
        """Return what waits in this run because no live worker serves its queue, or None if nothing does."""
        return next((wait for wait in await self.waits(run) if wait.reason is WaitReason.NO_WORKER), None)

    async def stuck(self, *, tenant: str | None = None, run: UUID | None = None, limit: int = 100) -> list[Stuck]:
        """Runs that should go on and do not, the longest first."""
        return await watchdog.list_stuck(self.database, await self._tenant_filter(tenant), run, limit)

    async def resumes(self, run: UUID) -> int:
        """How often this run was resumed by itself since it last progressed."""
        return await watchdog.count_resumes(self.database, run)

    async def results(self, run: UUID, *, revision: int | None = None) -> dict[str, Any]:
        """The current results by step, or those of a revision; of an `each` step, a dictionary by item."""
        check_revision(revision)
        return await runs.get_results(self.database, run, revision)

    async def errors(
        self, run: UUID, *, revision: int | None = None, limit: int | None = None, with_stack: bool = True
    ) -> dict[tuple[str, str], Any]:
        """What the newest failure or retry of each job said, or that through a revision, by step and item.

        `retried` is true if the job has not failed: a later attempt succeeded, or is still to come.
        """
        check_revision(revision)
        return await runs.get_last_errors(self.database, run, through=revision, limit=limit, with_stack=with_stack)

    async def error_count(self, run: UUID) -> int:
        """How many jobs `errors` is about."""
        counts = await self.error_counts(run)
        return counts.failed + counts.recovered

    async def error_counts(self, run: UUID) -> ErrorCounts:
        """Count the jobs that `errors` is about: those that have failed, and those that were retried."""
        return await runs.count_errors(self.database, run)

    async def graph(self, run: Run) -> Graph:
        """The shape that this run keeps."""
        return await versions.load_graph(self.database, run.version)

    async def jobs(self, run: UUID, *, revision: int | None = None) -> list[Job]:
        """The current job of each step and item, or that of a revision."""
        check_revision(revision)
        return await runs.list_jobs(self.database, run, revision)

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
        return await runs.list_jobs_of_step(
            self.database, run, step, states=states, item=item, after=after, limit=limit
        )

    async def job_events(self, run: UUID, step: str, item: str = "", *, limit: int = 50) -> list[Event]:
        """What happened to one job, the newest first."""
        return await runs.list_events_of_job(self.database, run, step, item, limit)

    async def tries(self, run: UUID, step: str = "", item: str = "", *, limit: int = 500) -> list[FailedAttempt]:
        """Attempts that gave no result, in their order: of the steps that have one job, and of one item of `step`."""
        return await runs.list_failed_attempts(self.database, run, step, item, limit)

    async def events(
        self, run: UUID, *, kinds: Sequence[str] | None = None, after: int = 0, limit: int = 1_000
    ) -> list[Event]:
        """What happened in a run, in order; with `kinds` only that. For the next page give the last id as `after`."""
        return await runs.list_events(self.database, run, kinds, after, limit)

    async def last_event(self, run: UUID) -> int:
        """The number of a run's newest event; 0 if it has none."""
        return await event_stream.get_last_event_id(self.database, run)

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
        return await items.list_items(
            self.database, run, source, states=states, search=search, only=only, after=after, limit=limit
        )

    async def item_totals(self, run: UUID, source: str) -> ItemTotals:
        """How many items are in which state, and which had the last result."""
        return await items.count_by_state(self.database, run, source)

    async def item_codes(self, run: UUID, source: str) -> list[tuple[str, int]]:
        """How many items failed with which code, the most frequent first."""
        return await items.count_by_code(self.database, run, source)

    async def files(self, run: Run, *, limit: int = 100) -> list[File]:
        """Files that the run's input and the results of its steps name, but for those of single items."""
        said = await runs.find_data_with_text(self.database, run.id, '"file"', limit, of_items=False)
        found: dict[File, None] = {}
        for file in find_files([run.input, *said]):
            found[file] = None
            if len(found) == limit:
                break
        return list(found)

    async def file(self, run: UUID, digest: str) -> File:
        """The file of this content, as the data of the run names it. Raises NotFound if it does not."""
        said = await runs.find_data_with_text(self.database, run, digest, MAX_FILE_MENTIONS)
        for file in find_files(said):
            if file.file == digest:
                return file
        raise NotFound(f"run {run} names no file {digest}")
