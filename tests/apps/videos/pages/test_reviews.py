from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

from retoma.reviews import Decision
from retoma_apps.videos.models import Script
from retoma_apps.videos.pages.pages import REVIEW_TEMPLATES, TEMPLATES
from retoma_apps.videos.pipeline import longform
from retoma_apps.videos.steps.writing.quality import assess_quality
from tests.apps.videos.pages.conftest import OpenVideoPages
from tests.apps.videos.pages.video_pages import FILM, VideoPages
from tests.server.pages.test_pages import EVERYTHING, Elements

REVIEWS = tuple(REVIEW_TEMPLATES)


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_every_review_of_a_video_has_its_own_template() -> None:
    assert set(REVIEW_TEMPLATES) == {name for name, step in longform.steps.items() if step.review}
    assert all((TEMPLATES / name).is_file() for name in REVIEW_TEMPLATES.values())


EXPECTED_TEXTS = {
    "script_review": {
        "en": [
            "Title plainly",
            "0:00 First plainly",
            "On screen: a coin",
            "7.8 / 10",
            "Visual markers 2",
            "Not passed",
            "Must be fixed The script is far too short",
            "Remark Unbalanced quotes or brackets in scene 2.",
            "95% confidence",
            "“shorter”",
        ],
        "pt": ["4 palavras", "Fatos usados 12", "Já conhecidos 65%", "Reprovado", "“mais curto”"],
    },
    "audio_review": {
        "en": ["Length 1 min 12 sec", "Voice espeak plainly", "Speed 1.1", "0:00 First", "1:02 Second.", "“slower”"],
        "pt": ["Narração", "Transcrição", "Velocidade 1,1", "“mais devagar”"],
    },
    "broll_review": {
        "en": [
            "98% of the narration",
            "1 Scene 1 0:00 · 35 sec (clip of 12 sec)",
            "Relevance 85%",
            "By Eva",
            "Search: coins plainly",
            "all if none is marked",
        ],
        "pt": ["98% da narração", "2 Cena 2 0:35 · 35 s (clipe de 12 s) Trocar", "todos se nenhum for marcado"],
    },
    "final_review": {
        "en": [
            "10:12",
            "Resolution 1920",
            "380 MB",
            "When approved",
            "Variant 3",
            "VTT in the picture too",
            "“with subtitles”",
            "A note that the step cannot follow is rejected",
            "The film and its narration differ by 540.50 s in length",
            "The longest clip is shown for 35 sec 0:00",
        ],
        "pt": [
            "Horário da publicação Assim que for aprovado",
            "Capa",
            "tag plainly",
            "About plainly",
            "“sem legendas”",
            "Uma observação que a etapa não consegue seguir é recusada",
            "Palavras nas capas",
        ],
    },
}


async def test_a_reviewer_sees_everything_needed_to_decide_in_their_language(video_pages: VideoPages) -> None:
    run = await video_pages.begin()
    for step, languages in EXPECTED_TEXTS.items():
        await video_pages.work()
        (review,) = await video_pages.client.reviews.list(run=run)
        for language, sentences in languages.items():
            shown = text_of(await video_pages.read(f"/reviews/{review.id}", language=language))
            assert [each for each in sentences if each not in shown] == [], step
        await video_pages.approve(review)


