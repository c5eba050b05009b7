"""Resumable uploads against the stand-in: whatever breaks, one video with the same bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma_apps.providers.youtube import SessionGone
from retoma_apps.providers.youtube.settings import CHUNK_MULTIPLE
from retoma_apps.providers.youtube.youtube import YouTube
from standins.youtube import StandIn
from tests.apps.providers.youtube.conftest import (
    CONTENT,
    MARK,
    REFRESH,
    SECRET,
    SIZE,
    Switch,
    make_video,
    rewrite,
    settings_for,
)


def get_only_video(standin: StandIn) -> str:
    [video] = standin.videos.values()
    assert video.content == CONTENT
    return video.id


async def test_a_video_is_sent_in_chunks_and_has_a_url(standin: StandIn, youtube: YouTube, film: Path) -> None:
    taken: list[int] = []
    standin.on_chunk = taken.append
    published = await youtube.send(await youtube.begin(make_video(), SIZE), film)
    assert published.video_id == get_only_video(standin)
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
async def test_any_fault_still_results_in_one_video_with_the_same_bytes(
    standin: StandIn, youtube: YouTube, film: Path, fault: str, times: int
) -> None:
    session = await youtube.begin(make_video(), SIZE)
    setattr(standin.faults, fault, times)
    published = await youtube.send(session, film)
    assert published.video_id == get_only_video(standin)
    assert getattr(standin.faults, fault) == 0
    assert standin.misplaced == 0


async def test_an_upload_survives_a_failure_in_the_middle(standin: StandIn, youtube: YouTube, film: Path) -> None:
    def break_once(taken: int) -> None:
        if taken == 2 * CHUNK_MULTIPLE:
            standin.faults.broken = 2

    standin.on_chunk = break_once
    published = await youtube.send(await youtube.begin(make_video(), SIZE), film)
    assert published.video_id == get_only_video(standin)


async def test_a_session_that_lost_everything_near_its_end_is_resent_whatever_the_number_of_chunks(
    standin: StandIn, switch: Switch, film: Path
) -> None:
    impatient = YouTube(settings_for(switch.origin, max_attempts=2))

    def forget_late(taken: int) -> None:
        if taken == 5 * CHUNK_MULTIPLE and not standin.requests["forgot"]:
            standin.requests["forgot"] += 1
            next(iter(standin.sessions.values())).content.clear()

    standin.on_chunk = forget_late
    await impatient.send(await impatient.begin(make_video(), SIZE), film)
    get_only_video(standin)
    await impatient.close()


async def test_a_complete_session_is_only_queried(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(make_video(), SIZE)
    first = await youtube.send(session, film)
    requests = standin.requests["PUT videos"]
    assert await youtube.send(session, film) == first
    assert standin.requests["PUT videos"] == requests + 1
    get_only_video(standin)


async def test_two_senders_of_one_session_create_one_video(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(make_video(), SIZE)
    both = await asyncio.gather(youtube.send(session, film), youtube.send(session, film))
    assert {each.video_id for each in both} == {get_only_video(standin)}


async def test_a_missing_session_is_reported_without_its_id(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(make_video(), SIZE)
    standin.forget_sessions()
    with pytest.raises(SessionGone) as raised:
        await youtube.send(session, film)
    assert "upload_id" not in str(raised.value)


async def test_a_stalled_upload_resumes_later_from_its_position(standin: StandIn, youtube: YouTube, film: Path) -> None:
    session = await youtube.begin(make_video(), SIZE)

    def break_for_long(taken: int) -> None:
        standin.faults.broken = 5 if taken == 3 * CHUNK_MULTIPLE else 0

    standin.on_chunk = break_for_long
    with pytest.raises(ProviderDown, match="503"):
        await youtube.send(session, film)
    taken: list[int] = []
    standin.on_chunk = taken.append
    await youtube.send(session, film)
    assert taken == [4 * CHUNK_MULTIPLE, 5 * CHUNK_MULTIPLE, SIZE]
    get_only_video(standin)


async def test_a_file_that_does_not_match_the_session_is_rejected(
    standin: StandIn, youtube: YouTube, film: Path
) -> None:
    session = await youtube.begin(make_video(), SIZE)
    rewrite(film, CONTENT[:-1])
    with pytest.raises(GiveUp, match="400"):
        await youtube.send(session, film)
    rewrite(film, b"")
    with pytest.raises(GiveUp, match="empty"):
        await youtube.send(session, film)
    assert not standin.videos


@pytest.mark.parametrize("session", ["https://evil.example/upload", "http://169.254.169.254/", "", "x" * 3000])
async def test_nothing_is_sent_to_a_session_url_that_is_not_youtubes(
    youtube: YouTube, film: Path, session: str
) -> None:
    with pytest.raises(GiveUp, match="not a YouTube session"):
        await youtube.send(session, film)


@pytest.mark.parametrize(
    ("fault", "error"), [("quota", RateLimited), ("forbidden", ProviderRejected), ("rate_limited", RateLimited)]
)
async def test_an_account_that_is_paused_mid_upload_continues_afterwards(
    standin: StandIn, youtube: YouTube, film: Path, fault: str, error: type[Exception]
) -> None:
    session = await youtube.begin(make_video(), SIZE)
    setattr(standin.faults, fault, 1)
    with pytest.raises(error) as raised:
        await youtube.send(session, film)
    assert not any(secret in str(raised.value) for secret in (session, SECRET, REFRESH, *standin.tokens))
    setattr(standin.faults, fault, 0)
    await youtube.send(session, film)
    get_only_video(standin)


async def test_a_video_whose_session_is_gone_is_found_by_its_marker(
    standin: StandIn, youtube: YouTube, film: Path
) -> None:
    standin.page_size = 2
    assert await youtube.find(MARK) is None
    published = await youtube.send(await youtube.begin(make_video(tags=("x" * 400, "y" * 90)), SIZE), film)
    rewrite(film, b"others")
    for number in range(4):
        await youtube.send(await youtube.begin(make_video(mark=f"retoma-other{number:04}"), 6), film)
    assert await youtube.find(MARK) == published
    assert await youtube.find("retoma-unknown1") is None


@pytest.mark.parametrize(("ending", "counts"), [("failure", False), ("rejection", True)])
async def test_a_failed_video_does_not_count_and_a_rejected_one_does(
    standin: StandIn, youtube: YouTube, film: Path, ending: str, counts: bool
) -> None:
    setattr(standin.faults, ending, "duplicate")
    await youtube.send(await youtube.begin(make_video(), SIZE), film)
    assert (await youtube.find(MARK) is not None) is counts
