"""Reviewers' feedback, in forms and in words, and how long it applies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from retoma import GiveUp
from retoma.reviews import Comment, Decision, Feedback
from retoma.store.database import Database
from retoma_apps.media import speaking
from retoma_apps.media.assembly import Film
from retoma_apps.media.narration import Joined
from retoma_apps.providers.footage import ClipUnavailable, FoundClip
from retoma_apps.providers.speech import SpokenAudio
from retoma_apps.videos.steps import footage, narration
from retoma_apps.videos.steps.footage import assemble_film, has_subtitles, search_footage
from retoma_apps.videos.steps.narration import generate_narration, rate_of
from tests.apps.videos.fast_video_app import FastVideoApp, running_fast_video_app
from tests.apps.videos.small_services import make_small_services
from tests.conftest import empty_database


class ClipLibrary:
    """Has five clips of half a second for any search except an empty one; some files are `away`."""

    name = "shelf"
    is_offline = False
    longest_shot = 15.0

    def __init__(self, away: str = "") -> None:
        self.away = away

    async def search(self, query: str, **_: Any) -> list[FoundClip]:
        if query == "nada":
            return []
        clip = (self.name, "", "", "", "", 0.5, 1920, 1080)
        return [FoundClip(f"{query} {number}", *clip, tags=(query,)) for number in range(5)]

    async def fetch(self, found: FoundClip, to: Any) -> None:
        if found.id[-1] in self.away:
            raise ClipUnavailable("the answer is 404")
        to.write_text(found.id)

    async def fetch_thumbnail(self, found: FoundClip, to: Any) -> None:
        to.write_text(found.id)


@dataclass
class ImageModel:
    name = "painter"
    is_offline = False
    follows_notes = True
    model = "brush"
    breaks_at: int = 0
    asked: list[str] = field(default_factory=list)

    async def make(self, prompt: str, *, width: int, height: int) -> bytes:
        self.asked.append(prompt)
        if len(self.asked) == self.breaks_at:
            raise OSError("the brush broke")
        return prompt.encode()


class Voice:
    """Speaks every language at 150 words per minute."""

    name = "parrot"
    is_offline = False
    has_word_times = True
    max_characters = 5_000

    async def say(self, text: str, *, voice: str, language: str, rate: float = 1.0) -> SpokenAudio:
        return SpokenAudio(f"{voice} {text}".encode(), len(text.split()) * 60 / 150 / rate)

    async def close(self) -> None: ...


async def join_sounds(sounds: Sequence[bytes], to: Path, **_: Any) -> Joined:
    await asyncio.to_thread(to.write_bytes, b"".join(sounds))
    starts = tuple(float(at) for at in range(len(sounds)))
    return Joined(len(sounds), starts, tuple(at + 0.9 for at in starts))


@pytest.fixture
def painter() -> ImageModel:
    return ImageModel()


@pytest.fixture
async def video_app(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, painter: ImageModel
) -> AsyncIterator[FastVideoApp]:
    """Narrates, searches for clips and assembles films as in production, but as text files."""
    await empty_database(database)
    outside = {"footage": ClipLibrary(), "images": painter, "voices": {"espeak": Voice()}}
    async with running_fast_video_app(database, tmp_path, monkeypatch, **outside) as made:
        monkeypatch.setattr(narration, "generate_narration", generate_narration)
        monkeypatch.setattr(speaking, "join", join_sounds)
        monkeypatch.setattr(footage, "search_footage", search_footage)
        monkeypatch.setattr(footage, "assemble_film", assemble_film)
        monkeypatch.setattr(footage, "assemble", make_film)
        yield made


async def make_film(shots: Any, narration: Any, lines: Sequence[Any], to: Any, **_: Any) -> Film:
    return Film(1.0, 16, 9, size=to.write_text(f"{len(lines)} lines, {[shot.path.name for shot in shots]}"))


async def send_back(video_app: FastVideoApp, checkpoint: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Send the work back and return the checkpoint of the new result."""
    answer = await video_app.decide(checkpoint, "revision_requested", **values)
    assert answer.status_code == 200, answer.text
    return await video_app.work_until_review(checkpoint["video_id"])


async def clips_of(video_app: FastVideoApp, checkpoint: dict[str, Any]) -> list[str]:
    results = await video_app.client.runs.get_results(UUID(checkpoint["video_id"]))
    return [clip["id"] for clip in results["broll_search"]["clips"]]


