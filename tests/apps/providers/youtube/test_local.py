"""The channel in a folder: its videos, and that a second `begin` creates no second video."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from retoma import GiveUp
from retoma_apps.providers.youtube import LocalChannel, SessionGone, mark_of
from retoma_apps.providers.youtube.port import Status
from tests.apps.providers.youtube.conftest import CONTENT, MARK, PNG, SIZE, Clock, WatchedCopy, make_video, rewrite


@pytest.fixture
def channel(tmp_path: Path, clock: Clock) -> WatchedCopy:
    return WatchedCopy(tmp_path / "channel", chunk_bytes=100_000, now=clock)


async def test_a_video_is_shown_with_its_texts_and_its_thumbnail(
    channel: LocalChannel, film: Path, picture: Path
) -> None:
    published = await channel.send(await channel.begin(make_video(description="a <b>"), SIZE), film)
    assert [(each.video_id, each.thumbnail) for each in await channel.videos()] == [(published.video_id, None)]
    await channel.set_thumbnail(published.video_id, picture)
    [shown] = await channel.videos()
    assert (shown.title, shown.description, shown.language) == ("Renda fixa em 2026", "a \u2039b\u203a", "pt-BR")
    assert (shown.tags, shown.synthetic, shown.state) == ((MARK, "finanças", "renda fixa"), True, "published")
    assert shown.video.read_bytes() == CONTENT
    assert shown.thumbnail is not None
    assert shown.thumbnail.read_bytes() == PNG
    assert await channel.find(MARK) == published
    assert published.url == f"/channel/{published.video_id}"


async def test_a_new_thumbnail_replaces_one_in_another_format(channel: LocalChannel, film: Path, picture: Path) -> None:
    published = await channel.send(await channel.begin(make_video(), SIZE), film)
    for content in (b"\xff\xd8\xffjpeg", PNG):
        rewrite(picture, content)
        await channel.set_thumbnail(published.video_id, picture)
        shown = await channel.video(published.video_id)
        assert shown is not None
        assert shown.thumbnail is not None
        assert shown.thumbnail.read_bytes() == content


async def test_a_second_session_with_the_same_marker_finds_the_first(channel: LocalChannel, film: Path) -> None:
    session = await channel.begin(make_video(), SIZE)
    assert await channel.begin(make_video(), SIZE) == session
    published = await channel.send(session, film)
    assert await channel.begin(make_video(title="another"), SIZE) == session
    assert await channel.send(session, film) == published
    assert [each.title for each in await channel.videos()] == ["Renda fixa em 2026"]


async def test_a_session_started_during_another_publication_creates_no_second_video(
    channel: LocalChannel, film: Path, tmp_path: Path
) -> None:
    session = await channel.begin(make_video(), SIZE)
    open_session = tmp_path / "channel/sessions" / session.removeprefix("local:")
    shutil.copytree(open_session, tmp_path / "begun")
    published = await channel.send(session, film)
    shutil.copytree(tmp_path / "begun", open_session)
    assert await channel.send(session, film) == published
    assert len(await channel.videos()) == 1


async def test_a_deleted_video_is_gone_and_may_be_deleted_again(channel: LocalChannel, film: Path) -> None:
    video = (await channel.send(await channel.begin(make_video(), SIZE), film)).video_id
    await channel.delete(video)
    await channel.delete(video)
    assert (await channel.videos(), await channel.find(MARK)) == ([], None)


async def test_a_scheduled_video_is_published_at_its_time(channel: LocalChannel, film: Path, clock: Clock) -> None:
    at = clock.now + timedelta(hours=1)
    video = (await channel.send(await channel.begin(make_video(publish_at=at), SIZE), film)).video_id
    assert await channel.status(video) == Status("processed", "", at)
    clock.now = at
    assert (await channel.status(video)).state == "published"


async def test_the_newest_videos_come_first(channel: LocalChannel, film: Path, clock: Clock) -> None:
    for title in ("first", "second", "third"):
        await channel.send(await channel.begin(make_video(title=title, mark=mark_of(title)), SIZE), film)
        clock.now += timedelta(seconds=1)
    assert [each.title for each in await channel.videos()] == ["third", "second", "first"]


async def test_a_copy_resumes_where_it_stopped(channel: WatchedCopy, film: Path, tmp_path: Path) -> None:
    session = await channel.begin(make_video(), SIZE)
    begun = tmp_path / "channel/sessions" / session.removeprefix("local:") / "video.mp4"
    begun.write_bytes(CONTENT[:250_000])
    await channel.send(session, film)
    assert channel.done[0] == 350_000
    [shown] = await channel.videos()
    assert shown.video.read_bytes() == CONTENT


@pytest.mark.parametrize("spoilt", [bytes(1000), CONTENT + b"more"])
async def test_a_damaged_copy_is_repeated(channel: LocalChannel, film: Path, tmp_path: Path, spoilt: bytes) -> None:
    session = await channel.begin(make_video(), SIZE)
    (tmp_path / "channel/sessions" / session.removeprefix("local:") / "video.mp4").write_bytes(spoilt)
    await channel.send(session, film)
    [shown] = await channel.videos()
    assert shown.video.read_bytes() == CONTENT


async def test_an_unknown_session_is_reported_as_gone(channel: LocalChannel, film: Path) -> None:
    with pytest.raises(SessionGone):
        await channel.send("local:local-0123456789ab", film)
    assert await channel.find(MARK) is None
    assert (await channel.status("local-0123456789ab")).state == "deleted"
    assert await channel.videos() == []


@pytest.mark.parametrize("values", ["local:../../etc", "local:/etc", "", "local-../x", "local-0123456789AB"])
async def test_an_id_cannot_escape_the_folder(channel: LocalChannel, film: Path, picture: Path, values: str) -> None:
    with pytest.raises(GiveUp):
        await channel.send(values, film)
    with pytest.raises(GiveUp):
        await channel.set_thumbnail(values, picture)
    assert await channel.video(values) is None


async def test_a_file_that_does_not_match_the_session_is_rejected(channel: LocalChannel, film: Path) -> None:
    session = await channel.begin(make_video(), SIZE - 1)
    with pytest.raises(GiveUp, match="bytes"):
        await channel.send(session, film)
    assert await channel.videos() == []
