"""Resumable uploads against the stand-in: whatever breaks, one video with the same bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retoma import GiveUp, ProviderDown, ProviderRejected, RateLimited
from retoma_apps.providers.youtube import SessionGone, YouTube
from retoma_apps.providers.youtube.settings import CHUNK_MULTIPLE
from retoma_apps.providers.youtube.standin import StandIn
from tests.apps.providers.youtube.conftest import (
    CONTENT,
    MARK,
    REFRESH,
    SECRET,
    SIZE,
    Switch,
    a_video,
    rewrite,
    settings_for,
)


def the_only(standin: StandIn) -> str:
    [video] = standin.videos.values()
    assert video.content == CONTENT
    return video.id


async def test_a_video_is_sent_chunk_by_chunk_and_has_an_address(
    standin: StandIn, youtube: YouTube, film: Path
) -> None:
    taken: list[int] = []
    standin.on_chunk = taken.append
    published = await youtube.send(await youtube.begin(a_video(), SIZE), film)
    assert published.video_id == the_only(standin)
    assert published.url == f"https://www.youtube.com/watch?v={published.video_id}"
    assert taken == [*(number * CHUNK_MULTIPLE for number in range(1, 6)), SIZE]
    assert standin.requests["PUT videos"] == 1 + 6  # the query and the chunks


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        ("partial", 4),
        ("forgotten", 2),
        ("broken_after", 6),
        ("lost_replies", 6),
        ("lost_final", 1),
        ("garbled_final", 1),
        ("refused_tokens", 1),
    ],
)
async def test_whatever_breaks_there_is_one_video_with_the_same_bytes(
    standin: StandIn, youtube: YouTube, film: Path, fault: str, times: int
) -> None:
    session = await youtube.begin(a_video(), SIZE)
    setattr(standin.faults, fault, times)
    published = await youtube.send(session, film)
    assert published.video_id == the_only(standin)
    assert getattr(standin.faults, fault) == 0
    assert standin.misplaced == 0


async def test_a_failure_in_the_middle_is_overcome(standin: StandIn, youtube: YouTube, film: Path) -> None:
    def break_once(taken: int) -> None:
        if taken == 2 * CHUNK_MULTIPLE:
            standin.faults.broken = 2

    standin.on_chunk = break_once
    published = await youtube.send(await youtube.begin(a_video(), SIZE), film)
    assert published.video_id == the_only(standin)


async def test_a_session_that_lost_all_near_its_end_is_sent_again_however_many_chunks_that_takes(
    standin: StandIn, switch: Switch, film: Path
) -> None:
    impatient = YouTube(settings_for(switch.origin, tries=2))

    def forget_late(taken: int) -> None:
        if taken == 5 * CHUNK_MULTIPLE and not standin.requests["forgot"]:
            standin.requests["forgot"] += 1
            next(iter(standin.sessions.values())).content.clear()

    standin.on_chunk = forget_late
    await impatient.send(await impatient.begin(a_video(), SIZE), film)
    the_only(standin)
    await impatient.close()


async def test_a_complete_session_is_only_asked(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(a_video(), SIZE)
    first = await youtube.send(session, film)
    asked = standin.requests["PUT videos"]
    assert await youtube.send(session, film) == first
    assert standin.requests["PUT videos"] == asked + 1
    the_only(standin)


async def test_two_senders_of_one_session_make_one_video(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(a_video(), SIZE)
    both = await asyncio.gather(youtube.send(session, film), youtube.send(session, film))
    assert {each.video_id for each in both} == {the_only(standin)}


async def test_a_session_that_is_gone_says_so_and_not_which(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(a_video(), SIZE)
    standin.forget_sessions()
    with pytest.raises(SessionGone) as raised:
        await youtube.send(session, film)
    assert "upload_id" not in str(raised.value)


async def test_an_upload_that_gets_no_further_goes_on_later_from_where_it_is(
    standin: StandIn, youtube: YouTube, film: Path
) -> None:
    session = await youtube.begin(a_video(), SIZE)

    def break_for_long(taken: int) -> None:
        standin.faults.broken = 5 if taken == 3 * CHUNK_MULTIPLE else 0

    standin.on_chunk = break_for_long
    with pytest.raises(ProviderDown, match="503"):
        await youtube.send(session, film)
    taken: list[int] = []
    standin.on_chunk = taken.append
    await youtube.send(session, film)
    assert taken == [4 * CHUNK_MULTIPLE, 5 * CHUNK_MULTIPLE, SIZE]
    the_only(standin)


async def test_a_file_that_the_session_is_not_for_is_refused(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(a_video(), SIZE)
    rewrite(film, CONTENT[:-1])
    with pytest.raises(GiveUp, match="400"):
        await youtube.send(session, film)
    rewrite(film, b"")
    with pytest.raises(GiveUp, match="empty"):
        await youtube.send(session, film)
    assert not standin.videos


@pytest.mark.parametrize("session", ["https://evil.example/upload", "http://169.254.169.254/", "", "x" * 3000])
async def test_nothing_is_sent_to_a_session_that_is_not_youtubes(youtube: YouTube, film: Path, session: str) -> None:
    with pytest.raises(GiveUp, match="not a YouTube session"):
        await youtube.send(session, film)


@pytest.mark.parametrize(
    ("fault", "error"), [("quota", RateLimited), ("forbidden", ProviderRejected), ("rate_limited", RateLimited)]
)
async def test_an_account_that_is_stopped_in_the_middle_goes_on_afterwards(
    standin: StandIn, youtube: YouTube, film: Path, fault: str, error: type[Exception]
) -> None:
    session = await youtube.begin(a_video(), SIZE)
    setattr(standin.faults, fault, 1)
    with pytest.raises(error) as raised:
        await youtube.send(session, film)
    assert not any(secret in str(raised.value) for secret in (session, SECRET, REFRESH, *standin.tokens))
    setattr(standin.faults, fault, 0)
    await youtube.send(session, film)
    the_only(standin)


async def test_a_video_whose_session_is_gone_is_found_by_its_mark(
    standin: StandIn, youtube: YouTube, film: Path
) -> None:
    standin.page_size = 2
    assert await youtube.find(MARK) is None
    published = await youtube.send(await youtube.begin(a_video(tags=("x" * 400, "y" * 90)), SIZE), film)
    rewrite(film, b"others")
    for number in range(4):
        await youtube.send(await youtube.begin(a_video(mark=f"retoma-other{number:04}"), 6), film)
    assert await youtube.find(MARK) == published
    assert await youtube.find("retoma-unknown1") is None


@pytest.mark.parametrize(("ending", "counts"), [("failure", False), ("rejection", True)])
async def test_a_failed_video_does_not_count_and_a_rejected_one_does(
    standin: StandIn, youtube: YouTube, film: Path, ending: str, counts: bool
) -> None:
    setattr(standin.faults, ending, "duplicate")
    await youtube.send(await youtube.begin(a_video(), SIZE), film)
    assert (await youtube.find(MARK) is not None) is counts
