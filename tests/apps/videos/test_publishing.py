"""Publishing the film: once, as chosen, and with a review if it does not become public."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from retoma import Context, GiveUp, NeedsReview, RetryLater
from retoma.errors import ProviderRejected
from retoma.store.database import Database
from retoma.testing import NOON
from retoma_apps.providers.youtube import LocalChannel, LocalVideo, SessionGone, VideoToPublish, mark_of
from retoma_apps.providers.youtube.port import Status
from retoma_apps.videos.application import from_environment
from retoma_apps.videos.models import Brief, Upload
from retoma_apps.videos.steps import footage, publishing
from tests.apps.videos.fast_video_app import (
    FastVideoApp,
    fake_assembly,
    fake_search,
    record_calls,
    running_fast_video_app,
)
from tests.apps.videos.small_services import make_small_services
from tests.conftest import empty_database

CREDIT = "Eva (pexels): https://pexels.example/1"
HOUR = timedelta(hours=1)
ORDER = {"topic": "Como investir em renda fixa", "scheduled_for": "2030-01-01T12:30:00Z"}


@pytest.fixture
async def video_app(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FastVideoApp]:
    await empty_database(database)
    async with running_fast_video_app(database, tmp_path, monkeypatch) as made:
        yield made


async def videos(video_app: FastVideoApp) -> list[LocalVideo]:
    channel = video_app.services.channel("")
    assert isinstance(channel, LocalChannel)
    return await channel.videos()


@pytest.mark.parametrize("account", ["", "Second"])
async def test_an_account_without_a_token_waits_and_is_not_published_locally(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, account: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_environment().resources["services"].default.channel(account).name == "local"
    monkeypatch.setenv("YOUTUBE_CLIENT_ID", "client")
    monkeypatch.setenv("YOUTUBE_CLIENT_SECRET", "secret")
    services = from_environment().resources["services"].default
    assert "youtube" not in services.offline_services
    with pytest.raises(
        ProviderRejected, match=f"set YOUTUBE_REFRESH_TOKEN{'_SECOND' if account else ''}, or ask for consent"
    ):
        await services.channel(account).begin(VideoToPublish("Renda fixa", mark_of("x")), 1)


async def test_a_video_is_published_with_the_account_of_its_channel_whatever_its_input(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty_database(database)
    local, requests = LocalChannel(tmp_path / "channel"), list[str]()

    def channel(account: str) -> LocalChannel:
        requests.append(account)
        return local

    async with running_fast_video_app(database, tmp_path, monkeypatch, channel=channel) as video_app:
        await video_app.client.tenants.set_profile("financas", {"seconds": 25, "account": "ours"})
        key = await video_app.api.make_key("runs:read", "runs:write", tenant="financas")
        body = {"topic": "Renda fixa", "account": "theirs"}
        began = await video_app.api.post("/api/v1/runs", key=key, json={"pipeline": "longform", "input": body})
        await video_app.finish(await video_app.work_until_review(began.json()["id"]))
        fork = await video_app.api.post(f"/api/v1/runs/{began.json()['id']}/fork", key=key, json={"input": body})
        await video_app.finish(await video_app.work_until_review(fork.json()["id"]))
    assert (len(await local.videos()), set(requests)) == (2, {"ours"})


async def test_a_missing_thumbnail_is_rejected_before_the_video_is_sent(video_app: FastVideoApp) -> None:
    final = await video_app.order_until("final_review")
    made = (await video_app.client.runs.get_results(UUID(final["video_id"])))["thumbnail_gen"]
    await video_app.client.runs.edit(
        UUID(final["video_id"]), "thumbnail_gen", {**made, "variants": made["variants"][:1]}
    )
    await video_app.decide(await video_app.work_until_review(final["video_id"]), "approved", thumbnail=3)
    await video_app.work()
    shown = await video_app.show(final["video_id"])
    assert (shown["status"], await videos(video_app)) == ("failed", [])
    assert "there is no thumbnail 3, only 1" in shown["error_message"]


async def test_resuming_a_failed_upload_publishes_no_second_video(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LocalChannel, "send", fail_after_sending(LocalChannel.send))
        failed = await video_app.finish(await video_app.order_until("final_review"))
    assert (failed["status"], len(await videos(video_app))) == ("failed", 1)
    await video_app.client.runs.resume(UUID(failed["id"]))
    await video_app.work()
    shown = await video_app.show(failed["id"])
    (video,) = await videos(video_app)
    assert (shown["status"], video.video_id in shown["url"], video.thumbnail is not None) == ("completed", True, True)


def fail_after_sending(send: Any) -> Any:
    async def failing(*given: Any) -> None:
        await send(*given)
        raise GiveUp("the disk of the worker is full")

    return failing


async def forget_uploads(*_: Any) -> None:
    raise SessionGone


async def test_a_rerun_repeats_an_upload_that_the_channel_lost(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(LocalChannel, "send", forget_uploads)
        failed = await video_app.finish(await video_app.order_until("final_review"))
    assert "lost 3 upload sessions" in failed["error_message"]
    with monkeypatch.context() as patched:
        patched.setattr(LocalChannel, "status", delete_uploads)
        await video_app.client.runs.rerun(UUID(failed["id"]), "upload")
        await video_app.work()
    assert "did not accept the video: deleted" in (await video_app.show(failed["id"]))["error_message"]
    await video_app.client.runs.rerun(UUID(failed["id"]), "upload")
    await video_app.work()
    assert (await video_app.show(failed["id"]))["stage"] == "published"


async def delete_uploads(*_: Any) -> Status:
    return Status("deleted")


async def test_a_rerun_upload_reuses_the_published_video_of_the_same_file(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    for name in ("find", "begin", "set_thumbnail"):
        monkeypatch.setattr(LocalChannel, name, record_calls(requests, name, getattr(LocalChannel, name)))
    published = await video_app.finish(await video_app.order_until("final_review"))
    assert requests == ["begin", "set_thumbnail"]
    await video_app.client.runs.rerun(UUID(published["id"]), "upload")
    await video_app.work()
    assert requests[2:] == ["find", "set_thumbnail"]
    assert (await video_app.show(published["id"]))["url"] == published["url"]


async def test_a_rerun_upload_that_fails_keeps_the_published_video(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = await video_app.finish(await video_app.order_until("final_review"))

    async def fail(*_: Any) -> None:
        raise RuntimeError("the channel does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(LocalChannel, "set_thumbnail", fail)
        await video_app.client.runs.rerun(UUID(published["id"]), "upload")
        await video_app.api.sandbox.work()
    assert (await video_app.show(published["id"]))["status"] == "failed"
    (video,) = await videos(video_app)
    assert video.video_id in published["url"]


async def test_a_rerun_assembly_publishes_another_video_and_keeps_the_previous_one(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = await video_app.finish(await video_app.order_until("final_review"))
    monkeypatch.setattr(footage, "assemble_film", another_film)
    await video_app.client.runs.rerun(UUID(published["id"]), "video_assembly")
    again = await video_app.finish(await video_app.work_until_review(published["id"]))
    assert again["url"] != published["url"]
    assert len(await videos(video_app)) == 2


async def another_film(*values: Any) -> Any:
    film = await fake_assembly(*values)
    return film.model_copy(update={"video": await values[-1].save_file(b"another", "film.mp4")})


async def test_a_rejected_thumbnail_is_reported_and_the_video_stays_published(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise GiveUp("the account is not verified", "YOUTUBE_REFUSED")

    with monkeypatch.context() as patched:
        patched.setattr(LocalChannel, "set_thumbnail", refuse)
        shown = await video_app.finish(await video_app.order_until("final_review"))
    assert (shown["stage"], shown["thumbnail_refused"]) == ("published", "the account is not verified")
    await video_app.client.runs.rerun(UUID(shown["id"]), "upload")
    await video_app.work()
    assert (await video_app.show(shown["id"]))["thumbnail_refused"] is None


class HiddenChannel(LocalChannel):
    """Shows nothing to anyone."""

    async def status(self, video_id: str) -> Status:
        return Status("processed")


@pytest.mark.parametrize(
    ("uploaded", "scheduled", "expected"),
    [(23, None, RetryLater), (25, None, NeedsReview), (99, 23, RetryLater), (99, 25, NeedsReview)],
)
async def test_a_person_is_asked_about_a_video_that_is_not_public_a_day_after_its_time(
    tmp_path: Path, uploaded: int, scheduled: int | None, expected: type[Exception]
) -> None:
    with pytest.raises(expected, match="processed"):
        await check_publication(tmp_path, uploaded * HOUR, None if scheduled is None else scheduled * HOUR)


async def check_publication(folder: Path, uploaded: timedelta, scheduled: timedelta | None = None) -> None:
    """Check a video that was uploaded, and scheduled, so long ago."""
    now = datetime.now(UTC)
    upload = Upload(
        video_id="abc",
        url="https://youtu.example/abc",
        channel="youtube",
        title="Renda fixa",
        uploaded_at=now - uploaded,
        publish_at=None if scheduled is None else now - scheduled,
    )
    services = replace(make_small_services(folder), channel=lambda _: HiddenChannel(folder))
    await publishing.check_published(upload, services, Context(uuid4(), "financas", "longform", "publication"))


@pytest.mark.parametrize(("waited", "pause"), [(0, 1), (9, 1), (11, 15), (1_000, 15)])
async def test_a_video_that_is_not_public_is_polled_less_and_less_often(
    tmp_path: Path, waited: int, pause: int
) -> None:
    with pytest.raises(RetryLater) as raised:
        await check_publication(tmp_path, timedelta(minutes=waited))
    assert raised.value.delay == timedelta(minutes=pause)


async def test_a_worker_whose_clock_is_fast_publishes_nothing_early(video_app: FastVideoApp) -> None:
    at_noon = datetime.now(UTC) - HOUR  # by the database's clock
    await video_app.api.sandbox.clock.set(at_noon)
    final = await video_app.order_until("final_review", scheduled_for=(at_noon + timedelta(minutes=40)).isoformat())
    await video_app.approve(final)
    await video_app.work()
    (video,) = await videos(video_app)
    assert video.publish_at == at_noon + timedelta(minutes=40)
    results = await video_app.client.runs.get_results(UUID(final["video_id"]))
    assert datetime.fromisoformat(results["upload"]["uploaded_at"]) == at_noon
    assert (await video_app.show(final["video_id"]))["stage"] == "uploaded"


async def test_a_video_is_published_at_its_time_or_at_once_without_one(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await empty_database(database)
    at = NOON
    local = LocalChannel(tmp_path / "channel", now=lambda: at)
    async with running_fast_video_app(database, tmp_path, monkeypatch, channel=lambda _: local) as video_app:
        at_once = await video_app.finish(await video_app.order_until("final_review"))
        later = await video_app.finish(
            await video_app.order_until("final_review", scheduled_for=(NOON + HOUR).isoformat())
        )
        assert (at_once["stage"], later["stage"]) == ("published", "uploaded")
        at = NOON + HOUR
        await video_app.api.sandbox.clock.set(at)
        await video_app.work()
        published = await video_app.show(later["id"])
    assert published["stage"] == "published"
    ends = [datetime.fromisoformat(video["ended_at"]) for video in (at_once, published)]
    assert ends == [NOON, NOON + HOUR]


@pytest.mark.parametrize("ordered", [None, NOON + HOUR])
async def test_the_final_review_sets_another_time_of_publication(
    video_app: FastVideoApp, ordered: datetime | None
) -> None:
    await video_app.api.sandbox.clock.set(NOON)
    final = await video_app.order_until("final_review", scheduled_for=ordered.isoformat() if ordered else None)
    await video_app.approve(final, scheduled_for=(NOON + 3 * HOUR).isoformat())
    await video_app.work()
    (video,) = await videos(video_app)
    assert video.publish_at == NOON + 3 * HOUR


async def test_a_persons_answer_about_a_video_that_is_not_public_ends_its_wait(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalChannel, "status", HiddenChannel.status)
    final = await video_app.order_until("final_review")
    await video_app.approve(final)
    await video_app.work()
    await video_app.api.sandbox.clock.advance(25 * HOUR)
    open_review = await video_app.work_until_review(final["video_id"])
    assert (open_review["checkpoint_type"], open_review["data"]["reason"]["code"]) == ("publication", "NOT_PUBLIC")
    await video_app.decide(open_review, "revision_requested", notes="olhe de novo")
    again = await video_app.work_until_review(final["video_id"])
    assert again["checkpoint_id"] != open_review["checkpoint_id"]
    await video_app.approve(again)
    await video_app.work()
    shown = await video_app.show(final["video_id"])
    assert (shown["stage"], shown["steps_done"][-1]) == ("published", "publication")


async def test_a_fork_shows_neither_the_stage_nor_the_url_of_its_original(
    video_app: FastVideoApp,
) -> None:
    published = await video_app.finish(await video_app.order_until("final_review"))
    fork = await video_app.show(str((await video_app.client.runs.fork(UUID(published["id"]), {"language": "en"})).id))
    assert (fork["stage"], fork["url"], fork["steps_done"]) == ("draft", None, [])


async def test_a_rerun_of_a_published_video_shows_its_current_progress(video_app: FastVideoApp) -> None:
    published = await video_app.finish(await video_app.order_until("final_review"))
    await video_app.client.runs.rerun(UUID(published["id"]), "script_generation")
    shown = await video_app.show(published["id"])
    assert (shown["stage"], shown["current_step"], shown["url"]) == ("researching", "script_generation", None)


async def test_the_chosen_title_is_used_for_the_video_and_its_metrics(video_app: FastVideoApp) -> None:
    final = await video_app.order_until("final_review")
    await video_app.approve(final, title="Outro título")
    await video_app.work()
    shown, results = (
        await video_app.show(final["video_id"]),
        await video_app.client.runs.get_results(UUID(final["video_id"])),
    )
    (video,) = await videos(video_app)
    assert (video.title, shown["title"], results["analytics_init"]["title"]) == ("Outro título",) * 3


async def test_an_order_repeated_after_its_time_is_the_same_video_and_a_new_one_is_rejected(
    video_app: FastVideoApp,
) -> None:
    def order(key: str) -> Any:
        return video_app.api.post("/api/v1/videos", json=ORDER, headers={"Idempotency-Key": key})

    first = await order("a")
    await video_app.api.sandbox.clock.advance(HOUR)
    again, new = await order("a"), await order("b")
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (new.status_code, new.json()["code"]) == (422, "INVALID_INPUT")


async def test_the_final_review_includes_the_credits_published_below_the_description(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footage, "search_footage", fake_pexels_search)
    final = await video_app.order_until("final_review")
    assert final["data"]["credits"] == [CREDIT]
    await video_app.approve(final, description="Texto")
    await video_app.work()
    (video,) = await videos(video_app)
    assert video.description == f"Texto\n\n{CREDIT}"


async def fake_pexels_search(*values: Any) -> Any:
    found = await fake_search(*values)
    update = {"source": "pexels", "author": "Eva", "url": "https://pexels.example/1"}
    return found.model_copy(update={"clips": [clip.model_copy(update=update) for clip in found.clips]})


def test_a_brief_has_neither_channel_nor_account_as_a_fork_stays_in_its_own() -> None:
    assert not {"channel", "account"} & Brief.model_fields.keys()
