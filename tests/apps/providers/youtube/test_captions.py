"""Subtitle tracks and localised texts of a video, on YouTube's stand-in and in a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from retoma import GiveUp
from retoma_apps.providers.youtube import Channel, LocalChannel, LocalizedTexts
from retoma_apps.providers.youtube.youtube import YouTube
from standins.youtube import StandIn
from tests.apps.providers.youtube.conftest import SIZE, make_video

VTT = "WEBVTT\n\n1\n00:00:00.000 --> 00:00:01.000\nOlá\n".encode()
TEXTS = {"en": LocalizedTexts("Bonds <now>", "About bonds"), "es": LocalizedTexts("Bonos")}


async def publish(channel: Channel, film: Path) -> str:
    session = await channel.begin(make_video(localizations=TEXTS), SIZE)
    return (await channel.send(session, film)).video_id


async def test_an_upload_has_its_localised_texts(standin: StandIn, youtube: YouTube, film: Path) -> None:
    video = standin.videos[await publish(youtube, film)]
    assert video.resource["localizations"] == {
        "en": {"title": "Bonds \u2039now\u203a", "description": "About bonds"},
        "es": {"title": "Bonos", "description": ""},
    }


async def test_texts_are_replaced_and_the_rest_stays(standin: StandIn, youtube: YouTube, film: Path) -> None:
    video = standin.videos[await publish(youtube, film)]
    status = video.resource["status"]
    await youtube.update_texts(video.id, make_video(title="Another", localizations={"en": LocalizedTexts("Other")}))
    assert video.resource["snippet"]["title"] == "Another"
    assert list(video.resource["localizations"]) == ["en"]
    assert video.resource["status"] == status
    with pytest.raises(GiveUp):
        await youtube.update_texts("gone", make_video())


async def test_a_second_track_in_a_language_replaces_the_first(standin: StandIn, youtube: YouTube, film: Path) -> None:
    video = standin.videos[await publish(youtube, film)]
    for content in (VTT, VTT.replace("Olá".encode(), b"Oi")):
        await youtube.set_captions(video.id, "pt-BR", content)
    await youtube.set_captions(video.id, "en", VTT)
    assert (standin.requests["POST captions"], standin.requests["PUT captions"]) == (2, 1)
    assert {language: "Oi" in text for language, text in video.captions.items()} == {"pt-BR": True, "en": False}


async def test_an_account_without_consent_to_captions_does_not_pause_the_pool(
    standin: StandIn, youtube: YouTube, film: Path
) -> None:
    video = await publish(youtube, film)
    standin.faults.captions_forbidden = True
    with pytest.raises(GiveUp):
        await youtube.set_captions(video, "en", VTT)
    assert standin.videos[video].captions == {}


async def test_a_folder_keeps_texts_and_tracks(tmp_path: Path, film: Path) -> None:
    channel = LocalChannel(tmp_path / "channel")
    video = await publish(channel, film)
    await channel.set_captions(video, "en", VTT)
    await channel.set_captions(video, "en", VTT + b"more")
    await channel.update_texts(video, make_video(title="Another", localizations={"es": LocalizedTexts("Otro")}))
    (found,) = await channel.videos()
    assert (found.title, found.localizations) == ("Another", {"es": LocalizedTexts("Otro")})
    assert found.captions["en"].read_bytes() == VTT + b"more"
    assert len(found.video.read_bytes()) == SIZE


@pytest.mark.parametrize("language", ["../x", "", "english language", "en/../.."])
async def test_a_track_needs_a_language_tag(tmp_path: Path, film: Path, language: str) -> None:
    channel = LocalChannel(tmp_path / "channel")
    video = await publish(channel, film)
    with pytest.raises(ValueError, match="language tag"):
        await channel.set_captions(video, language, VTT)
    with pytest.raises(ValueError, match="language tag"):
        make_video(localizations={language: LocalizedTexts("Title")})
