"""The pages of stories, as a visitor sees them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from retoma.store.database import Database
from retoma_apps.stories.application import make_app
from retoma_apps.stories.steps.writing.bundled import BundledStoryWriter
from tests.apps.stories.story_app import StoryApp, make_services, patch_media
from tests.conftest import empty_database
from tests.server.api import an_api
from tests.server.pages.visitor import Visitor, token_of, visible_text

HERE = {"address": "127.0.0.1", "host": "127.0.0.1:8765"}


class StoryVisitor(Visitor):
    def __init__(self, app: StoryApp) -> None:
        super().__init__(app.api)
        self.app = app

    async def submit(self, page: str, path: str, **fields: str) -> str:
        """Submit a form of a page, and return the text of the page that follows."""
        token = token_of(await self.get(page))
        answer = await self.post(path, {"csrf": token, **fields})
        assert answer.status_code in (303, 422), answer.text
        return visible_text(await self.get(answer.headers["location"]) if answer.status_code == 303 else answer)


@pytest.fixture
async def visitor(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StoryVisitor]:
    await empty_database(database)
    patch_media(monkeypatch)
    services = make_services(tmp_path)
    async with an_api(database, application=make_app(services), scopes=None, development=True, **HERE) as api:
        yield StoryVisitor(StoryApp(api, services))


async def test_a_story_is_ordered_with_the_form(visitor: StoryVisitor) -> None:
    fields = {"topic": "Tea", "scenes": "2", "languages": "en, es", "channel": "principal", "key": "one"}
    for _ in range(2):
        shown = await visitor.submit("/storyboard/?new=1", "/storyboard/", **fields)
        assert "The story has been ordered." in shown
    (run,) = await visitor.client.runs.list()
    assert (run.input["scenes"], run.input["languages"]) == (2, ["en", "es"])


async def test_a_wrong_field_is_explained_beside_it(visitor: StoryVisitor) -> None:
    fields = {"topic": "Tea", "scenes": "0", "languages": "en,en", "channel": "a/b"}
    shown = await visitor.submit("/storyboard/", "/storyboard/", **fields)
    assert "Enter a whole number from 1 to 100." in shown
    assert "Enter each language once" in shown
    assert await visitor.client.runs.list() == []


async def test_the_list_shows_status_and_progress(visitor: StoryVisitor) -> None:
    await visitor.app.order_until_review("Tea", languages=["en"])
    shown = visible_text(await visitor.get("/storyboard/"))
    assert "Tea" in shown
    assert "Ready for review" in shown
    assert "9 of 9" in shown


async def test_a_story_shows_scenes_film_thumbnails_and_texts(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea", languages=["en"])
    page = await visitor.get(f"/storyboard/{story}")
    shown = visible_text(page)
    for text in ("Sentence 2 on Tea.", "(en, version 1)", "Translation", "About it.", "Publish", "Rerun this scene"):
        assert text in shown, text
    assert page.text.count("<track ") == 2
    assert page.text.count('class="blank"') == 0


async def test_an_approval_names_the_person_and_the_time(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    visitor.cookies.clear()
    await visitor.log_in()
    address = f"/storyboard/{story}"
    await visitor.submit(address, f"{address}/publish", seen="1", thumbnail="2", title="Green tea", new_video="0")
    (review,) = await visitor.client.reviews.list(run=UUID(story), states=None)
    assert review.decided_by == "Ana"
    assert review.decided_at is not None


async def test_the_button_publishes_once(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    address = f"/storyboard/{story}"
    fields = {"seen": "1", "thumbnail": "2", "title": "Green tea", "new_video": "0"}
    assert "is being uploaded" in await visitor.submit(address, f"{address}/publish", **fields)
    assert "already decided" in await visitor.submit(address, f"{address}/publish", **fields)
    await visitor.app.work()
    (video,) = await visitor.app.channel.videos()
    assert video.title == "Green tea"
    shown = visible_text(await visitor.get(address))
    assert "Published" in shown
    assert video.video_id in shown
    (review,) = await visitor.client.reviews.list(run=None, states=None)
    assert str(review.decided_by) in shown


async def test_the_form_changes_the_description_and_the_tags(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    address = f"/storyboard/{story}"
    page = await visitor.get(address)
    assert 'name="description"' in page.text
    assert 'name="tags"' in page.text
    texts = {"title": "Tea", "description": "Leaves.\r\nWater.", "tags": "green tea\r\n\r\n leaves "}
    await visitor.submit(address, f"{address}/publish", seen="1", thumbnail="1", new_video="0", **texts)
    await visitor.app.work()
    (video,) = await visitor.app.channel.videos()
    assert (video.description, video.tags[-2:]) == ("Leaves.\nWater.", ("green tea", "leaves"))


@pytest.mark.parametrize(
    "wrong", [{"thumbnail": "0"}, {"thumbnail": "9"}, {"title": "Tea\0"}, {"title": "a\nb"}, {"tags": "x" * 61}]
)
async def test_a_form_that_names_nothing_to_publish_is_refused(visitor: StoryVisitor, wrong: dict[str, str]) -> None:
    story = await visitor.app.order_until_review("Tea")
    address = f"/storyboard/{story}"
    shown = await visitor.submit(address, f"{address}/publish", **{"seen": "1", "thumbnail": "1", **wrong})
    assert "names no thumbnail" in shown
    assert (await visitor.app.show(story))["status"] == "ready_for_review"


async def test_a_page_that_shows_an_earlier_film_publishes_nothing(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    address = f"/storyboard/{story}"
    await visitor.submit(address, f"{address}/rerun", scene="2", part="image")
    await visitor.app.work()
    shown = await visitor.submit(address, f"{address}/publish", seen="1", thumbnail="1")
    assert "the story was rerun since you opened the page" in shown
    assert (await visitor.app.show(story))["status"] == "ready_for_review"


async def test_publishing_too_early_changes_nothing(visitor: StoryVisitor) -> None:
    story = await visitor.app.order("Tea", scenes=2)
    await visitor.app.write_scripts()
    address = f"/storyboard/{story}"
    shown = await visitor.submit(address, f"{address}/publish", seen="1", thumbnail="1")
    assert "not ready for review" in shown
    assert await visitor.app.channel.videos() == []


async def test_one_scene_is_rerun_and_published_as_a_new_video(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_published("Tea")
    old = (await visitor.app.show(story))["url"]
    address = f"/storyboard/{story}"
    assert "is being rerun" in await visitor.submit(address, f"{address}/rerun", scene="2", part="image")
    await visitor.app.work()
    shown = visible_text(await visitor.get(address))
    assert "shows an earlier film" in shown
    assert f"The earlier one stays at {old}." in shown
    await visitor.submit(address, f"{address}/publish", seen="2", thumbnail="1", new_video="1")
    await visitor.app.work()
    shown = visible_text(await visitor.get(address))
    assert "Earlier videos" in shown
    assert old in shown
    assert len(await visitor.app.channel.videos()) == 2


async def test_a_published_story_is_played_with_its_tracks(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_published("Tea", languages=["en"])
    address = (await visitor.app.show(story))["url"]
    page = await visitor.get(address)
    assert page.text.count("<track ") == 2
    assert re.findall(r'<track [^>]*default srclang="([^"]+)"', page.text) == ["pt-BR"]  # that of the narration
    assert (await visitor.get(f"{address}/captions/en")).text.startswith("WEBVTT")
    assert (await visitor.get(f"{address}/captions/fr")).status_code == 404
    assert b"moving" in (await visitor.get(f"{address}/video")).content


async def test_the_page_of_costs_has_the_table_and_excludes_computing(visitor: StoryVisitor) -> None:
    await visitor.client.costs.set_price("offline", "text", unit=20_000)
    await visitor.app.order_until_review("Tea", scenes=2)
    shown = " ".join(visible_text(await visitor.get("/storyboard/costs")).split())
    assert "The cost of computing is not included." in shown
    assert "generate_image 0.04" in shown
    assert "Tea 0.04" in shown
    assert "10 150 3.00 150 0.1950 3.1950" in shown
    assert "50 750 15.00 750 0.9750 15.9750" in shown
    assert "100 1,500 30.00 1,500 1.9500 31.9500" in shown
    portuguese = " ".join(visible_text(await visitor.get("/storyboard/costs", Accept_Language="pt-BR")).split())
    assert "a US$ 0,02 por imagem" in portuguese
    assert "100 1.500 30,00 1.500 1,9500 31,9500" in portuguese
    assert re.search(r"Dia \(UTC\) US\$ \d\d/\d\d/\d{4} ", portuguese)


async def test_pages_are_in_portuguese_too(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Chá")
    pages = {"/storyboard/": "Pronta para revisão", f"/storyboard/{story}": "Publicar", "/storyboard/costs": "Custos"}
    for path, text in pages.items():
        assert text in visible_text(await visitor.get(path, Accept_Language="pt-BR")), path
    (review,) = await visitor.client.reviews.list(run=UUID(story))
    shown = visible_text(await visitor.get(f"/reviews/{review.id}", Accept_Language="pt-BR"))
    assert [name in shown for name in ("Duração", "Resolução", "Transcrição", "Refazer uma cena")] == [True] * 4


async def test_a_reviewer_of_a_story_watches_reads_and_chooses_a_thumbnail(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea", languages=["en"])
    (review,) = await visitor.client.reviews.list(run=UUID(story))
    page = (await visitor.get(f"/reviews/{review.id}")).text
    lines = re.findall(r'data-start="([\d.]+)" data-end="([\d.]+)" data-said="([^"]+)"', page)
    assert lines[:2] == [("0.000", "1.500", "Sentence 1 on Tea."), ("2.700", "4.200", "Sentence 2 on Tea.")]
    assert re.search(rf'data-peaks="/storyboard/waveforms/{story}/\w+"', page)
    assert re.findall(r'name="value.thumbnail" value="(\d)" form="decision" required( checked)?', page) == [
        ("1", " checked"),
        ("2", ""),
        ("3", ""),
    ]
    assert 'value="Tea" id="value.title"' in page
    assert review.due_at == review.opened_at + timedelta(hours=2)
    shown = visible_text(await visitor.get(f"/reviews/{review.id}"))
    assert "Subtitles in all languages: en, pt-BR" in shown
    assert "Your answer" not in shown


async def test_a_story_is_not_sent_back_but_its_scenes_can_be_rerun(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    (review,) = await visitor.client.reviews.list(run=UUID(story))
    page = (await visitor.get(f"/reviews/{review.id}")).text
    assert [name in page for name in ('data-do="send_back"', 'name="comments"', 'value="send_back"')] == [False] * 3
    assert f'href="/storyboard/{story}#scenes"' in page


async def test_a_reviewer_of_a_rerun_scene_sees_first_what_is_different(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    await visitor.app.rerun_scene(story, "2", "image", "audio")
    await visitor.app.work()
    (review,) = await visitor.client.reviews.list(run=UUID(story))
    shown = " ".join(visible_text(await visitor.get(f"/reviews/{review.id}")).split())
    changed = shown.partition("What you will see and hear differently")[2].partition("Compare with the previous")[0]
    assert re.search(r"0:02 Scene 2 Image Voice Before Now", changed)
    assert "Scene 1" not in changed


async def test_a_story_is_approved_in_the_inbox_with_what_the_form_says(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_review("Tea")
    (review,) = await visitor.client.reviews.list(run=UUID(story))
    path = f"/reviews/{review.id}"
    fields = {"action": "approve", "seen": str(review.revision), "value.thumbnail": "2", "value.title": "Green tea"}
    await visitor.submit(path, path, **fields)
    decided = await visitor.client.reviews.get(review.id)
    assert (decided.value["thumbnail"], decided.value["title"], decided.value["new_video"]) == (2, "Green tea", False)


async def test_hostile_texts_are_escaped(visitor: StoryVisitor) -> None:
    story = await visitor.app.order_until_published("<script>alert(1)</script>", languages=["en"])
    url = (await visitor.app.show(story))["url"]
    for path in ("/storyboard/", f"/storyboard/{story}", "/storyboard/costs", url):
        assert "<script>alert" not in (await visitor.get(path)).text, path


async def test_an_unknown_topic_is_explained(visitor: StoryVisitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(visitor.app.writer), "topics", BundledStoryWriter().topics)
    fields = {"topic": "The history of tea", "scenes": "2", "languages": "", "channel": "principal"}
    shown = await visitor.submit("/storyboard/", "/storyboard/", **fields)
    assert "needs a language model" in shown


async def test_a_story_that_would_exceed_a_budget_says_so(visitor: StoryVisitor) -> None:
    await visitor.app.api.client.budgets.set("principal", "month", 0)
    story = await visitor.app.order()
    await visitor.app.work()
    text = visible_text(await visitor.get(f"/storyboard/{story}", Accept_Language="en"))
    assert "A step would exceed a budget. Raise the budget, or decide the review." in text
