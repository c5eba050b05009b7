"""The YouTube client against the stand-in: a video's metadata, and every rejection."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from retoma import GiveUp
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma.outgoing import NoResponse, Response
from retoma_apps.providers.youtube.error_mapping import until_midnight
from retoma_apps.providers.youtube.port import Status
from retoma_apps.providers.youtube.settings import YouTubeSettings
from retoma_apps.providers.youtube.youtube import YouTube
from standins.youtube import StandIn
from tests.apps.providers.youtube.conftest import (
    MARK,
    PNG,
    REFRESH,
    SECRET,
    SIZE,
    Clock,
    Switch,
    make_video,
    rewrite,
    settings_for,
)


async def test_a_video_is_private_until_its_publication_time_and_declared_as_synthetic(
    standin: StandIn, youtube: YouTube
) -> None:
    at = datetime(2026, 2, 4, 9, tzinfo=timezone(timedelta(hours=-3)))
    await youtube.begin(make_video(publish_at=at, description="Olá <b>"), SIZE)
    [session] = standin.sessions.values()
    assert session.size == SIZE
    assert session.resource["status"] == {
        "privacyStatus": "private",
        "publishAt": "2026-02-04T12:00:00Z",
        "selfDeclaredMadeForKids": False,
        "containsSyntheticMedia": True,
    }
    snippet = session.resource["snippet"]
    assert snippet["tags"] == [MARK, "finanças", "renda fixa"]
    assert (snippet["defaultLanguage"], snippet["defaultAudioLanguage"]) == ("pt-BR", "pt-BR")
    assert snippet["description"] == "Olá \u2039b\u203a"


async def test_without_a_publication_time_a_video_is_public_at_once(standin: StandIn, youtube: YouTube) -> None:
    await youtube.begin(make_video(), SIZE)
    [session] = standin.sessions.values()
    assert session.resource["status"]["privacyStatus"] == "public"
    assert "publishAt" not in session.resource["status"]


async def test_a_video_is_uploaded_then_processed_then_published_then_deleted(
    standin: StandIn, youtube: YouTube, film: Path, clock: Clock
) -> None:
    at = clock.now + timedelta(hours=1)
    video = (await youtube.send(await youtube.begin(make_video(publish_at=at), SIZE), film)).video_id
    assert await youtube.status(video) == Status("uploaded", publish_at=at)
    clock.now += timedelta(minutes=2)
    assert (await youtube.status(video)).state == "processed"
    clock.now = at
    assert (await youtube.status(video)).state == "published"
    standin.videos.clear()
    assert (await youtube.status(video)).state == "deleted"


@pytest.mark.parametrize(("ending", "state"), [("failure", "failed"), ("rejection", "rejected")])
async def test_a_rejected_video_reports_why(
    standin: StandIn, youtube: YouTube, film: Path, ending: str, state: str
) -> None:
    setattr(standin.faults, ending, "codec")
    video = (await youtube.send(await youtube.begin(make_video(), SIZE), film)).video_id
    status = await youtube.status(video)
    assert (status.state, status.reason) == (state, "codec")


async def test_a_thumbnail_is_set_and_may_be_set_again(
    standin: StandIn, youtube: YouTube, film: Path, picture: Path
) -> None:
    video = (await youtube.send(await youtube.begin(make_video(), SIZE), film)).video_id
    await youtube.set_thumbnail(video, picture)
    await youtube.set_thumbnail(video, picture)
    assert standin.videos[video].thumbnail == PNG


async def test_a_deleted_video_is_gone_and_may_be_deleted_again(standin: StandIn, youtube: YouTube, film: Path) -> None:
    video = (await youtube.send(await youtube.begin(make_video(), SIZE), film)).video_id
    await youtube.delete(video)
    await youtube.delete(video)
    assert (standin.videos, await youtube.find(MARK)) == ({}, None)
    standin.faults.forbidden = True
    with pytest.raises(ProviderRejected):
        await youtube.delete(video)


async def test_an_invalid_thumbnail_is_not_sent(standin: StandIn, youtube: YouTube, picture: Path) -> None:
    rewrite(picture, b"<svg/>")
    with pytest.raises(GiveUp, match="neither"):
        await youtube.set_thumbnail("abc", picture)
    rewrite(picture, PNG + bytes(2 * 1024**2))
    with pytest.raises(GiveUp, match="2 MB"):
        await youtube.set_thumbnail("abc", picture)
    rewrite(picture, PNG)
    with pytest.raises(GiveUp, match="404"):
        await youtube.set_thumbnail("abc", picture)
    assert standin.requests["POST set"] == 1


async def test_an_account_without_thumbnail_permission_does_not_pause_the_pool(
    standin: StandIn, youtube: YouTube, film: Path, picture: Path
) -> None:
    video = (await youtube.send(await youtube.begin(make_video(), SIZE), film)).video_id
    standin.faults.forbidden = True
    with pytest.raises(GiveUp, match="403"):
        await youtube.set_thumbnail(video, picture)
    with pytest.raises(ProviderRejected):
        await youtube.status(video)


async def test_one_access_token_is_reused_until_it_is_rejected(standin: StandIn, youtube: YouTube) -> None:
    for _ in range(3):
        await youtube.begin(make_video(), SIZE)
    assert len(standin.tokens) == 1
    standin.faults.refused_tokens = 1
    await youtube.begin(make_video(), SIZE)
    assert len(standin.tokens) == 2
    standin.faults.refused_tokens = 2
    with pytest.raises(ProviderRejected, match="access token"):
        await youtube.begin(make_video(), SIZE)


async def test_a_revoked_refresh_token_pauses_the_pool_and_names_the_setting(standin: StandIn, switch: Switch) -> None:
    unauthorised = YouTube(settings_for(switch.origin, refresh_token="1//revoked-CANARY", account="Canal B"))
    with pytest.raises(ProviderRejected, match="YOUTUBE_REFRESH_TOKEN_CANAL_B") as raised:
        await unauthorised.begin(make_video(), SIZE)
    assert "CANARY" not in repr(raised.value) + repr(unauthorised._settings)
    await unauthorised.close()


@pytest.mark.parametrize("missing", ["client_id", "client_secret", "refresh_token"])
async def test_without_an_account_nothing_is_requested(standin: StandIn, switch: Switch, missing: str) -> None:
    nobody = YouTube(settings_for(switch.origin, **{missing: ""}))
    with pytest.raises(ProviderRejected, match=f"YOUTUBE_{missing.upper()}"):
        await nobody.begin(make_video(), SIZE)
    assert not standin.requests
    await nobody.close()


async def test_each_account_uses_only_its_own_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOUTUBE_REFRESH_TOKEN", "main")
    monkeypatch.setenv("YOUTUBE_REFRESH_TOKEN_FINANCAS_BR", "second")
    tokens = [
        YouTubeSettings.for_account(account, _env_file=None).refresh_token.get_secret_value()
        for account in ("", "Finanças BR", "unknown")
    ]
    assert tokens == ["main", "second", ""]


@pytest.mark.parametrize("account", ["日本語", "!!!", "Финансы", "Финансы BR"])
def test_an_account_whose_name_cannot_form_a_variable_has_no_own_token(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YOUTUBE_REFRESH_TOKEN", "main")
    monkeypatch.setenv("YOUTUBE_REFRESH_TOKEN_BR", "second")
    with pytest.raises(GiveUp, match="Latin"):
        YouTubeSettings.for_account(account, _env_file=None)


async def test_an_exhausted_quota_waits_until_midnight_in_california(standin: StandIn, youtube: YouTube) -> None:
    standin.faults.quota = True
    with pytest.raises(RateLimited, match="quota") as raised:
        await youtube.begin(make_video(), SIZE)
    assert timedelta(0) < raised.value.delay <= timedelta(hours=25)


@pytest.mark.parametrize(
    ("date", "hours"),
    [
        ("Wed, 04 Feb 2026 07:00:00 GMT", 1),
        ("Wed, 04 Feb 2026 08:00:00 GMT", 24),
        ("Wed, 01 Jul 2026 06:00:00 GMT", 1),
        ("Sun, 08 Mar 2026 09:00:00 GMT", 22),  # clocks go forward that night
    ],
)
def test_midnight_is_computed_from_the_providers_clock_and_daylight_saving_time(date: str, hours: int) -> None:
    assert until_midnight(Response(403, {"date": date}, b"")) == timedelta(hours=hours)


async def test_a_channel_at_its_upload_limit_waits_for_a_day(standin: StandIn, youtube: YouTube) -> None:
    standin.faults.upload_limit = True
    with pytest.raises(RateLimited) as raised:
        await youtube.begin(make_video(), SIZE)
    assert raised.value.delay == timedelta(hours=24)


async def test_rate_limiting_waits_as_long_as_youtube_says(standin: StandIn, youtube: YouTube) -> None:
    standin.faults.rate_limited = 1
    with pytest.raises(RateLimited) as raised:
        await youtube.begin(make_video(), SIZE)
    assert raised.value.delay == timedelta(seconds=7)


@pytest.mark.parametrize(
    ("status", "reason", "error"),
    [
        (400, "invalidPublishAt", GiveUp),
        (403, "forbidden", ProviderRejected),
        (403, "insufficientPermissions", ProviderRejected),
        (403, "forbiddenPrivacySetting", GiveUp),
        (403, "userRateLimitExceeded", RateLimited),
        (404, "videoNotFound", GiveUp),
        (500, "backendError", ProviderDown),
        (503, None, ProviderDown),
    ],
)
async def test_each_rejection_has_its_own_error_and_repeats_no_secret(
    youtube: YouTube, monkeypatch: pytest.MonkeyPatch, status: int, reason: str | None, error: type[Exception]
) -> None:
    await youtube.begin(make_video(), SIZE)
    token = youtube._tokens.last
    message = f"{token} {SECRET} {REFRESH} no"
    reported = {"error": {"message": message, "errors": [{"reason": reason}] if reason else []}}
    answers(monkeypatch, youtube, Response(status, {}, json.dumps(reported).encode()))
    with pytest.raises(error) as raised:
        await youtube.begin(make_video(), SIZE)
    assert type(raised.value) is error
    assert "CANARY" not in str(raised.value)
    assert token not in str(raised.value)


@pytest.mark.parametrize(
    "location", [None, "https://evil.example/x", "http://www.googleapis.com/x", "https://evilgoogleapis.com/x"]
)
async def test_a_session_on_another_host_is_not_used_as_our_token_would_go_there(
    youtube: YouTube, monkeypatch: pytest.MonkeyPatch, location: str | None
) -> None:
    await youtube.begin(make_video(), SIZE)
    answers(monkeypatch, youtube, Response(200, {"location": location} if location else {}, b""))
    with pytest.raises(ProviderDown, match="no session"):
        await youtube.begin(make_video(), SIZE)


async def test_a_lost_answer_to_a_session_start_is_retryable(youtube: YouTube, monkeypatch: pytest.MonkeyPatch) -> None:
    await youtube.begin(make_video(), SIZE)
    answers(monkeypatch, youtube, NoResponse("https://x broke off", maybe_sent=True))
    with pytest.raises(ProviderDown):
        await youtube.begin(make_video(), SIZE)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"items": 5}', b'{"items": [{"status": 7}]}'])
async def test_an_invalid_answer_does_not_crash(
    youtube: YouTube, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    await youtube.begin(make_video(), SIZE)
    answers(monkeypatch, youtube, Response(200, {}, body))
    try:
        assert (await youtube.status("abc")).state in ("deleted", "uploaded")
    except ProviderDown:
        assert body in (b"<html>", b"[]")


async def test_no_secret_is_logged(
    standin: StandIn, youtube: YouTube, film: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), caplog.at_level(logging.WARNING, "httpcore2"):  # as in retoma.logs
        session = await youtube.begin(make_video(), SIZE)
        await youtube.send(session, film)
    upload_id = session.rpartition("=")[2]
    assert not any(secret in caplog.text for secret in (upload_id, SECRET, REFRESH, *standin.tokens))


def test_a_time_without_a_zone_and_a_foreign_marker_are_errors() -> None:
    with pytest.raises(ValueError, match="time zone"):
        make_video(publish_at=datetime.now(UTC).replace(tzinfo=None))
    with pytest.raises(ValueError, match="mark_of"):
        make_video(mark="finanças")


def answers(monkeypatch: pytest.MonkeyPatch, youtube: YouTube, answer: Response | NoResponse) -> None:
    async def request(*_: Any, **__: Any) -> Response:
        if isinstance(answer, NoResponse):
            raise answer
        return answer

    monkeypatch.setattr(youtube._outgoing, "request", request)
