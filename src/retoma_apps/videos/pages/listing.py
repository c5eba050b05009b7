"""All videos, the newest first, and the form that orders one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from starlette.responses import Response

from retoma import Client
from retoma.errors import InvalidInput
from retoma.records import Job, Review, Run
from retoma.server import Page, Visit
from retoma.states import JobState, RunState
from retoma_apps.videos.channels import TooLate, ordered
from retoma_apps.videos.pages import forms
from retoma_apps.videos.pages.common import Common
from retoma_apps.videos.pages.forms import ORDER, Form, Wrong
from retoma_apps.videos.pages.looks import STAGES
from retoma_apps.videos.pages.words import Words
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.stages import Stage, done_of, stage_of, title_of

ROUTE = "/videos/"
SHOWN = 20
AT_HAND = (JobState.RUNNING, JobState.PARKED, JobState.READY)
ASKS = (RunState.PAUSED, RunState.NEEDS_REVIEW)


@dataclass(frozen=True)
class Row:
    """`step` is the one at hand, `review` what a person is asked about it, `url` where the video is published.

    `failure` is why its run failed.
    """

    run: Run
    title: str
    stage: Stage
    step: str | None
    review: Review | None
    url: str | None
    thumbnail_refused: str | None
    failure: str | None


class Listing:
    def __init__(self, common: Common) -> None:
        self._common = common

    @property
    def pages(self) -> tuple[Page, ...]:
        return (
            Page(ROUTE, self.show, self.order, nav=("Videos", "Vídeos")),
            Page(ROUTE.rstrip("/"), _to_all),
        )

    async def show(self, visit: Visit, status: int = 200, form: Form | None = None) -> Response:
        found = await visit.client.runs(pipeline=longform.name, before=_before(visit), limit=SHOWN)
        rows = [await row_of(visit.client, run) for run in found]
        if form is None and ("new" in visit.asked or not rows):
            form = forms.empty_order(found[0].tenant if found else "principal")
        return visit.show(
            "videos.html",
            status,
            rows=rows,
            next=found[-1].id if len(found) == SHOWN else None,
            form=form,
            key=str(uuid4()),
            looks_of=STAGES,
            channels=await self._common.channels(visit.client) if form else [],
            **await self._common.values(visit),
        )

    async def order(self, visit: Visit) -> Response:
        """A form that is sent twice orders one video."""
        given = forms.written(visit.fields, ORDER)
        try:
            order = forms.read_order(given, Words(visit.language))
            key = visit.fields.get("key", "")[:100] or None
            await ordered(visit.client, order, key=key and f"page {key}")
        except Wrong as error:
            return await self.show(visit, 422, Form(given, error.found))
        except TooLate:
            return await self.show(visit, 422, Form(given, {"scheduled_for": Words(visit.language)("too late")}))
        except InvalidInput as error:
            return await self.show(visit, 422, replace(Form(given), wrong={"channel": str(error)}))
        return visit.go(ROUTE, "ordered")


async def row_of(client: Client, run: Run) -> Row:
    jobs = {job.step: job for job in await client.jobs(run.id)}
    done = done_of(jobs.values())
    upload = done.get("upload") or {}
    waiting = await client.reviews(run=run.id, limit=1) if run.state in ASKS else []
    return Row(
        run,
        title=title_of(done) or "",
        stage=stage_of(run.state, done, begun=any(job.attempt for job in jobs.values())),
        step=_at_hand(jobs) if not run.is_over else None,
        review=waiting[0] if waiting else None,
        url=_link(upload),
        thumbnail_refused=upload.get("thumbnail_refused"),
        failure=await failure_of(client, run, jobs) if run.state is RunState.FAILED else None,
    )


async def failure_of(client: Client, run: Run, jobs: Mapping[str, Job]) -> str:
    """What the first step said that failed; the stage alone where none did."""
    errors = await client.errors(run.id)
    failed = (errors.get((step, ""), {}) for step, job in jobs.items() if job.state is JobState.FAILED)
    return next((str(error["message"]) for error in failed if error.get("message")), str(run.state))


def _at_hand(jobs: dict[str, Job]) -> str | None:
    return next((step for step in longform.steps if step in jobs and jobs[step].state in AT_HAND), None)


def _link(upload: dict[str, Any]) -> str | None:
    """Only what is a page of ours, or of a channel: what a provider says is no more than text."""
    url = str(upload.get("url", ""))
    return url if url.startswith(("https://", f"{ROUTE}channel/")) else None


def _before(visit: Visit) -> UUID | None:
    try:
        return UUID(visit.asked.get("before", ""))
    except ValueError:
        return None


async def _to_all(visit: Visit) -> Response:
    return visit.go(ROUTE)
