"""Runs that are cancelled while their video is uploaded: the video is found on the channel and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import Response

from retoma.store import workers
from retoma.store.database import Database
from retoma.worker import context_backend
from retoma_apps.media import publishing
from retoma_apps.providers.youtube.youtube import YouTube
from standins.youtube import StandIn
from tests.apps.providers.youtube.conftest import REFRESH, settings_for
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.conftest import empty_database
from tests.engine.builders import pass_heartbeat_timeout, rows
from tests.engine.test_leases import killed_worker
from tests.wait_timeout import WAIT_TIMEOUT


@pytest.fixture
def standin() -> StandIn:
    return StandIn(refresh_token=REFRESH)


@pytest.fixture
async def video_app(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standin: StandIn
) -> AsyncIterator[FastVideoApp]:
    await empty_database(database)
    async with standin.serving() as origin:
        youtube = YouTube(settings_for(origin, max_attempts=1))
        async with running_fast_video_app(database, tmp_path, monkeypatch, channel=lambda _: youtube) as made:
            yield made
        await youtube.close()


async def approve_film(video_app: FastVideoApp) -> UUID:
    """Order a video, and return its run when its upload is the next job."""
    final = await video_app.order_until("final_review")
    await video_app.approve(final)
    await workers.release_due_jobs(video_app.api.sandbox.database, limit=10)  # applies the decision
    await video_app.work_once()  # the review's own job
    return UUID(final["video_id"])


async def list_resolutions(video_app: FastVideoApp) -> dict[str, str | None]:
    found = await rows(video_app.api.sandbox, "select name, resolution from retoma.effects where step = 'upload'")
    return {row[0]: row[1] for row in found}


async def check_nothing_is_left(video_app: FastVideoApp, run: UUID, standin: StandIn) -> None:
    async with video_app.api.sandbox.manual_worker() as worker:
        await worker.poll_external_work()
    assert standin.videos == {}
    assert await video_app.client.runs.list_orphans(run) == []
    assert (await video_app.client.runs.get(run)).state == "cancelled"


async def test_a_run_cancelled_while_its_upload_completes_deletes_the_video(
    video_app: FastVideoApp, standin: StandIn
) -> None:
    run = await approve_film(video_app)
    async with video_app.api.sandbox.manual_worker() as worker:
        attempt = asyncio.ensure_future(worker.attempt(await worker.claim(1)))

        def stop(_: int) -> None:
            attempt.cancel()  # as a worker does when its run is stopped

        standin.on_chunk = stop
        await asyncio.wait([attempt])
        assert (attempt.cancelled(), len(standin.videos)) == (True, 1)
        await video_app.client.runs.cancel(run)
    await check_nothing_is_left(video_app, run, standin)
    assert (await list_resolutions(video_app))["upload"] == "cancelled"


async def test_a_video_whose_last_answer_was_lost_is_deleted_with_its_run(
    video_app: FastVideoApp, standin: StandIn
) -> None:
    run = await approve_film(video_app)
    standin.faults.lost_final = 1
    await video_app.work_once()
    assert len(standin.videos) == 1
    await video_app.client.runs.cancel(run)
    await check_nothing_is_left(video_app, run, standin)
    assert (await list_resolutions(video_app))["upload"] == "cancelled"


@pytest.mark.parametrize("sent", ["nothing", "everything"])
async def test_a_worker_killed_during_an_upload_leaves_no_video_of_a_cancelled_run(
    video_app: FastVideoApp, standin: StandIn, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    run, began, killed = await approve_film(video_app), asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(context_backend, "CALL_GRACE", 0.0)  # a killed worker records nothing

    async def hang(*_: Any) -> Any:
        began.set()
        await killed.wait()
        return Response()

    where, what = (standin, "_deliver") if sent == "everything" else (YouTube, "begin")
    monkeypatch.setattr(where, what, hang)
    async with killed_worker(video_app.api.sandbox) as worker:
        attempt = asyncio.ensure_future(worker.attempt(await worker.claim(1)))
        await asyncio.wait_for(began.wait(), WAIT_TIMEOUT)
        attempt.cancel()
        await asyncio.wait([attempt])
    killed.set()
    assert len(standin.videos) == (sent == "everything")
    await video_app.client.runs.cancel(run)
    await pass_heartbeat_timeout(video_app.api.sandbox)
    await check_nothing_is_left(video_app, run, standin)
    assert (await list_resolutions(video_app))["upload"] == ("cancelled" if sent == "everything" else "not_submitted")


async def test_an_upload_whose_worker_was_killed_is_found_and_not_repeated(
    video_app: FastVideoApp, standin: StandIn
) -> None:
    run = await approve_film(video_app)
    standin.faults.lost_final = 1
    await video_app.work_once()
    standin.forget_sessions()
    await video_app.api.sandbox.work()
    [video] = standin.videos.values()
    assert (await video_app.client.runs.get_results(run))["upload"]["video_id"] == video.id
    assert publishing.MOST_SESSIONS > standin.requests["POST videos"] == 1