async def test_media_players_in_a_review_get_the_byte_ranges_they_request(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review", scheduled_for="2031-02-04T12:00:00Z")
    page = await video_pages.read(f"/reviews/{review.id}")
    assert "2031-02-04 12:00:00 UTC" in page
    (film,) = re.findall(r'<video [^>]*src="([^"]+)"', page)
    (track,) = re.findall(r'<track [^>]*srclang="pt-BR"[^>]*src="([^"]+)"', page)
    part = await video_pages.visitor.get(film, Range="bytes=2-5")
    assert (part.status_code, part.content) == (206, FILM[2:6])
    subtitles = await video_pages.visitor.get(track)
    assert (subtitles.text, subtitles.headers["content-type"].partition(";")[0]) == ("WEBVTT", "text/vtt")


async def test_a_final_review_says_that_the_publication_time_has_passed(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review", scheduled_for="2030-01-01T17:00:00+02:00")
    for hours, is_late in ((2, False), (1, True)):
        await video_pages.visitor.api.sandbox.clock.advance(timedelta(hours=hours))
        page = text_of(await video_pages.read(f"/reviews/{review.id}"))
        assert "Publication time 2030-01-01 15:00:00" in page
        assert ("This time has passed" in page) is is_late


async def test_a_final_review_shows_the_credits_published_below_the_description(
    video_pages: VideoPages,
) -> None:
    review = await video_pages.review("final_review")
    credit = "Eva plainly (pexels plainly): https://pexels.example/1"
    shown = text_of(await video_pages.read(f"/reviews/{review.id}", language="pt"))
    assert (
        f"Estas linhas vão abaixo dela. Se as duas passarem do limite do canal, o texto acima é cortado. {credit}"
        in shown
    )
    decision = Decision("approve", by="ana", value={"thumbnail": 1, "description": "", "tags": []})
    await video_pages.client.reviews.decide(review.id, decision)
    closed = text_of(await video_pages.read(f"/reviews/{review.id}"))
    assert f"Description \N{EN DASH} {credit}" in closed
    assert "tag plainly" not in closed


async def test_a_script_is_edited_scene_by_scene_in_the_language_of_the_page(video_pages: VideoPages) -> None:
    review = await video_pages.review("script_review")
    path = f"/reviews/{review.id}"
    page = await video_pages.read(path, language="pt")
    assert '<label for="value.scenes.0.text">Texto</label>' in page
    assert "Knowledge reuse rate" not in page
    assert "Em JSON." not in page
    sources = {"value.sources.0.name": "Bank", "value.sources.0.confidence": "1,5"}
    fields = {"action": "edit", "value.title": "Other", **sources}
    fields |= {"value.scenes.0.text": "", "value.scenes.1.text": "Mine", "value.scenes.1.visual": "x" * 201}
    bounced = await video_pages.send(f"{path}?lang=pt", {**fields, "value.scenes.0.visual": ""})
    reported = re.findall(r'id="(value[^"]*)-why" role="alert">.*?</svg>([^<]*)', bounced.text)
    assert reported == [
        ("value.scenes.1.visual", "Longo demais: no máximo 200 caracteres."),
        ("value.sources.0.confidence", "Deve ser no máximo 1."),
    ]
    fixed = fields | {"value.scenes.1.visual": "a coin", "value.sources.0.confidence": "0,5"}
    assert (await video_pages.send(path, fixed)).status_code == 303
    value = (await video_pages.client.reviews.get(review.id)).value
    assert (value["title"], value["scenes"]) == ("Other", [{"text": "Mine", "visual": "a coin"}])
    assert (value["word_count"], value["facts_used"]) == (1, 12)
    assert value["quality"] == assess_quality(Script.model_validate(value), "en", 600).model_dump()
    assert [issue["code"] for issue in value["quality"]["issues"]] == ["much_too_short"]


async def test_fields_that_nobody_can_type_are_not_editable(video_pages: VideoPages) -> None:
    for step in ("audio_review", "broll_review"):
        review = await video_pages.review(step)
        assert 'data-do="edit"' not in await video_pages.read(f"/reviews/{review.id}")


async def test_the_lines_of_a_narration_show_their_times(video_pages: VideoPages) -> None:
    review = await video_pages.review("audio_review")
    page = await video_pages.read(f"/reviews/{review.id}")
    assert re.findall(r'data-start="([\d.]+)" data-end="([\d.]+)"', page) == [("0.000", "2.000"), ("62.250", "71.000")]
    assert 'data-transcript="narration"' in page
    assert re.search(r'<audio controls [^>]*id="narration"', page)
    script = await video_pages.visitor.get("/static/transcript.js")
    assert script.headers["content-type"].startswith("text/javascript")


async def test_marked_clips_are_the_items_that_are_sent_back(video_pages: VideoPages) -> None:
    review = await video_pages.review("broll_review")
    path = f"/reviews/{review.id}"
    page = await video_pages.read(path)
    assert re.findall(r'name="items" value="(\d)" form="decision"', page) == ["1", "2"]
    words = {"feedback.queries.1": "", "feedback.queries.2": '"night"'}
    bounced = await video_pages.send(
        path, {"action": "send_back", "items": "2", "to": "upload", "notes": "darker", **words}
    )
    assert bounced.status_code == 422
    assert 'name="feedback.queries.2" maxlength="200" value="&#34;night&#34;"' in bounced.text
    assert 'name="feedback.queries"' not in bounced.text
    assert re.findall(r'value="(\d)" form="decision" checked', bounced.text) == ["2"]
    sent = await video_pages.send(path, {"action": "send_back", "items": "2", "notes": "darker", **words})
    assert sent.status_code == 303
    decided = await video_pages.client.reviews.get(review.id)
    assert (decided.state, decided.back_items) == ("sent_back", ("2",))
    assert (decided.feedback or {})["queries"] == {"2": '"night"'}
    closed = await video_pages.read(path)
    assert 'name="items"' not in closed
    assert closed.count("To be replaced") == 1


async def test_a_final_review_is_approved_with_the_chosen_thumbnail(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review")
    path = f"/reviews/{review.id}"
    page = await video_pages.read(path)
    assert re.findall(r'name="value.thumbnail" value="(\d)" form="decision" required', page) == ["1", "2", "3"]
    assert "c-fail sm" not in page
    assert '<input type="text" inputmode="numeric"' not in page  # the form's own field for it
    without = await video_pages.send(path, {"action": "approve"})
    assert without.status_code == 422
    assert (await video_pages.client.reviews.get(review.id)).is_open
    fields = {"value.thumbnail": "2", "value.title": "Another", "value.tags": "one\r\ntwo"}
    chosen = await video_pages.send(path, {"action": "approve", **fields})
    assert chosen.status_code == 303, chosen.text
    value = (await video_pages.client.reviews.get(review.id)).value
    assert (value["thumbnail"], value["title"], value["tags"]) == (2, "Another", ["one", "two"])
    assert re.findall(r'value="(\d)" form="decision" required checked disabled', await video_pages.read(path)) == ["2"]


async def test_a_final_review_sent_back_with_thumbnail_texts_keeps_its_subtitles(
    video_pages: VideoPages,
) -> None:
    review = await video_pages.review("final_review")
    fields = {"action": "send_back", "to": "thumbnail_gen", "feedback.thumbnail_texts": "Um\r\nDois"}
    page = await video_pages.read(f"/reviews/{review.id}")
    (subtitles,) = re.findall(r'<select id="feedback.subtitles".*?</select>', page)
    assert re.findall(r'<option value="(\w*)"( selected)?>', subtitles) == [("", ""), ("yes", ""), ("no", "")]
    sent = await video_pages.send(f"/reviews/{review.id}", {**fields, "feedback.subtitles": ""})
    assert sent.status_code == 303, sent.text
    feedback = (await video_pages.client.reviews.get(review.id)).feedback or {}
    assert feedback["thumbnail_texts"] == ["Um", "Dois"]
    assert "subtitles" not in feedback


async def test_a_choice_is_kept_when_the_form_is_rejected(video_pages: VideoPages) -> None:
    review = await video_pages.review("final_review")
    fields = {"action": "approve", "value.thumbnail": "3", "value.title": "x" * 101}
    bounced = await video_pages.send(f"/reviews/{review.id}", fields)
    assert bounced.status_code == 422
    assert re.findall(r'value="(\d)" form="decision" required checked', bounced.text) == ["3"]
    assert re.search(r'name="value.title"[^>]*aria-invalid="true"', bounced.text)
    assert f'value="{"x" * 101}"' in bounced.text


async def test_text_of_models_providers_and_people_is_always_escaped(open_video_pages: OpenVideoPages) -> None:
    async with open_video_pages(EVERYTHING) as video_pages:
        run = await video_pages.begin(EVERYTHING, EVERYTHING.replace("/", ""))
        for step in (*REVIEWS, "published"):
            await video_pages.work()
            found = ["/videos/", "/videos/channels", "/videos/?new=1&notice=<script>"]
            reviews = await video_pages.client.reviews.list(run=run)
            found += [f"/reviews/{each.id}" for each in reviews]
            for path in found:
                page = await video_pages.read(path)
                elements = Elements()
                elements.feed(page)
                assert elements.tags.isdisjoint({"iframe", "object", "embed", "style", "base"}), path
                assert not [name for name, _ in elements.attributes if name.startswith("on")], path
                links = [value for name, value in elements.attributes if name in ("href", "src", "action", "poster")]
                safe = ("/", "#", "?", "https://bank.example", "https://pexels.example")
                assert [each for each in links if not each.startswith(safe) or each.startswith("//")] == [], path
            if step == "published":
                return
            assert "alert(1)" in page
            await video_pages.approve(reviews[0])


async def test_the_history_of_a_review_lists_the_clips_to_replace(video_pages: VideoPages) -> None:
    review = await video_pages.review("broll_review")
    await video_pages.client.reviews.decide(review.id, Decision("send_back", by="ana", items=["1"], notes="darker"))
    await video_pages.work()
    (again,) = await video_pages.client.reviews.list(run=review.run)
    for language, expected in (("en", "darker Items: 1"), ("pt", "darker Itens: 1")):
        pages = [
            text_of(await video_pages.read(f"/reviews/{each}", language=language)) for each in (review.id, again.id)
        ]
        assert [page.count(expected) for page in pages] == [2, 2]  # in the decision or request, and in the history


async def test_comments_are_offered_only_where_they_have_an_effect(video_pages: VideoPages) -> None:
    run = await video_pages.begin()
    body = {}
    for step in REVIEWS:
        await video_pages.work()
        (review,) = await video_pages.client.reviews.list(run=run)
        body[step] = 'name="comments"' in await video_pages.read(f"/reviews/{review.id}")
        await video_pages.approve(review)
    assert body == {"script_review": True, "audio_review": True, "broll_review": False, "final_review": True}
