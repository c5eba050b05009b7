"""Times are shown in the viewer's time zone, with UTC in the tooltip."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from retoma.server.pages.formats import Formats
from retoma.server.pages.page_context import TIME_ZONE_COOKIE
from tests.server.pages.visitor import OpenPages, Visitor, visible_text

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOON_TIP = 'datetime="2030-01-01T12:00:00Z" title="2030-01-01 12:00:00 UTC"'  # the tests' clock starts at noon


async def read_run(visitor: Visitor, language: str, zone: str | None) -> str:
    run = await visitor.client.start("film", {"topic": "tea"})
    if zone is not None:
        visitor.cookies[TIME_ZONE_COOKIE] = zone
    answer = await visitor.get(f"/runs/{run.id}?lang={language}")
    assert NOON_TIP in answer.text
    return " ".join(visible_text(answer).split())


@pytest.mark.parametrize(
    ("language", "zone", "time", "note"),
    [
        ("en", "America/Sao_Paulo", "Started 2030-01-01 09:00:00", "Times are shown in America/Sao_Paulo."),
        ("pt", "America/Sao_Paulo", "Início 01/01/2030 09:00:00", "Horários no fuso America/Sao_Paulo."),
        ("en", "Pacific/Auckland", "Started 2030-01-02 01:00:00", "Times are shown in Pacific/Auckland."),
        ("en", None, "Started 2030-01-01 12:00:00", "Times are shown in UTC."),
    ],
)
async def test_times_are_in_the_zone_that_the_browser_reported(
    open_pages: OpenPages, language: str, zone: str | None, time: str, note: str
) -> None:
    async with open_pages() as visitor:
        page = await read_run(visitor, language, zone)
        assert time in page
        assert note in page


@pytest.mark.parametrize(("now", "text"), [(NOON + HOUR, "1 hr ago"), (NOON - HOUR, "in 1 hr")])
def test_a_time_relative_to_now_has_utc_in_its_tooltip(now: datetime, text: str) -> None:
    assert Formats("en").ago(NOON, now) == f"<time {NOON_TIP}>{text}</time>"


async def test_a_day_that_the_viewer_enters_begins_in_their_zone(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {})
        today = datetime.now(ZoneInfo("Pacific/Auckland")).date()  # the id of a run has the real time
        counts = []
        for zone in ("Pacific/Auckland", "Etc/GMT+12"):  # where that day has begun, and where it has not
            visitor.cookies[TIME_ZONE_COOKIE] = zone
            shown = await visitor.get(f"/runs?since={today}")
            counts.append(shown.text.count('href="/runs/0'))
        assert counts == [1, 0]
        visitor.cookies[TIME_ZONE_COOKIE] = "Pacific/Auckland"
        assert (await visitor.get("/runs?since=0001-01-01")).status_code == 200


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "../../../etc/passwd", "/etc/localtime", "<script>", "america/sao_paulo\x7f", "x" * 3_000]
)
async def test_an_unknown_or_hostile_zone_falls_back_to_utc(open_pages: OpenPages, zone: str) -> None:
    async with open_pages() as visitor:
        page = await read_run(visitor, "en", zone)
        assert "Started 2030-01-01 12:00:00" in page
        assert "Times are shown in UTC." in page


async def test_a_stuck_run_and_its_waits_show_their_times_in_the_zone(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"topic": "tea"})
        visitor.cookies[TIME_ZONE_COOKIE] = "America/Sao_Paulo"
        answer = await visitor.get(f"/runs/{run.id}")
        assert "&lt;time" not in answer.text
        assert 'data-time-zone="America/Sao_Paulo"' in answer.text