async def test_footage_sent_back_with_notes_only_differs_each_time(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("broll_review")
    seen: list[set[str]] = []
    for _ in range(3):
        seen.append(set(await clips_of(video_app, checkpoint)))
        checkpoint = await send_back(video_app, checkpoint, notes="outros clipes")
    assert len(set().union(*seen)) == sum(map(len, seen))


async def test_a_clip_is_kept_if_the_reviewers_words_match_nothing(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("broll_review")
    first = await clips_of(video_app, checkpoint)
    checkpoint = await send_back(video_app, checkpoint, queries={"1": "nada", "2": "um rio"})
    assert await clips_of(video_app, checkpoint) == [first[0], "um rio 0", *first[2:]]


@pytest.mark.parametrize("voice", ["azure_pt_br_antonio", "espeak_en"])
def test_an_unavailable_voice_is_reported_and_not_replaced(tmp_path: Path, voice: str) -> None:
    with pytest.raises(GiveUp, match="has no key or does not speak pt-BR") as raised:
        make_small_services(tmp_path).find_voice(voice, "pt-BR")
    assert raised.value.code == "NO_VOICE"


def test_the_default_voice_is_of_the_first_provider_that_has_one_for_the_language(tmp_path: Path) -> None:
    services = make_small_services(tmp_path)
    both = replace(services, voices={"elevenlabs": services.voices["espeak"], **services.voices})
    assert [both.find_voice("", language)[2] for language in ("pt-BR", "en")] == ["espeak_pt_br", "espeak_en"]


async def test_replaced_clips_differ_from_each_other_and_their_new_words_are_kept(
    video_app: FastVideoApp,
) -> None:
    checkpoint = await video_app.order_until("broll_review")
    first = await clips_of(video_app, checkpoint)
    checkpoint = await send_back(video_app, checkpoint, queries={"1": "um rio", "2": "um rio"})
    second = await clips_of(video_app, checkpoint)
    await send_back(video_app, checkpoint, notes="outros")
    third = await clips_of(video_app, checkpoint)
    assert second == ["um rio 0", "um rio 1", *first[2:]]
    assert third[:2] == ["um rio 2", "um rio 3"]


@pytest.mark.parametrize(("items", "replaced"), [(["1", "99"], {0}), (["99"], {0, 1, 2, 3})])
async def test_an_unknown_clip_number_is_ignored_or_means_all(
    video_app: FastVideoApp, items: list[str], replaced: set[int]
) -> None:
    checkpoint = await video_app.order_until("broll_review")
    before = await clips_of(video_app, checkpoint)
    decision = Decision("send_back", by="ana", items=items)
    await video_app.client.reviews.decide(UUID(checkpoint["checkpoint_id"]), decision)
    await video_app.work()
    after = await clips_of(video_app, checkpoint)
    assert {at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new} == replaced


async def test_a_clip_shorter_than_its_shot_covers_only_part_of_it(video_app: FastVideoApp) -> None:
    data = (await video_app.order_until("broll_review"))["data"]
    assert data["coverage_percentage"] == 50
    assert {(clip["duration_seconds"], clip["own_duration_seconds"]) for clip in data["clips"]} == {(1.0, 0.5)}


async def test_a_clip_whose_file_is_gone_is_replaced_by_another(video_app: FastVideoApp) -> None:
    video_app.services.footage.away = "01"  # type: ignore[attr-defined]
    assert {clip[-1] for clip in await clips_of(video_app, await video_app.order_until("broll_review"))} == {"2"}


async def test_footage_without_any_downloaded_file_is_retried(video_app: FastVideoApp) -> None:
    video_app.services.footage.away = "01234"  # type: ignore[attr-defined]
    audio = await video_app.order_until("audio_review")
    await video_app.approve(audio)
    await video_app.work()
    ((_, error),) = (await video_app.client.runs.get_errors(UUID(audio["video_id"]))).items()
    shown = await video_app.show(audio["video_id"])
    assert (shown["current_step"], error["code"]) == ("broll_search", "CLIP_UNAVAILABLE")
    assert shown["status"] != "failed"


async def test_a_narration_whose_scenes_differ_from_its_script_is_reported(video_app: FastVideoApp) -> None:
    audio = await video_app.order_until("audio_review")
    narration = (await video_app.client.runs.get_results(UUID(audio["video_id"])))["audio_generation"]
    await video_app.approve(audio, value={**narration, "scene_starts": narration["scene_starts"][:-1]})
    await video_app.work()
    assert "has 4 scenes, but its narration 3" in (await video_app.show(audio["video_id"]))["error_message"]


@pytest.mark.parametrize("voice", ["robô", "azure_pt_br_antonio", "espeak_en"])
async def test_an_unavailable_voice_is_rejected_with_a_list_of_others(video_app: FastVideoApp, voice: str) -> None:
    audio = await video_app.order_until("audio_review")
    answer = await video_app.decide(audio, "revision_requested", voice=voice)
    assert (answer.status_code, "espeak_pt_br" in answer.text) == (422, True)
    assert (await video_app.checkpoint(audio["checkpoint_id"]))["status"] == "pending"


async def test_an_unknown_voice_is_rejected_by_every_way_of_sending_back(video_app: FastVideoApp) -> None:
    audio = await video_app.order_until("audio_review")
    body = {"action": "send_back", "extra": {"voice": "robô"}}
    answer = await video_app.api.post(f"/api/v1/reviews/{audio['checkpoint_id']}/decision", json=body)
    assert (answer.status_code, "espeak_pt_br" in answer.text) == (422, True), answer.text


@pytest.mark.parametrize("voice", ["azure_pt_br_antonio", "espeak_en"])
@pytest.mark.parametrize("answer", ["approved", "revision_requested"])
async def test_an_unavailable_voice_asks_a_person_and_no_other_voice_replaces_it(
    video_app: FastVideoApp, voice: str, answer: str
) -> None:
    audio = await video_app.order_until("audio_review")
    decision = Decision("send_back", by="ana", extra={"voice": voice})
    await video_app.client.reviews.decide(UUID(audio["checkpoint_id"]), decision)
    open_review = await video_app.work_until_review(audio["video_id"])
    assert (open_review["checkpoint_type"], open_review["data"]["reason"]["code"]) == ("audio_generation", "NO_VOICE")
    await video_app.decide(open_review, answer, notes="como antes")
    again = await video_app.work_until_review(audio["video_id"])
    assert (again["checkpoint_type"], again["data"]["voice_used"]) == ("audio_review", "espeak_pt_br")


async def test_a_video_whose_voice_has_no_key_continues_from_its_approved_script_as_a_fork(
    video_app: FastVideoApp,
) -> None:
    await video_app.client.tenants.set_profile("financas", {"seconds": 25, "voice": "azure_pt_br_antonio"})
    script = await video_app.order_until("script_review")
    await video_app.approve(script)
    await video_app.work()
    assert "set the key of azure" in (await video_app.show(script["video_id"]))["error_message"]
    fork = await video_app.client.runs.fork(UUID(script["video_id"]), {"voice": ""})
    assert (await video_app.work_until_review(str(fork.id)))["checkpoint_type"] == "audio_review"


@pytest.mark.parametrize(
    "values", [{"voice": "espeak_en"}, {"voice": "robô"}, {"language": "en", "voice": "espeak_pt"}]
)
async def test_a_video_in_a_language_that_its_voice_does_not_speak_does_not_start(
    video_app: FastVideoApp, values: dict[str, str]
) -> None:
    body = {"pipeline": "longform", "input": {"topic": "Renda fixa", **values}}
    answer = await video_app.api.post("/api/v1/runs", json=body)
    assert (answer.status_code, "voice" in answer.text) == (422, True)
    assert await video_app.client.runs.list() == []


async def test_feedback_without_effect_is_rejected_by_every_way_of_sending_back(video_app: FastVideoApp) -> None:
    final = await video_app.order_until("final_review")
    for to, extra in (("video_assembly", {"thumbnail_texts": ["Ouro"]}), ("thumbnail_gen", {"subtitles": False})):
        body = {"action": "send_back", "to": to, "extra": extra}
        answer = await video_app.api.post(f"/api/v1/reviews/{final['checkpoint_id']}/decision", json=body)
        assert (answer.status_code, f"it has no effect on {to}" in answer.text) == (422, True), answer.text
    assert (await video_app.checkpoint(final["checkpoint_id"]))["status"] == "pending"


async def publish_with_feedback(video_app: FastVideoApp) -> UUID:
    """Publish a video with feedback at each step that keeps it."""
    script = await send_back(
        video_app, await video_app.order_until("script_review"), notes="fale das debêntures", rewind_to="research"
    )
    await video_app.approve(script)
    audio = await video_app.work_until_review(script["video_id"])
    await video_app.approve(await send_back(video_app, audio, voice="espeak_pt", rate=1.4))
    await video_app.approve(await video_app.work_until_review(script["video_id"]))
    final = await video_app.work_until_review(script["video_id"])
    back = {"rewind_to": "thumbnail_gen", "thumbnail_texts": ["Ouro"], "notes": "mais azul"}
    return UUID((await video_app.finish(await send_back(video_app, final, **back)))["id"])


FORKS: list[tuple[dict[str, str], bool, tuple[str, float]]] = [
    ({"language": "en"}, False, ("espeak_en", 1.0)),
    ({"topic": "Como se faz café"}, False, ("espeak_pt", 1.4)),
    ({"voice": "espeak_pt_br"}, True, ("espeak_pt_br", 1.0)),
    ({"style": "calmo"}, True, ("espeak_pt", 1.4)),
]
"""What is changed, whether the feedback still applies, and the voice and speed of the narration."""


async def test_a_fork_keeps_only_feedback_on_its_own_topic_and_voice(video_app: FastVideoApp) -> None:
    video = await publish_with_feedback(video_app)
    for changes, is_wished, spoken in FORKS:
        fork = (await video_app.client.runs.fork(video, changes)).id
        await video_app.finish(await video_app.work_until_review(str(fork)))
        results = await video_app.client.runs.get_results(fork)
        assert (
            results["research"]["feedback_history"]
            == results["script_generation"]["feedback_history"]
            == ["fale das debêntures"] * is_wished
        )
        assert results["thumbnail_gen"]["feedback_history"] == ["mais azul"] * is_wished
        assert ("Ouro" in {one["text"] for one in results["thumbnail_gen"]["variants"]}) is is_wished
        assert (results["audio_generation"]["voice"], results["audio_generation"]["rate"]) == spoken


async def test_a_video_without_subtitles_has_none_until_they_are_requested(video_app: FastVideoApp) -> None:
    checkpoint = await video_app.order_until("final_review")
    has = [checkpoint["data"]["subtitles"]]
    for value in ({"notes": "sem legendas"}, {"subtitles": False}, {"notes": "com legendas"}, {"subtitles": True}):
        checkpoint = await send_back(video_app, checkpoint, **value)
        has.append(checkpoint["data"]["subtitles"])
    assert has == [True, False, False, True, True]


async def test_each_thumbnail_is_charged_once_and_a_new_video_keeps_them(
    video_app: FastVideoApp, painter: ImageModel
) -> None:
    painter.breaks_at = 2
    filmed = await video_app.order_until("broll_review")
    await video_app.approve(filmed)
    await video_app.api.sandbox.work()
    final = await video_app.work_until_review(filmed["video_id"])
    again = await send_back(video_app, final, notes="sem legendas", rewind_to="video_assembly")
    charged = await video_app.client.costs.list_charges(UUID(final["video_id"]))
    assert [(one.step, one.resource, one.units) for one in charged if one.provider == "painter"] == [
        ("thumbnail_gen", "brush", 1)
    ] * 3
    assert len(painter.asked) == 4
    assert again["data"]["thumbnail_variants"] == final["data"]["thumbnail_variants"]
    assert len({one["data"]["video_preview_url"].partition("?")[0] for one in (again, final)}) == 2


async def test_thumbnails_keep_the_text_and_the_feedback_of_reviewers(
    video_app: FastVideoApp, painter: ImageModel
) -> None:
    first = await video_app.order_until("final_review")
    back = {"rewind_to": "thumbnail_gen"}
    worded = await send_back(video_app, first, thumbnail_texts=["Café já", "Dois"], notes="mais azul", **back)
    last = await send_back(video_app, worded, thumbnail_texts=["Chá já"], notes="mais claro", **back)
    third = first["data"]["thumbnail_variants"][2]["text"]
    texts = [[one["text"] for one in each["data"]["thumbnail_variants"]] for each in (worded, last)]
    assert texts == [["Café já", "Dois", third], ["Chá já", "Dois", third]]
    assert "mais claro mais azul" in painter.asked[-1]


@pytest.mark.parametrize("many", [{"thumbnail_texts": ["a"] * 4}, {"thumbnail_texts": ["a" * 301]}])
async def test_a_thumbnail_text_over_the_limit_is_rejected(video_app: FastVideoApp, many: dict[str, Any]) -> None:
    checkpoint = await video_app.order_until("final_review")
    answer = await video_app.decide(checkpoint, "revision_requested", rewind_to="thumbnail_gen", **many)
    assert (answer.status_code, "thumbnail_texts" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("message", "rate"),
    [
        (None, 1.2),
        (Feedback(notes="de novo"), 1.2),
        (Feedback(notes="Fale mais devagar."), 1.1),
        (Feedback(notes="Desacelere um pouco."), 1.1),
        (Feedback(notes="Desacelera"), 1.1),
        (Feedback(notes="Acelere."), 1.3),
        (Feedback(comments=(Comment("faster here", 3.5),)), 1.3),
        (Feedback(notes="slower", extra={"rate": 0.9}), 0.9),
    ],
)
def test_a_narration_keeps_its_speed_unless_a_reviewer_changes_it(message: Feedback | None, rate: float) -> None:
    assert rate_of(message, 1.2) == rate


@pytest.mark.parametrize(
    ("message", "before", "has"),
    [
        (None, False, False),
        (Feedback(notes="Sem as legendas, por favor"), True, False),
        (Feedback(notes="now with subtitles"), False, True),
        (Feedback(notes="without subtitles", extra={"subtitles": True}), False, True),
    ],
)
def test_subtitles_stay_unchanged_unless_a_reviewer_changes_them(
    message: Feedback | None, before: bool, has: bool
) -> None:
    assert has_subtitles(message, before) is has


NOTES_FOLLOWED = {
    "script_review": ("fale do risco, e mais curto", "conte a história de um jeito engraçado"),
    "audio_review": ("fale mais devagar, por favor", "tire o eco do fundo"),
    "broll_review": ("outros clipes, por favor", "mostre mais moedas"),
    "final_review": ("without subtitles", "cut the first 3 seconds and add music"),
}


@pytest.mark.parametrize("review", NOTES_FOLLOWED)
async def test_feedback_that_a_step_cannot_follow_is_rejected_before_it_is_recorded(
    video_app: FastVideoApp, review: str
) -> None:
    followed, refused = NOTES_FOLLOWED[review]
    checkpoint = await video_app.order_until(review)
    path = f"/api/v1/reviews/{checkpoint['checkpoint_id']}/decision"
    for answer in (
        await video_app.decide(checkpoint, "revision_requested", notes=refused),
        await video_app.decide(checkpoint, "revision_requested", notes=f"{followed}; {refused}"),
        await video_app.api.post(path, json={"action": "send_back", "notes": refused}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (422, "FEEDBACK_NOT_SUPPORTED"), answer.text
        assert "is not supported: " in answer.json()["detail"]
        can_be = answer.json()["detail"].partition("is not supported: ")[2]
        assert re.search(r"(: |fill in |numbers in )“", can_be), can_be
    assert (await video_app.checkpoint(checkpoint["checkpoint_id"]))["status"] == "pending"
    assert (await video_app.show(checkpoint["video_id"]))["revision"] == checkpoint["revision"]
    await send_back(video_app, checkpoint, notes=followed)


async def test_offline_thumbnails_change_only_their_text_or_image(video_app: FastVideoApp, painter: ImageModel) -> None:
    painter.follows_notes = False
    checkpoint, to = await video_app.order_until("final_review"), {"rewind_to": "thumbnail_gen"}
    refused = await video_app.decide(checkpoint, "revision_requested", notes="ponha um gato", **to)
    assert (refused.status_code, refused.json()["code"]) == (422, "FEEDBACK_NOT_SUPPORTED")
    checkpoint = await send_back(video_app, checkpoint, notes="outras imagens", **to)
    await send_back(video_app, checkpoint, thumbnail_texts=["Ouro"], **to)


FIELDS = [
    ("audio_review", {"rate": 1.2}),
    ("broll_review", {"clips": [1]}),
    ("broll_review", {"queries": {"1": "moedas"}}),
    ("final_review", {"subtitles": False}),
    ("final_review", {"thumbnail_texts": ["Ouro"], "rewind_to": "thumbnail_gen"}),
]


@pytest.mark.parametrize(("review", "values"), FIELDS)
async def test_a_note_without_effect_is_rejected_even_with_a_filled_in_field(
    video_app: FastVideoApp, painter: ImageModel, review: str, values: dict[str, Any]
) -> None:
    painter.follows_notes = False
    checkpoint = await video_app.order_until(review)
    refused = await video_app.decide(checkpoint, "revision_requested", notes="ponha um gato", **values)
    assert (refused.status_code, refused.json()["code"]) == (422, "FEEDBACK_NOT_SUPPORTED"), refused.text
    assert (await video_app.decide(checkpoint, "revision_requested", **values)).status_code == 200


async def test_a_language_model_receives_everything_a_reviewer_writes(
    video_app: FastVideoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(video_app.services.writer), "follows_notes", True)
    await send_back(
        video_app, await video_app.order_until("script_review"), notes="conte a história de um jeito engraçado"
    )
