"""The Pexels client against the stand-in: its requests, every rejection, and untrusted files."""

from __future__ import annotations

import json
from datetime import timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import av
import pytest

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import Response
from retoma_apps.providers.footage import ClipUnavailable, ClipUnusable, relevance
from retoma_apps.providers.footage.errors import FootageRefused, InvalidAnswer
from retoma_apps.providers.footage.pexels import Pexels, _File, choose_file
from standins.footage import StandIn
from tests.apps.providers.footage.conftest import KEY, SEARCH, names, settings_for

MP4 = "video/mp4"
HUGE = {"link": "https://videos.example.com/1.mp4", "file_type": MP4, "width": 10**300, "height": 10**300}


async def test_a_search_uses_the_language_of_the_video_and_the_bare_key(standin: StandIn, pexels: Pexels) -> None:
    await pexels.search("  ação\nvulcânica ", limit=3, **SEARCH)
    [requested] = standin.requests
    assert (requested["query"], requested["locale"], requested["orientation"]) == (
        "ação vulcânica",
        "pt-BR",
        "landscape",
    )
    assert requested["per_page"] == "3"


async def test_a_found_clip_names_its_author_and_its_subject(pexels: Pexels) -> None:
    found, *_ = await pexels.search("ondas do mar", **SEARCH)
    assert (found.source, found.author, found.seconds) == ("pexels", "Ana Conceição", 1)
    assert found.url.startswith("https://www.pexels.com/video/onda-mar-")
    assert found.tags == ("onda", "mar")
    assert (found.width, found.height) == (1920, 1080)
    assert relevance("ondas do mar", found) > 0.7


async def test_clips_that_last_long_enough_come_first(pexels: Pexels, monkeypatch: pytest.MonkeyPatch) -> None:
    search_with_response(
        monkeypatch, pexels, {"videos": [video(1, duration=3), video(2, duration=20), video(3, duration=9)]}
    )
    founds = await pexels.search("mar", language="en", seconds=9)
    assert [found.id for found in founds] == ["pexels-2", "pexels-3", "pexels-1"]


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([(3840, 2160), (1920, 1080), (640, 360)], (1920, 1080)),
        ([(3840, 2160), (1280, 720), (960, 540)], (1280, 720)),
        ([(3840, 2160), (960, 540)], (3840, 2160)),
        ([(640, 360), (960, 540)], (960, 540)),
        ([(None, None), (426, 240)], (426, 240)),
    ],
)
def test_the_file_nearest_to_full_hd_is_chosen_and_a_narrow_one_only_as_a_last_resort(
    sizes: list[tuple[int | None, int | None]], wanted: tuple[int, int]
) -> None:
    files = [_File(link="x", file_type=MP4, width=width, height=height) for width, height in sizes]
    taken = choose_file([_File(link="x", file_type="application/x-mpegURL", width=1920, height=1080), *files])
    assert taken is not None
    assert (taken.width, taken.height) == wanted


async def test_a_clip_is_downloaded_completely_and_without_the_key(
    standin: StandIn, pexels: Pexels, tmp_path: Path
) -> None:
    found, *_ = await pexels.search("mar", **SEARCH)
    await pexels.fetch(found, tmp_path / "clip.mp4")
    await pexels.fetch_thumbnail(found, tmp_path / "clip.jpg")
    with av.open(str(tmp_path / "clip.mp4")) as clip:
        assert sum(1 for _ in clip.decode(video=0)) == 5
    assert (tmp_path / "clip.jpg").read_bytes()[:3] == b"\xff\xd8\xff"
    assert len(standin.file_headers) == 2
    assert KEY not in json.dumps(standin.file_headers)
    assert names(tmp_path) == ["clip.jpg", "clip.mp4"]


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [("not_video", ClipUnusable, "CLIP_UNUSABLE"), ("missing_files", ClipUnavailable, "CLIP_UNAVAILABLE")],
)
async def test_a_file_that_is_not_a_video_or_does_not_arrive_leaves_nothing_behind(
    standin: StandIn, pexels: Pexels, tmp_path: Path, fault: str, error: type[Exception], code: str
) -> None:
    found, *_ = await pexels.search("mar", **SEARCH)
    for fetch in (pexels.fetch, pexels.fetch_thumbnail):
        setattr(standin.faults, fault, 1)
        with pytest.raises(error) as raised:
            await fetch(found, tmp_path / "file")
        assert getattr(raised.value, "code", None) == code
    assert names(tmp_path) == []


