"""An article from its request to its draft, offline."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from retoma import GiveUp, minutes, seconds
from retoma.errors import ProviderDown, ProviderRejected, RateLimited
from retoma_apps.autowriter.models import MAX_KEYWORD_LENGTH
from retoma_apps.autowriter.settings import PIPELINE_VERSION
from retoma_apps.autowriter.states import STEPS
from retoma_apps.providers.images.errors import ImageUnavailable
from retoma_apps.providers.keywords import KeywordsError, OfflineKeywords
from retoma_apps.providers.llm.errors import InvalidJson, LlmUnavailable
from retoma_apps.providers.wordpress import MissingImage, PostChanged, PostLink, PublicationFailed, SiteRejected
from tests.apps.autowriter.samples import make_request
from tests.apps.autowriter.writer_app import COST, WriterApp

TIMEOUT = LlmUnavailable("no answer", "LLM_TIMEOUT")
PARTS = {
    "brief_created": "BriefDraft",
    "outline_created": "Outline",
    "title_slug_created": "TitleDraft",
    "meta_created": "Meta",
    "headings_created": "Headings",
    "content_created": "Content",
    "tags_created": "Tags",
    "faq_created": "Faq",
}
ANSWERS: dict[str, dict[str, Any]] = {
    "BriefDraft": {"angle": "um ângulo novo", "audience": "quem acorda cedo"},
    "Outline": {
        "sections": [
            {"id": "planta", "topic": "a planta, de novo", "facts": [1, 2, 3, 4]},
            {"id": "cafeina", "topic": "a cafeína, de novo", "facts": [5, 6, 7, 8]},
            {"id": "limites", "topic": "os limites, de novo", "facts": [9, 10, 11, 12]},
        ]
    },
    "TitleDraft": {"title": "Café e cafeína, sem pressa"},
    "Meta": {
        "title": "Café e cafeína, sem pressa nenhuma",
        "description": "Café e cafeína explicados com calma: a planta, a xícara e quanto um adulto pode beber.",
    },
    "Headings": {
        "headings": [
            {"section": "planta", "level": 2, "text": "A planta, de novo"},
            {"section": "cafeina", "level": 3, "text": "A cafeína, de novo"},
            {"section": "limites", "level": 2, "text": "Os limites, de novo"},
        ]
    },
    "Content": {"introduction": ["Café e cafeína: a introdução nova."], "conclusion": ["O fim é novo."]},
    "Tags": {"tags": ["xícara", "manhã", "montanha"]},
    "Faq": {"questions": [{"question": "Quanto é muito?", "answer": "Dois cafés."}]},
    "ImagePrompts": {"images": [{"type": "featured", "prompt": "uma xícara azul", "alt": "Uma xícara"}]},
}
ENGLISH = {
    "theme": "Coffee and caffeine",
    "objective": "explain how much coffee is safe",
    "language": "en",
}


async def test_an_article_becomes_a_draft(writer_app: WriterApp) -> None:
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["step"], shown["revision"], shown["error"]) == ("done", "published_wp", 1, None)
    (draft,) = await writer_app.list_drafts()
    assert (draft["post_id"], draft["job_id"], draft["key"]) == (
        shown["post_id"],
        str(run.id),
        make_request().identity,
    )
    assert draft["post_status"] == "draft"
    assert draft["article"]["title"] == "Café e cafeína: o que dizem as fontes"
    assert draft["article"]["slug"] == "cafe-e-cafeina-o-que-dizem-as-fontes"
    assert draft["article"]["categories"] == ("Alimentação",)
    assert "<h2>Quanta cafeína tem o café</h2>" in draft["article"]["content"]
    assert "https://www.fda.gov" in draft["article"]["content"]
    assert [image["kind"] for image in draft["article"]["images"]] == ["featured", "inline"]
    assert f"autowriter:image {draft['article']['images'][1]['key']}" in draft["article"]["content"]


async def test_every_step_has_its_result(writer_app: WriterApp) -> None:
    run = await writer_app.write()
    assert set(STEPS) - {"csv_parsed"} <= set(await writer_app.get_results(run.id))


async def test_every_step_returns_what_its_provider_answered(writer_app: WriterApp) -> None:
    writer_app.writer.changes = ANSWERS
    run = await writer_app.write(make_request(keyword="café e cafeína"))
    results = await writer_app.get_results(run.id)
    for step, part in PARTS.items():
        assert {name: results[step][name] for name in ANSWERS[part]} == ANSWERS[part], step
    assert results["brief_created"]["pipeline_version"] == PIPELINE_VERSION
    assert results["title_slug_created"]["slug"] == "cafe-e-cafeina-sem-pressa"
    suggested = await OfflineKeywords().suggest("café e cafeína", language="pt-BR", limit=10)
    assert results["keywords_resolved"]["focus"] == "café e cafeína"
    assert [each["text"] for each in results["keywords_resolved"]["others"]] == [
        each.text for each in suggested.found if each.text != "café e cafeína"
    ]
    assert results["image_prompts_created"] == ANSWERS["ImagePrompts"]["images"]
    assert writer_app.pictures.prompts == ["uma xícara azul"]
    image = results["images_resolved"]["featured"]
    assert (image["alt"], image["provider"]) == ("Uma xícara", "pictures")
    assert results["quality_gate_passed"] == results["quality_checked"]
    payload = results["payload_ready"]
    assert (payload["title"], payload["slug"], payload["tags"]) == (
        "Café e cafeína, sem pressa",
        "cafe-e-cafeina-sem-pressa",
        ANSWERS["Tags"]["tags"],
    )
    assert (payload["meta"], payload["focus_keyword"]) == (ANSWERS["Meta"], "café e cafeína")
    assert (payload["language"], payload["categories"], payload["images"]) == ("pt-BR", ["Alimentação"], [image])
    texts = ["a introdução nova.", "<h2>A planta, de novo</h2>", "O fim é novo.", "Quanto é muito?", "Dois cafés."]
    assert [text for text in texts if text not in payload["content"]] == []


@pytest.mark.parametrize("changes", [ENGLISH, {"theme": "Como dormir melhor"}, {**ENGLISH, "theme": "Better sleep"}])
async def test_the_other_bundled_themes_become_drafts_too(writer_app: WriterApp, changes: dict[str, Any]) -> None:
    run = await writer_app.write(make_request(**changes))
    results = await writer_app.get_results(run.id)
    assert (run.state, results["quality_gate_passed"]["findings"]) == ("completed", [])


async def test_a_theme_without_facts_is_refused_with_the_variable_to_set(writer_app: WriterApp) -> None:
    run = await writer_app.write(make_request(theme="Direito tributário"))
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"], shown["error"]["actor"]) == ("failed", "NO_MODEL", "operator")
    assert "no model configured: set OPENROUTER_API_KEY" in shown["error"]["message"]
    assert writer_app.writer.calls == ["BriefDraft"]
    assert await writer_app.list_drafts() == []


async def test_without_a_model_a_theme_without_facts_is_refused_at_the_request(writer_app: WriterApp) -> None:
    writer_app.writer.is_offline = True
    body = make_request(theme="Direito tributário").model_dump(mode="json")
    answer = await writer_app.api.post("/autowriter/jobs", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "NO_MODEL")
    assert "no model configured: set OPENROUTER_API_KEY" in answer.json()["detail"]
    assert await writer_app.client.runs.list() == []


async def test_an_article_that_exists_is_returned_though_no_model_is_configured(writer_app: WriterApp) -> None:
    body = make_request(theme="Direito tributário").model_dump(mode="json")
    first = await writer_app.api.post("/autowriter/jobs", json=body)
    writer_app.writer.is_offline = True
    again = await writer_app.api.post("/autowriter/jobs", json=body)
    assert (again.status_code, again.json()["job_id"]) == (202, first.json()["job_id"])


async def test_results_are_readable_while_the_article_is_written(writer_app: WriterApp) -> None:
    run = await writer_app.start()
    async with writer_app.api.sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
        shown = await writer_app.show(run)
    assert (shown["state"], shown["step"]) == ("running", "brief_created")
    assert len(shown["outputs"]["brief_created"]["facts"]) == 12
    assert shown["pipeline_version"] == "1"


async def test_images_are_readable_before_the_article_is_published(writer_app: WriterApp) -> None:
    run = await writer_app.start()
    shown = await writer_app.show(run)
    async with writer_app.api.sandbox.manual_worker() as worker:
        while not shown["artifacts"]:
            await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
            shown = await writer_app.show(run)
    assert (shown["state"], shown["outputs"].keys() & {"payload_ready", "published_wp"}) == ("running", set())
    assert shown["outputs"]["image_prompts_created"]
    assert await writer_app.list_drafts() == []
    (drawn, *_) = shown["artifacts"]
    answer = await writer_app.api.get(f"/api/v1/runs/{run}/files/{drawn['file']}")
    assert answer.content.startswith(b"picture")


async def test_an_article_waits_before_its_first_step(writer_app: WriterApp) -> None:
    shown = await writer_app.show(await writer_app.start())
    assert (shown["state"], shown["step"], shown["start_time"]) == ("pending", None, None)


async def test_a_job_shows_its_times_providers_tokens_cost_and_artifacts(writer_app: WriterApp) -> None:
    clock = writer_app.api.sandbox.clock
    created = await clock.now()
    run = await writer_app.start()
    await clock.advance(minutes(10))
    async with writer_app.api.sandbox.manual_worker() as worker:
        finished = await worker.attempt(await worker.claim(1))
        await clock.advance(seconds(90))
        await worker.record_outcomes(finished)
    await clock.advance(minutes(5))
    await writer_app.work()
    shown = await writer_app.show(run)
    times = [datetime.fromisoformat(shown[name]) - created for name in ("created_at", "start_time", "end_time")]
    assert times == [minutes(0), minutes(10), minutes(16.5)]
    durations = {each["step"]: each["seconds"] for each in shown["steps"]}
    assert durations.keys() >= set(STEPS) - {"csv_parsed"}
    assert {step: each for step, each in durations.items() if each} == {"brief_created": 90}
    assert shown["providers"] == ["offline", "pictures", "writer"]
    assert (shown["tokens_in"], shown["tokens_out"], shown["cost_micros"]) == (900, 450, 9 * COST)
    assert [file["name"] for file in shown["artifacts"]] == ["featured.jpg", "inline-planta.jpg"]


async def test_a_timeout_is_retried_after_10_and_30_seconds_and_then_fails(writer_app: WriterApp) -> None:
    began = await writer_app.api.sandbox.clock.now()
    writer_app.writer.errors = [TIMEOUT, TIMEOUT, TIMEOUT]
    run = await writer_app.write()
    assert await writer_app.api.sandbox.clock.now() - began == timedelta(seconds=40)
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"], shown["error"]["step"]) == (
        "failed",
        "LLM_TIMEOUT",
        "brief_created",
    )
    assert writer_app.writer.calls == ["BriefDraft"] * 3


async def test_an_invalid_answer_is_repaired_or_retried(writer_app: WriterApp) -> None:
    writer_app.writer.errors = [InvalidJson("not JSON", "oops")] * 3
    run = await writer_app.write()
    assert await writer_app.get_state(run.id) == "done"
    assert writer_app.writer.calls[:4] == ["BriefDraft"] * 4  # two attempts, each with one repair


async def test_an_answer_that_stays_invalid_fails_with_its_code(writer_app: WriterApp) -> None:
    writer_app.writer.errors = [InvalidJson("not JSON", "oops")] * 6
    run = await writer_app.write()
    assert (await writer_app.show(run.id))["error"]["code"] == "LLM_INVALID_JSON"


async def test_a_rate_limit_is_waited_for_without_using_up_attempts(writer_app: WriterApp) -> None:
    writer_app.writer.errors = [RateLimited(5, "slow down")] * 5
    run = await writer_app.write()
    assert await writer_app.get_state(run.id) == "done"


async def test_a_keyword_provider_that_fails_has_its_code(writer_app: WriterApp) -> None:
    writer_app.keywords.errors = [KeywordsError("failed")] * 3
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"]) == ("failed", "KEYWORDS_API_FAIL")


@pytest.mark.parametrize(
    ("check", "words", "introduction"),
    [("length", 600, None), ("language", 700, "Cafeína e café: the most of it is in the cup. " * 40)],
)
async def test_a_warning_waits_for_a_person_before_anything_is_published(
    writer_app: WriterApp, check: str, words: int, introduction: str | None
) -> None:
    writer_app.writer.changes["Content"] = {} if introduction is None else {"introduction": [introduction]}
    run = await writer_app.write(make_request(word_count=words))
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"]) == ("needs_review", "QUALITY_GATE_FAIL")
    assert "quality_gate_passed" not in shown["outputs"]
    assert check in [each["check"] for each in shown["outputs"]["quality_checked"]["findings"]]
    assert await writer_app.list_drafts() == []
    await writer_app.decide(run.id, "approve")
    assert await writer_app.get_state(run.id) == "done"
    assert len(await writer_app.list_drafts()) == 1


async def test_a_warning_can_be_sent_back_to_the_part_that_caused_it(writer_app: WriterApp) -> None:
    writer_app.writer.changes["TitleDraft"] = {"title": "Outra coisa"}
    run = await writer_app.write()
    assert await writer_app.get_state(run.id) == "needs_review"
    writer_app.writer.changes.clear()
    await writer_app.decide(run.id, "send_back", to="title_slug_created", notes="use a palavra-chave")
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["revision"]) == ("done", 2)
    assert writer_app.writer.calls.count("Content") == 1


async def test_a_rejected_article_is_canceled_with_person_and_reason(writer_app: WriterApp) -> None:
    run = await writer_app.write(make_request(word_count=600))
    await writer_app.decide(run.id, "reject", notes="curto demais")
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["ended"]) == ("canceled", {"by": "ana", "reason": "curto demais"})
    assert await writer_app.list_drafts() == []


async def test_an_article_without_facts_never_passes(writer_app: WriterApp) -> None:
    sections = [
        {"section": each, "paragraphs": ["O café é bom. " * 20], "facts": []}
        for each in ("planta", "cafeina", "limites")
    ]
    writer_app.writer.changes["Content"] = {"sections": sections}
    run = await writer_app.write(make_request(word_count=300))
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"], shown["error"]["retried"]) == ("failed", "QUALITY_GATE_FAIL", False)
    assert "no fact" in shown["error"]["message"]
    assert await writer_app.list_drafts() == []
    quality = next(each for each in await writer_app.client.runs.list_jobs(run.id) if each.step == "quality_checked")
    assert quality.attempt == 1


async def test_filler_that_declares_facts_never_passes(writer_app: WriterApp) -> None:
    sections = [
        {"section": each, "paragraphs": ["O café é muito bom, e todos gostam dele. " * 10], "facts": [1, 5, 9]}
        for each in ("planta", "cafeina", "limites")
    ]
    writer_app.writer.changes["Content"] = {"sections": sections}
    run = await writer_app.write(make_request(word_count=300))
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"]) == ("failed", "QUALITY_GATE_FAIL")
    assert "no fact" in shown["error"]["message"]


async def test_the_questions_are_checked_before_anything_is_published(writer_app: WriterApp) -> None:
    answer = "Beba 17 litros por semana, pois a cafeína das sementes de café não faz mal a ninguém."
    writer_app.writer.changes["Faq"] = {"questions": [{"question": "Quanto?", "answer": answer}]}
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert shown["state"] == "needs_review"
    assert [each["check"] for each in shown["outputs"]["quality_checked"]["findings"]] == ["faq"]
    assert await writer_app.list_drafts() == []


async def test_a_failed_image_is_published_without_it_and_asked_about_afterwards(writer_app: WriterApp) -> None:
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")] * 3
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["step"], shown["error"]["code"]) == ("needs_review", "published_wp", "IMAGE_API_FAIL")
    (draft,) = await writer_app.list_drafts()
    assert [image["kind"] for image in draft["article"]["images"]] == ["inline"]
    await writer_app.decide(run.id, "approve")
    assert await writer_app.get_state(run.id) == "done"


async def test_an_image_that_wordpress_cannot_store_is_asked_about_too(writer_app: WriterApp) -> None:
    writer_app.blog.missing = (MissingImage("MEDIA_UPLOAD_FAIL", "a key", "the disk is full"),)
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["step"], shown["error"]["code"]) == ("needs_review", "published_wp", "IMAGE_API_FAIL")
    assert shown["outputs"]["published_wp"]["warnings"] == ["the disk is full"]
    writer_app.blog.missing = ()
    await writer_app.decide(run.id, "send_back", to="images_resolved", items=["featured"])
    assert await writer_app.get_state(run.id) == "done"


async def test_a_failed_image_can_be_generated_again(writer_app: WriterApp) -> None:
    writer_app.pictures.errors["larga"] = [ImageUnavailable("no answer")] * 3
    run = await writer_app.write()
    await writer_app.decide(run.id, "send_back", to="images_resolved", items=["featured"])
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["revision"]) == ("done", 2)
    (draft,) = await writer_app.list_drafts()
    assert (draft["revision"], [image["kind"] for image in draft["article"]["images"]]) == (2, ["featured", "inline"])


async def test_links_lead_to_other_posts_of_the_blog(writer_app: WriterApp) -> None:
    writer_app.blog.posts = [
        PostLink("https://saude.example/cafeina-e-sono", "Cafeína e adultos saudáveis"),
        PostLink("https://saude.example/bicicletas", "Bicicletas dobráveis"),
    ]
    run = await writer_app.write()
    (link,) = (await writer_app.get_results(run.id))["internal_links_created"]["links"]
    assert link["url"] == "https://saude.example/cafeina-e-sono"
    (draft,) = await writer_app.list_drafts()
    assert '<a href="https://saude.example/cafeina-e-sono">' in draft["article"]["content"]


async def test_a_link_to_a_post_that_is_gone_needs_a_review(writer_app: WriterApp) -> None:
    writer_app.blog.posts = [PostLink("https://saude.example/cafeina-e-sono", "Cafeína e adultos saudáveis")]
    run = await writer_app.write()
    writer_app.blog.posts = []
    await writer_app.client.runs.rerun(run.id, "quality_checked", by="ana")
    await writer_app.work()
    shown = await writer_app.show(run.id)
    assert shown["state"] == "needs_review"
    assert [each["check"] for each in shown["outputs"]["quality_checked"]["findings"]] == ["links"]
    (draft,) = await writer_app.list_drafts()
    assert draft["revision"] == 1


async def test_markup_in_a_models_text_is_escaped(writer_app: WriterApp) -> None:
    writer_app.writer.changes["Tags"] = {"tags": ["ok"]}
    writer_app.writer.changes["Faq"] = {"questions": [{"question": "<b>?</b>", "answer": "<script>x</script>"}]}
    await writer_app.write()
    (draft,) = await writer_app.list_drafts()
    assert "<script>" not in draft["article"]["content"]
    assert "&lt;script&gt;" in draft["article"]["content"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("AUTH_FAILED", SiteRejected("no", "AUTH_FAILED")),
        ("HMAC_INVALID", SiteRejected("no", "HMAC_INVALID")),
        ("AUTH_FAILED", ProviderRejected("no plugin")),
        ("BLOG_SWITCH_FAIL", GiveUp("no", "BLOG_SWITCH_FAIL")),
    ],
)
async def test_wrong_settings_of_a_site_are_not_retried_and_stop_no_other_blog(
    writer_app: WriterApp, code: str, error: Exception
) -> None:
    writer_app.blog.errors += [error]
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"], shown["error"]["actor"]) == ("failed", code, "operator")
    assert len(writer_app.blog.sent) == 1
    (pool,) = await writer_app.client.pools.list("autowriter-wordpress")
    assert pool.paused_until is None


@pytest.mark.parametrize("code", ["AUTH_FAILED", "HMAC_INVALID", "QUALITY_GATE_FAIL"])
async def test_rejected_credentials_and_a_failed_quality_gate_are_not_retried(writer_app: WriterApp, code: str) -> None:
    is_gate = code == "QUALITY_GATE_FAIL"
    writer_app.blog.errors += [] if is_gate else [SiteRejected("no", code)]
    run = await writer_app.write(make_request(word_count=3_000 if is_gate else 400))
    shown = await writer_app.show(run.id)
    assert (shown["state"], shown["error"]["code"], shown["error"]["retried"]) == ("failed", code, False)
    failed = [job for job in await writer_app.client.runs.list_jobs(run.id) if job.state == "failed"]
    assert [job.attempt for job in failed] == [1]


@pytest.mark.parametrize(
    "code", ["WP_PUBLISH_FAIL", "CATEGORY_CREATE_FAIL", "MEDIA_UPLOAD_FAIL", "SEO_APPLY_FAIL", "PUBLISH_FAILED"]
)
async def test_other_errors_of_a_site_are_retried_twice(writer_app: WriterApp, code: str) -> None:
    writer_app.blog.errors += [PublicationFailed("later", code)] * 3
    run = await writer_app.write()
    shown = await writer_app.show(run.id)
    assert (shown["state"], len(writer_app.blog.sent)) == ("failed", 3)
    assert shown["error"]["code"] == ("WP_PUBLISH_FAIL" if code == "PUBLISH_FAILED" else code)


async def test_the_rate_limit_of_a_site_is_waited_for(writer_app: WriterApp) -> None:
    writer_app.blog.errors += [RateLimited(7, "slow")] * 4
    run = await writer_app.write()
    assert await writer_app.get_state(run.id) == "done"


async def test_a_lost_answer_of_a_site_makes_no_second_post(writer_app: WriterApp) -> None:
    writer_app.blog.lost += [ProviderDown("cut")] * 2
    run = await writer_app.write()
    assert await writer_app.get_state(run.id) == "done"
    assert len(writer_app.blog.sent) == 3
    assert len(await writer_app.list_drafts()) == 1


async def test_a_post_that_a_person_edited_is_kept_or_overwritten_as_they_decide(writer_app: WriterApp) -> None:
    run = await writer_app.write()
    for action, forced, status in (("approve", [False], "kept"), ("send_back", [False, True], "done")):
        writer_app.blog.sent.clear()
        writer_app.blog.errors += [PostChanged("edited", "POST_EDITED")]
        await writer_app.client.runs.rerun(run.id, group="seo")
        await writer_app.work()
        shown = await writer_app.show(run.id)
        assert (shown["state"], shown["error"]["code"]) == ("needs_review", "POST_EDITED")
        await writer_app.decide(run.id, action, notes="o meu texto vale menos")
        assert await writer_app.get_state(run.id) == "done"
        assert [each.force for each in writer_app.blog.sent] == forced
        assert (await writer_app.get_results(run.id))["published_wp"]["status"] == status
    assert len(await writer_app.list_drafts()) == 1


async def test_a_decision_to_overwrite_a_post_holds_for_one_revision(writer_app: WriterApp) -> None:
    """Its publication failed, so the next revision must ask again if somebody edited the post."""
    run = await writer_app.write()
    writer_app.blog.errors += [PostChanged("edited", "POST_EDITED"), *[ProviderDown("cut")] * 3]
    await writer_app.client.runs.rerun(run.id, group="seo")
    await writer_app.work()
    await writer_app.decide(run.id, "send_back", notes="o meu texto vale menos")
    assert await writer_app.get_state(run.id) == "failed"
    writer_app.blog.errors += [PostChanged("edited since", "POST_EDITED")]
    await writer_app.client.runs.rerun(run.id, group="body")
    await writer_app.work()
    assert await writer_app.get_state(run.id) == "needs_review"
    assert [each.force for each in writer_app.blog.sent] == [False, False, *[True] * 3, False]


async def test_a_theme_longer_than_any_keyword_is_written(writer_app: WriterApp) -> None:
    run = await writer_app.write(make_request(theme=f"Café e cafeína {'muito ' * 30}"))
    keywords = (await writer_app.get_results(run.id))["keywords_resolved"]
    assert max(len(each["text"]) for each in keywords["others"]) <= MAX_KEYWORD_LENGTH
