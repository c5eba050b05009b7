"""Starting runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from retoma.client.base import NO_TENANT
from retoma.client.runs import Runs
from retoma.client.validation import (
    Input,
    check_limits,
    check_start_options,
    digest_input,
    encode_input,
    encode_inputs,
    validate_input,
)
from retoma.define.pipeline import Pipeline
from retoma.define.webhook import Webhook, encode_webhook
from retoma.engine import versions
from retoma.engine.run_starter import StartedRun, StartRequest
from retoma.engine.tenants import DEFAULT
from retoma.errors import RunFailed
from retoma.identifiers import new_run_id
from retoma.records import Run
from retoma.states import RunState
from retoma.store import runs


class Starts(Runs):
    async def start(
        self,
        pipeline: Pipeline | str,
        inputs: Input = None,
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        run_at: datetime | None = None,
        priority: int = 0,
        resumes: int | None = None,
        retries: int | None = None,
        deadline: timedelta | None = None,
        webhook: Webhook | None = None,
        request: BaseModel | None = None,
    ) -> StartedRun:
        """Start a run. When this returns, the run is committed and will reach its end.

        The same `key` with the same input gives back the same run, whatever its state; with another input it
        raises KeyReused. Of an input that was made of something else, `asked` is that: it is compared in place of the
        input. `run_at` lets it begin later. A level of `priority` is worth ten minutes of waiting.
        If it is not over `deadline` after it began, it fails. `resumes` is in place of its pipeline's; of its jobs none
        is retried more than `retries` times, whatever its step says.
        `webhook` is told of the run; if the key was used before, that of the first start is.
        """
        pipeline = self._get_own_pipeline(pipeline)
        checked = validate_input(pipeline, inputs)
        check_start_options(tenant=tenant, key=key, priority=priority, run_at=run_at)
        check_limits(resumes, retries, deadline)
        return await self._starter.start(
            StartRequest(
                id=new_run_id(),
                tenant=await self._tenants.get_or_create_id(tenant),
                version=await self._version_of(pipeline),
                input=encode_input(checked),
                key=key,
                digest=None if key is None else digest_input(request or checked),
                run_at=run_at,
                head_start=versions.get_head_start(priority),
                resumes=resumes,
                retries=retries,
                deadline=deadline,
                webhook=self._encode_webhook(webhook),
            )
        )

    async def started_by(self, key: str, pipeline: Pipeline | str, *, tenant: str = DEFAULT) -> UUID | None:
        """The run that this key has started, if any."""
        check_start_options(tenant=tenant, key=key, priority=0, run_at=None)
        owner = await self._tenants.find_id(tenant) or NO_TENANT
        return await runs.find_by_key(self.database, owner, self._get_own_pipeline(pipeline).name, key)

    async def start_many(
        self,
        pipeline: Pipeline | str,
        inputs: Sequence[Input],
        *,
        tenant: str = DEFAULT,
        key: str | None = None,
        priority: int = 0,
        webhook: Webhook | None = None,
    ) -> list[StartedRun]:
        """Start many runs of one pipeline, in their order; `webhook` is told of each.

        The same `key` with the same inputs gives back the same runs; with others it raises KeyReused and starts none.
        """
        pipeline = self._get_own_pipeline(pipeline)
        check_start_options(tenant=tenant, key=key, priority=priority, run_at=None)
        texts, digest = await encode_inputs(pipeline, inputs, keyed=key is not None)
        owner, version = await self._tenants.get_or_create_id(tenant), await self._version_of(pipeline)
        ahead, hook = versions.get_head_start(priority), self._encode_webhook(webhook)
        starts = (
            StartRequest(
                id=new_run_id(),
                tenant=owner,
                version=version,
                input=one,
                key=None if key is None else f"{key}/{number}",
                digest=digest,
                head_start=ahead,
                webhook=hook,
            )
            for number, one in enumerate(texts)
        )
        # With a key the first goes alone: if the key belongs to other inputs, none of the others may start.
        alone = islice(starts, int(key is not None))
        return [*await self._starter.start_many(alone), *await self._starter.start_many(starts)]

    async def run(self, /, pipeline: Pipeline | str, inputs: Input = None, **options: Any) -> dict[str, Any]:
        """Start a run, wait for its end, and give its results by step. Raises RunFailed if it did not complete."""
        started = await self.start(pipeline, inputs, **options)
        run = await self.wait(started.id)
        if run.state is not RunState.COMPLETED:
            raise RunFailed(await self._describe_failure(run))
        return await self.results(run.id)

    async def _describe_failure(self, run: Run) -> str:
        errors = await self.errors(run.id, limit=3, with_stack=False)
        said = "; ".join(
            f"{step}{f' of {item}' if item else ''}: {error.get('message') or error.get('code')}"
            for (step, item), error in errors.items()
        )
        return f"run {run.id} of {run.pipeline!r} ended as {run.state}{f': {said}' if said else ''}"

    def _encode_webhook(self, webhook: Webhook | None) -> str | None:
        """As the database takes it. Raises UnsafeUrl if its URL must not be called."""
        return None if webhook is None else encode_webhook(webhook, self.guard.check(webhook.url, "webhook.url").origin)

    async def _version_of(self, pipeline: Pipeline) -> int:
        if pipeline.name not in self._versions:
            self._versions[pipeline.name] = await versions.register(self.database, pipeline)
        return self._versions[pipeline.name]