async def test_a_link_is_not_trusted_just_because_the_service_is(
    pexels: Pexels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RETOMA_ALLOW_HOSTS")
    strict = Pexels(pexels._settings)
    found, *_ = await strict.search("mar", **SEARCH)
    with pytest.raises(ClipUnusable, match="an address that is not allowed"):
        await strict.fetch(found, tmp_path / "clip.mp4")
    await strict.close()


async def test_a_link_to_a_private_address_is_never_called(standin: StandIn, pexels: Pexels, tmp_path: Path) -> None:
    standin.faults.private_links = 1
    found, *_ = await pexels.search("mar", **SEARCH)
    assert "169.254.169.254" in found.link
    for fetch in (pexels.fetch, pexels.fetch_thumbnail):
        with pytest.raises(ClipUnusable, match="is not a public address"):
            await fetch(found, tmp_path / "file")
    assert names(tmp_path) == []


async def test_a_file_over_the_size_limit_is_rejected(base_url: str, tmp_path: Path) -> None:
    strict = Pexels(settings_for(base_url, max_clip_bytes=100))
    found, *_ = await strict.search("mar", **SEARCH)
    with pytest.raises(ClipUnavailable, match="longer than 100 bytes"):
        await strict.fetch(found, tmp_path / "clip.mp4")
    await strict.close()


async def test_a_search_without_matches_returns_an_empty_list(standin: StandIn, pexels: Pexels) -> None:
    standin.faults.empty = 1
    assert await pexels.search("mar", **SEARCH) == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [("broken", ProviderDown), ("html", InvalidAnswer), ("truncated_body", InvalidAnswer)],
)
async def test_each_search_fault_has_its_own_error(
    standin: StandIn, pexels: Pexels, fault: str, error: type[Exception]
) -> None:
    setattr(standin.faults, fault, 1)
    with pytest.raises(error):
        await pexels.search("mar", **SEARCH)
    assert await pexels.search("mar", **SEARCH)


@pytest.mark.parametrize(
    ("left", "retry_after", "pause"),
    [(100, None, timedelta(minutes=5)), (1, None, timedelta(hours=1)), (1, 7, timedelta(seconds=7))],
)
async def test_429_pauses_as_long_as_requested_or_an_hour_once_the_monthly_quota_is_used_up(
    standin: StandIn, pexels: Pexels, left: int, retry_after: float | None, pause: timedelta
) -> None:
    standin.faults.left = left
    await pexels.search("mar", **SEARCH)
    assert pexels.requests_left == left - 1
    standin.faults.rate_limited, standin.faults.retry_after = 1, retry_after
    with pytest.raises(RateLimited) as raised:
        await pexels.search("mar", **SEARCH)
    assert raised.value.delay == pause


async def test_a_wrong_key_pauses_the_pool_and_is_never_shown(base_url: str) -> None:
    wrong = Pexels(settings_for(base_url, api_key="SECRET-of-another"))
    with pytest.raises(ProviderRejected, match="PEXELS_API_KEY") as raised:
        await wrong.search("mar", **SEARCH)
    assert "SECRET" not in str(raised.value)
    await wrong.close()


async def test_without_a_key_nothing_is_sent(standin: StandIn, base_url: str) -> None:
    keyless = Pexels(settings_for(base_url, api_key=""))
    with pytest.raises(ProviderRejected, match="PEXELS_API_KEY"):
        await keyless.search("mar", **SEARCH)
    assert standin.requests == []


async def test_an_unreachable_provider_counts_as_down() -> None:
    away = Pexels(settings_for("http://127.0.0.1:9"))
    with pytest.raises(ProviderDown):
        await away.search("mar", **SEARCH)
    await away.close()


async def test_a_request_that_pexels_rejects_fails_permanently(pexels: Pexels) -> None:
    with pytest.raises(FootageRefused) as raised:
        await pexels.search("", **SEARCH)
    assert isinstance(raised.value, GiveUp)


async def test_a_hostile_answer_returns_no_link_that_a_page_could_execute(
    pexels: Pexels, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [None, "x", {}, video(1, video_files=[]), video(2, duration=-1), video("no number")]
    bad += [video(5, duration=nan), video(6, duration=inf), video(10**400), video(7, video_files=[HUGE])]
    good = video(
        3, url="javascript:alert(1)", user={"name": "A\r\n\x00B" + "x" * 500}, tags=[None, ["a"], "praia"] * 90
    )
    search_with_response(monkeypatch, pexels, {"videos": [*bad, good]})
    [found] = await pexels.search("mar", **SEARCH)
    assert (found.id, found.url) == ("pexels-3", "")
    assert found.author.isprintable()
    assert (len(found.author), len(found.tags)) == (200, 50)


@pytest.mark.parametrize("reported", [[], {}, {"videos": None}, {"videos": {}}, "x", None])
async def test_an_answer_in_another_format_is_an_error(
    pexels: Pexels, monkeypatch: pytest.MonkeyPatch, reported: Any
) -> None:
    search_with_response(monkeypatch, pexels, reported)
    with pytest.raises(InvalidAnswer):
        await pexels.search("mar", **SEARCH)


def video(number: Any, **changed: Any) -> dict[str, Any]:
    file = {"link": "https://videos.example.com/1.mp4", "file_type": MP4, "width": 1920, "height": 1080}
    return {"id": number, "duration": 10, "video_files": [file]} | changed


def search_with_response(monkeypatch: pytest.MonkeyPatch, pexels: Pexels, response: Any) -> None:
    async def request(*_: Any, **__: Any) -> Response:
        return Response(200, {}, json.dumps(response).encode())

    monkeypatch.setattr(pexels._outgoing, "request", request)
