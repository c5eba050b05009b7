"""The pages: articles, imports, blogs, revisions, and what reviewers see."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from retoma.translations import CATALOGUES, Translator
from retoma_apps.autowriter.metrics import PERIODS
from retoma_apps.autowriter.models import MAX_CONTENT_LENGTH, ArticleRequest, Content, Image
from retoma_apps.autowriter.operations import overview
from retoma_apps.autowriter.operations.overview import list_article_page
from retoma_apps.autowriter.pages import messages
from retoma_apps.autowriter.pages.article_html import MAX_DEPTH, render_article
from retoma_apps.autowriter.pages.imports import LINES_PER_PAGE, LINES_PER_PREVIEW
from retoma_apps.autowriter.pages.reviews import list_used_facts
from retoma_apps.autowriter.states import ArticleState
from retoma_apps.autowriter.steps.csv_file import MAX_ROWS
from retoma_apps.autowriter.steps.error_codes import ERROR_CODES
from retoma_apps.autowriter.steps.writing.offline import list_bundled_facts
from retoma_apps.providers.images.errors import ImageUnavailable
from retoma_apps.providers.llm.errors import LlmUnavailable
from retoma_apps.providers.wordpress import Event, PostChanged
from tests.apps.autowriter.samples import HEADER, LINE, REQUEST, make_article, make_request
from tests.apps.autowriter.writer_app import WriterApp
from tests.server.pages.test_pages import EVERYTHING, Elements
from tests.server.pages.visitor import Visitor, token_of, visible_text

STATE_BADGE = re.compile('<span class="badge human')
WRONG_LINE = "saude,Café,explicar,pt-BR,7"
UNKNOWN_BLOG = "esportes,Café forte,explicar,pt-BR,400"
ARTICLE_FORM = {**{name: str(value) for name, value in REQUEST.items()}, "keyword": "", "tone": ""}
BLOG_FORM = {
    "id": "viagem",
    "name": "Viagem",
    "language": "pt-BR",
    "site": "",
    "site_id": "",
    "categories": "Praia\nMar",
}


class WriterPages:
    """AutoWriter, and a person who is logged in."""

    def __init__(self, writer_app: WriterApp) -> None:
        self.app = writer_app
        self.visitor = Visitor(writer_app.api)

    async def get(self, path: str = "", language: str = "en") -> httpx2.Response:
        answer = await self.visitor.get(f"/articles/{path}", Accept_Language=language)
        assert answer.status_code == 200, answer.text
        return answer

    async def read(self, path: str = "", language: str = "en") -> str:
        return read_text(await self.get(path, language))

    async def submit(self, path: str, fields: dict[str, str] | None = None) -> httpx2.Response:
        token = token_of(await self.visitor.get("/articles/imports"))
        return await self.visitor.post(f"/articles/{path}", {"csrf": token, **(fields or {})})

    async def upload(self, *lines: str) -> str:
        """Upload a file of these lines, and return the address of its preview."""
        token = token_of(await self.visitor.get("/articles/imports"))
        content = "\n".join([HEADER, *lines]).encode()
        answer = await self.visitor.upload("/articles/imports", {"csrf": token}, {"file": ("julho.csv", content)})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"].removeprefix("/articles/")

    async def import_lines(self, *lines: str, **fields: str) -> str:
        """Upload a file, start its import, and return the address of its page."""
        preview = (await self.upload(*lines)).partition("?")[0]
        answer = await self.submit(preview, {"name": "julho.csv", **fields})
        assert answer.status_code == 303, answer.text
        return answer.headers["location"].partition("?")[0].removeprefix("/articles/")

    async def rerun(self, run: UUID, **fields: str) -> None:
        answer = await self.submit(f"{run}/rerun", fields)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/articles/{run}?notice=rerun_started")
        await self.app.work()

    async def read_review(self, run: UUID, language: str = "en") -> str:
        review = await self.app.get_review(run)
        return read_text(await self.visitor.get(f"/reviews/{review.id}", Accept_Language=language))


def read_text(answer: httpx2.Response) -> str:
    return " ".join(visible_text(answer).split())


def get_part(answer: httpx2.Response, part: str) -> str:
    """Return the text from the element with this id to the next live part."""
    found = re.search(rf'id="{part}".*?(?=data-live id=|</main>)', answer.text, re.DOTALL)
    assert found, answer.text
    return " ".join(re.sub(r"<[^>]+>", " ", found[0]).split())


@pytest.fixture
async def pages(writer_app: WriterApp) -> WriterPages:
    made = WriterPages(writer_app)
    await made.visitor.log_in()
    return made


async def test_articles_are_listed_with_state_step_revision_cost_and_time(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    await pages.app.start(make_request(theme="Sono profundo"))
    await pages.rerun(run, what="seo")
    text = await pages.read()
    name = f"Café e cafeína {str(run)[:13]}"
    assert re.search(rf"{name} explicar quanto café é seguro Saúde Draft ready Publication in W\S+ 2 0\.0", text)
    assert "Sono profundo" in text


async def test_articles_are_filtered_by_blog_and_state(pages: WriterPages) -> None:
    await pages.app.client.tenants.set_profile("sono", {"name": "Sono"})
    await pages.app.write()
    await pages.app.start(make_request(blog_id="sono", theme="Sono profundo"))
    assert "Sono profundo" not in await pages.read("?blog=saude")
    assert "Café e cafeína" not in await pages.read("?blog=sono")
    assert "Café e cafeína" in await pages.read("?state=done")
    assert "Café e cafeína" not in await pages.read("?state=pending")
    assert "Clear a filter" in await pages.read("?state=failed")


async def test_a_state_is_found_behind_many_articles_in_other_states(
    pages: WriterPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "_BATCH_SIZE", 2)
    oldest = await pages.app.start(make_request(theme="Café antigo"))
    async with pages.app.api.sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
    for number in range(3):
        await pages.app.start(make_request(theme=f"Café {number}"))
    page = await list_article_page(pages.app.client, state=ArticleState.RUNNING, limit=2)
    assert ([row.run.id for row in page.rows], page.before) == ([oldest], None)


async def test_articles_are_listed_page_by_page(pages: WriterPages) -> None:
    themes = [f"Café {number}" for number in range(4)]
    for theme in themes:
        await pages.app.start(make_request(theme=theme))
    first = await list_article_page(pages.app.client, limit=3)
    rest = await list_article_page(pages.app.client, limit=3, before=first.before)
    assert [row.request.theme for row in (*first.rows, *rest.rows)] == themes[::-1]
    assert rest.before is None


async def test_the_home_page_shows_the_metrics_of_both_periods(pages: WriterPages) -> None:
    await pages.app.write()
    text = get_part(await pages.get(), "metrics")
    assert "Articles per hour 0.04 24 h 0.01 in 7 days" in text
    assert "Failure rate 0% 24 h 0% in 7 days" in text
    assert "Retry rate 0% 24 h" in text
    assert re.search(r"Mean cost US\$ 0\.0\d+ 24 h US\$ 0\.0\d+ in 7 days", text)
    assert list(PERIODS) == ["24h", "7d"]


async def test_empty_pages_say_what_to_do_next(pages: WriterPages) -> None:
    assert "Import a CSV file, in which each line is an article" in await pages.read()
    await pages.app.client.tenants.delete_profile("saude")
    assert "Start with a blog" in await pages.read()
    assert "create one first" in await pages.read("new")
    assert "every line of a file would be refused" in await pages.read("imports")


async def test_an_article_is_requested_with_a_form_and_only_once(pages: WriterPages) -> None:
    for notice in ("requested", "exists"):
        answer = await pages.submit("new", ARTICLE_FORM)
        (run,) = await pages.app.client.runs.list(pipeline="article")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/articles/{run.id}?notice={notice}")
    other = await pages.submit("new", {**ARTICLE_FORM, "tone": "leve"})
    assert (other.status_code, "exists with other optional fields" in other.text) == (409, True)
    assert 'value="leve"' in other.text


async def test_errors_of_an_article_are_shown_at_their_fields(pages: WriterPages) -> None:
    answer = await pages.submit("new", {**ARTICLE_FORM, "word_count": "7", "blog_id": "esportes"})
    text = read_text(answer)
    assert answer.status_code == 422
    assert "Enter a whole number from 200 to 5,000." in text
    assert "Choose one of the blogs." in text
    assert await pages.app.client.runs.list(pipeline="article") == []


async def test_a_preview_shows_every_line_and_starts_nothing(pages: WriterPages) -> None:
    preview = await pages.upload(LINE, WRONG_LINE, UNKNOWN_BLOG)
    text = await pages.read(preview)
    assert "1 line can be imported, 2 lines have errors" in text
    assert "2 saude Café e cafeína explicar quanto café é seguro Brazilian Portuguese 400" in text
    assert "3 CSV_INVALID word_count: Enter a whole number from 200 to 5,000." in text
    assert "4 BLOG_NOT_FOUND there is no blog 'esportes'" in text
    only_wrong = await pages.read(f"{preview}&show=errors")
    assert ("CSV_INVALID" in only_wrong, "Café e cafeína" in only_wrong) == (True, False)
    assert await pages.app.client.runs.list() == []
    assert "3 CSV_INVALID word_count: Informe um número inteiro de 200 a 5.000." in await pages.read(preview, "pt")


async def test_lines_with_errors_are_left_out_only_if_the_box_is_ticked(pages: WriterPages) -> None:
    preview = (await pages.upload(LINE, WRONG_LINE)).partition("?")[0]
    refused = await pages.submit(preview, {"name": "julho.csv"})
    assert (refused.status_code, "Tick the box" in refused.text) == (422, True)
    assert await pages.app.client.runs.list() == []
    address = await pages.import_lines(LINE, WRONG_LINE, skip_invalid="yes")
    await pages.app.work()
    text = await pages.read(address)
    assert re.search(r"\b1 of 1 line\b", text)
    assert "1 line with errors was left out: 3" in text


async def test_an_import_shows_its_lines_with_their_articles(pages: WriterPages) -> None:
    address = await pages.import_lines(LINE, LINE.replace("Café e cafeína", "Sono profundo"))
    await pages.app.work()
    shown = await pages.get(address)
    links = re.findall(r'href="/articles/([0-9a-f-]{36})"', shown.text)
    assert len(links) == 2
    assert "Café e cafeína" in await pages.read(links[0])
    assert f"3 Sono profundo {links[1][:13]} saude Draft ready" in read_text(shown)
    assert f"Sono profundo {links[1][:13]}" in await pages.read()


async def test_an_import_is_listed_under_the_name_of_its_file_and_its_id(pages: WriterPages) -> None:
    address = await pages.import_lines(LINE)
    await pages.app.work()
    name = f"julho.csv {address.rpartition('/')[2][:13]}"
    assert f"{name} Completed 1 1 0" in await pages.read("imports")
    assert f"{name} article_import" in read_text(await pages.visitor.get("/runs"))


async def test_a_form_that_is_sent_twice_starts_one_import(pages: WriterPages) -> None:
    for _ in range(2):
        await pages.import_lines(LINE, key="one-form")
    assert len(await pages.app.client.runs.list(pipeline="article_import")) == 1


async def test_an_import_is_canceled_by_a_button_with_its_articles(pages: WriterPages) -> None:
    address = await pages.import_lines(LINE.replace("400", "700"))
    await pages.app.work()
    (waiting,) = await pages.app.client.runs.list(pipeline="article")
    assert waiting.state == "paused"
    answer = await pages.submit(f"{address}/cancel")
    assert answer.headers["location"] == f"/articles/{address}?notice=import_canceled"
    async with pages.app.api.sandbox.manual_worker() as worker:
        await worker.poll_external_work()  # a worker does so within a second
    await pages.app.work()
    assert {run.state for run in await pages.app.client.runs.list()} == {"cancelled"}
    assert "Cancel import" not in await pages.read(address)


async def test_a_file_of_5000_lines_is_shown_page_by_page(pages: WriterPages) -> None:
    lines = [LINE.replace("cafeína", f"cafeína {number}") for number in range(MAX_ROWS)]
    preview = await pages.upload(*lines)
    first = await pages.get(preview)
    assert "5,000 lines can be imported" in read_text(first)
    assert first.text.count("<tr>") == LINES_PER_PREVIEW + 1
    last = await pages.read(f"{preview}&from={MAX_ROWS - LINES_PER_PREVIEW}")
    assert "4,901 to 5,000 of 5,000" in last
    assert f"cafeína {MAX_ROWS - 1} " in last
    address = await pages.import_lines(*lines)
    async with pages.app.api.sandbox.manual_worker() as worker:
        await worker.record_outcomes(await worker.attempt(await worker.claim(1)))
    imported = await pages.get(address)
    assert "0 of 5,000 lines" in read_text(imported)
    assert imported.text.count("<tr>") == LINES_PER_PAGE + 1
    (following,) = re.findall(r'href="/articles/(imports/[^"]+\?from=\d+)"', imported.text)
    assert f"{LINES_PER_PAGE + 2} Café e cafeína {LINES_PER_PAGE} saude" in await pages.read(following)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"theme\nx\n", b"a;b\x00c"])
async def test_a_file_that_is_no_import_is_explained(pages: WriterPages, content: bytes) -> None:
    token = token_of(await pages.visitor.get("/articles/imports"))
    answer = await pages.visitor.upload("/articles/imports", {"csrf": token}, {"file": ("x.csv", content)})
    if not content:
        assert (answer.status_code, "Choose a file that is not empty." in answer.text) == (422, True)
        return
    shown = await pages.read(answer.headers["location"].removeprefix("/articles/"))
    assert "0 lines can be imported, 1 line has an error" in shown
    assert "Start the import" not in shown


async def test_only_an_uploaded_file_has_a_preview(pages: WriterPages) -> None:
    for name in ("x", "0" * 64, "..%2F..%2Fetc"):
        assert (await pages.visitor.get(f"/articles/imports/preview/{name}")).status_code == 404


async def test_blogs_are_created_and_changed(pages: WriterPages) -> None:
    created = await pages.submit("blogs", BLOG_FORM)
    assert created.headers["location"] == "/articles/blogs/viagem?notice=saved"
    profile = await pages.app.client.tenants.get_profile("viagem")
    assert (profile.value["name"], profile.value["categories"], profile.value["site_id"]) == (
        "Viagem",
        ["Praia", "Mar"],
        None,
    )
    assert "Viagem viagem Brazilian Portuguese the only one Praia, Mar" in await pages.read("blogs")
    twice = await pages.submit("blogs", BLOG_FORM)
    assert (twice.status_code, "There is already a blog with this id." in twice.text) == (409, True)
    wrong = await pages.submit("blogs/viagem", {**BLOG_FORM, "site_id": "-1", "revision": "1"})
    assert (wrong.status_code, "Enter a whole number from 1 on" in wrong.text) == (422, True)
    changed = {**BLOG_FORM, "name": "Viagens", "revision": str(profile.revision)}
    assert (await pages.submit("blogs/viagem", changed)).status_code == 303
    late = await pages.submit("blogs/viagem", {**changed, "name": "Outra"})
    assert (late.status_code, "Someone else changed it" in late.text) == (409, True)
    assert "Viagens" in await pages.read("blogs/viagem")
    assert (await pages.submit("blogs", {**BLOG_FORM, "id": "a b"})).status_code == 422


async def test_an_article_is_shown_as_wordpress_gets_it(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    results = await pages.app.get_results(run)
    shown = await pages.get(str(run))
    text = read_text(shown)
    assert results["title_slug_created"]["title"] in text
    assert results["meta_created"]["description"] in text
    for heading in results["headings_created"]["headings"]:
        assert f"<h2>{heading['text']}</h2>" in shown.text
    for image in results["images_resolved"].values():
        assert f'<img src="/api/v1/runs/{run}/files/{image["file"]["file"]}"' in shown.text
    assert "as WordPress gets it" in text


async def test_an_article_shows_steps_durations_providers_tokens_and_cost(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    shown = await pages.get(str(run))
    assert re.search(r"Outline Succeeded \S+ sec writer offline/facts 100 / 50 0\.0015", get_part(shown, "steps"))
    facts = get_part(shown, "facts")
    assert re.search(r"Cost US\$ 0\.0\d+ Tokens in / out 900 / 450 Providers offline, pictures, writer", facts)
    assert "featured.jpg" in get_part(shown, "files")


async def test_an_article_shows_how_many_of_its_sources_nobody_has_read(pages: WriterPages) -> None:
    facts = [{**fact.model_dump(), "source_name": "From memory"} for fact in list_bundled_facts("pt-BR")[:12]]
    pages.app.writer.changes = {"BriefDraft": {"facts": facts}}
    run = (await pages.app.write()).id
    assert re.search(r"(\d+) of \1 facts name a source from the model's memory", await pages.read(str(run)))
    assert await pages.app.get_state(run) == "done"


async def test_partial_results_are_shown_while_the_article_is_written(pages: WriterPages) -> None:
    pages.app.writer.changes = {"Content": {"sections": []}}
    run = await pages.app.start()
    assert "Nothing is written yet." in await pages.read(str(run))
    await pages.app.work()
    text = await pages.read(str(run))
    assert "The body is not written yet. The outline:" in text
    assert "Body failed LLM_INVALID_JSON" in text


async def test_a_failed_article_is_resumed_by_a_button(pages: WriterPages) -> None:
    pages.app.writer.errors = [LlmUnavailable("no answer", "LLM_TIMEOUT")] * 3
    run = (await pages.app.write()).id
    assert "The language model did not answer in time" in await pages.read(str(run))
    answer = await pages.submit(f"{run}/resume")
    assert answer.headers["location"] == f"/articles/{run}?notice=resumed"
    await pages.app.work()
    assert await pages.app.get_state(run) == ArticleState.DONE


async def test_each_part_is_rerun_by_its_button(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    before = await pages.app.get_results(run)
    await pages.rerun(run, what="images")
    images = await pages.app.get_results(run)
    assert images["images_resolved"] != before["images_resolved"]
    assert images["content_created"] == before["content_created"]
    await pages.rerun(run, what="seo")
    seo = await pages.app.get_results(run)
    assert seo["title_slug_created"] != before["title_slug_created"]
    assert seo["images_resolved"] == images["images_resolved"]
    await pages.rerun(run, what="body")
    body = await pages.app.get_results(run)
    assert body["content_created"] != before["content_created"]
    assert body["title_slug_created"] == seo["title_slug_created"]
    await pages.rerun(run, what="all")
    assert (await pages.app.get_run(run)).revision == 5
    (draft,) = await pages.app.list_drafts()
    assert draft["revision"] == 5


async def test_one_step_and_everything_from_a_step_are_rerun(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    calls = len(pages.app.writer.calls)
    await pages.rerun(run, what="step", step="tags_created")
    assert pages.app.writer.calls[calls:] == ["Tags"]
    await pages.rerun(run, what="from_step", step="faq_created")
    assert pages.app.writer.calls[calls + 1 :] == ["Faq"]
    assert (await pages.submit(f"{run}/rerun", {"what": "everything"})).status_code == 422
    assert (await pages.submit(f"{run}/rerun", {"what": "step", "step": "nothing"})).status_code == 404


async def test_stale_steps_are_marked_and_rerun_by_a_button(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    await pages.rerun(run, what="step_only", step="title_slug_created")
    shown = await pages.get(str(run))
    assert "Some results are out of date" in shown.text
    assert re.search(r"Meta data out of date", get_part(shown, "steps"))
    await pages.rerun(run, what="stale")
    assert "Some results are out of date" not in (await pages.get(str(run))).text


async def test_an_article_is_canceled_by_a_button_and_says_by_whom(pages: WriterPages) -> None:
    run = await pages.app.start()
    answer = await pages.submit(f"{run}/cancel")
    assert answer.headers["location"] == f"/articles/{run}?notice=canceled"
    text = await pages.read(str(run))
    assert "Cancelled by Ana" in text
    assert "change its theme or objective" in text
    assert 'id="rerun"' not in (await pages.get(str(run))).text
    assert (await pages.submit(f"{run}/rerun", {"what": "body"})).status_code == 409


async def test_a_rejected_article_says_by_whom_and_why(pages: WriterPages) -> None:
    run = (await pages.app.write(make_request(word_count=700))).id
    await pages.app.decide(run, "reject", notes="fora do tema")
    assert "Rejected by ana fora do tema" in await pages.read(str(run))


async def test_two_revisions_are_compared_part_by_part(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    first = await pages.app.get_results(run)
    await pages.rerun(run, what="seo")
    await pages.rerun(run, what="images")
    last = await pages.app.get_results(run)
    shown = await pages.get(f"{run}/revisions?from=1&to=3")
    old, new = first["title_slug_created"]["title"], last["title_slug_created"]["title"]
    assert old != new
    text = read_text(shown)
    assert re.search(rf"Title and slug lines: \+2 / -2 revision 1 removed: {re.escape(old[:5])}", text)
    assert "Body no changes" in text
    for results in (first, last):
        assert results["images_resolved"]["featured"]["file"]["file"] in shown.text
    default = await pages.read(f"{run}/revisions")
    assert "Title and slug no changes" in default  # revisions 2 and 3 differ in their images
    assert "one revision so far" in await pages.read(f"{await pages.app.start(make_request(theme='Café'))}/revisions")


async def test_wordpress_events_are_shown_and_asked_for(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    assert "WordPress has reported nothing yet." in await pages.read(str(run))
    pages.app.blog.events = [Event("1", 1, "media_ok", 1, datetime(2026, 2, 4, 12, tzinfo=UTC), {})]
    answer = await pages.submit(f"{run}/refresh")
    assert answer.headers["location"] == f"/articles/{run}?notice=refreshed"
    assert "Image uploaded revision 1 2026-02-04 12:00:00" in await pages.read(str(run))


async def test_a_reviewer_sees_the_article_the_findings_and_what_decisions_do(pages: WriterPages) -> None:
    run = (await pages.app.write(make_request(word_count=700))).id
    review = await pages.app.get_review(run)
    assert f'href="/reviews/{review.id}"' in (await pages.get(str(run))).text
    text = await pages.read_review(run)
    assert re.search(r"Length Warning the body has \d+ words, but 700 were requested", text)
    assert "Approve: the article is published as a draft as it is." in text
    assert (await pages.app.get_results(run))["content_created"]["conclusion"][0] in text
    portuguese = await pages.read_review(run, "pt")
    assert re.search(r"Tamanho Alerta o corpo tem \d+ palavras, mas foram pedidas 700", portuguese)


async def test_quality_facts_cost_and_due_time_are_beside_the_article(pages: WriterPages) -> None:
    run = (await pages.app.write(make_request(word_count=700))).id
    review = await pages.app.get_review(run)
    results = await pages.app.get_results(run)
    content = Content.model_validate(results["content_created"])
    used = [results["brief_created"]["facts"][number - 1] for number in sorted(content.used_facts)]
    page = (await pages.visitor.get(f"/reviews/{review.id}", Accept_Language="en")).text
    beside = " ".join(re.sub(r"<[^>]+>", " ", html.unescape(page.partition('id="context"')[2])).split())
    assert re.search(r"Quality With warnings Words \d+ of 700 requested Language Brazilian Portuguese", beside)
    assert f"Facts and sources {len(used)} " in beside
    for fact in used:
        assert f"{fact['text']} {fact['source_url']} Comes with Retoma" in beside
    assert re.search(r"This article US\$ 0\.0\d", beside)
    assert review.due_at == review.opened_at + timedelta(hours=2)


def test_a_fact_that_does_not_come_with_retoma_is_marked() -> None:
    article = make_article()
    results = {"brief_created": article.brief.model_dump(), "content_created": article.content.model_dump()}
    assert [each.is_bundled for each in list_used_facts(results, "en")] == [False]
    assert list_used_facts({}, "en") == []


async def test_a_reviewer_of_a_rewritten_article_sees_first_which_words_changed(pages: WriterPages) -> None:
    run = (await pages.app.write(make_request(word_count=700))).id
    before = (await pages.app.get_results(run))["content_created"]["conclusion"][0]
    pages.app.writer.changes = {"Content": {"conclusion": ["Uma xícara basta."]}}
    await pages.app.decide(run, "send_back", to="content_created", notes="mais curto")
    text = await pages.read_review(run)
    assert "since revision 1" in text
    changed = text.partition("What changed")[2].partition("Findings of the quality checks")[0]
    assert "added: Uma xícara basta." in changed
    assert f"removed: {before.split()[0]}" in changed
    assert "Meta data" not in changed  # unchanged parts are left out
    assert "No visible changes" not in text
    assert "desde a versão 1" in await pages.read_review(run, "pt")


async def test_a_reviewer_of_new_images_sees_them_beside_the_earlier_ones(pages: WriterPages) -> None:
    pages.app.pictures.errors = {"": [ImageUnavailable("busy", "IMAGE_UNAVAILABLE")] * 6}
    run = (await pages.app.write()).id
    missing = (await pages.app.get_results(run))["published_wp"]["missing_images"]
    pages.app.pictures.errors = {"larga": [ImageUnavailable("busy", "IMAGE_UNAVAILABLE")] * 3}
    await pages.app.decide(run, "send_back", to="images_resolved", items=missing)
    text = await pages.read_review(run)
    assert re.search(r"What changed since revision 1 Image: inline-planta revision 1 no image revision 2 Compare", text)


async def test_a_reviewer_of_a_missing_image_sees_which(pages: WriterPages) -> None:
    pages.app.pictures.errors = {"": [ImageUnavailable("busy", "IMAGE_UNAVAILABLE")] * 6}
    run = (await pages.app.write()).id
    text = await pages.read_review(run)
    assert "The draft is incomplete" in text
    assert re.search(r"The image (featured|inline-\w+) could not be made\.", text)
    assert "Missing images" in await pages.read(str(run))


async def test_a_reviewer_of_an_edited_post_sees_what_would_be_lost(pages: WriterPages) -> None:
    run = (await pages.app.write()).id
    pages.app.blog.errors = [PostChanged("edited by maria", "POST_EDITED")]
    await pages.rerun(run, what="seo")
    text = await pages.read_review(run)
    assert "this revision overwrites the post" in text
    assert "The person's changes are lost." in text
    assert (await pages.app.get_results(run))["title_slug_created"]["title"] in text


async def test_hostile_text_is_inert_on_every_page(pages: WriterPages) -> None:
    theme = f"Café {EVERYTHING}"[:290]
    paragraphs = [EVERYTHING, '</p><img src=x onerror="alert(1)">']
    pages.app.writer.changes = {
        "TitleDraft": {"title": f"Café {EVERYTHING}"[:200]},
        "Meta": {"title": EVERYTHING[:200], "description": EVERYTHING[:300]},
        "Tags": {"tags": [EVERYTHING[:60]]},
    }
    await pages.submit("blogs", {**BLOG_FORM, "name": EVERYTHING[:200], "categories": EVERYTHING[:100]})
    request = make_request(theme=theme, blog_id="viagem", objective=EVERYTHING[:500])
    run = await pages.app.start(request)
    await pages.app.work()
    body = dict((await pages.app.get_results(run))["content_created"])
    await pages.app.client.runs.edit(run, "content_created", {**body, "introduction": paragraphs}, by=EVERYTHING[:100])
    await pages.app.work()
    preview = await pages.upload(f'viagem,"{theme.replace(chr(34), chr(34) * 2)}",x,pt-BR,400', f"{EVERYTHING},a,b,c,d")
    imported = await pages.import_lines(LINE, skip_invalid="yes")
    review = await pages.app.get_review(run)
    addresses = [
        "",
        "new",
        "blogs",
        "blogs/viagem",
        str(run),
        f"{run}/revisions?from=1&to=2",
        preview,
        imported,
        "imports",
    ]
    shown = 0
    for address in (*(f"/articles/{each}" for each in addresses), f"/reviews/{review.id}"):
        answer = await pages.visitor.get(address)
        assert answer.status_code == 200, address
        check_inert(answer, address)
        shown += "alert(1)" in answer.text
    assert shown >= 7


def check_inert(answer: httpx2.Response, address: str) -> None:
    elements = Elements()
    elements.feed(answer.text)
    assert elements.tags.isdisjoint({"iframe", "object", "embed", "style", "base"}), address
    assert not [name for name, _ in elements.attributes if name.startswith("on")], address
    sources = [value for name, value in elements.attributes if name in ("src", "action")]
    assert all(value.startswith("/") and not value.startswith("//") for value in sources), address
    links = [value for name, value in elements.attributes if name == "href"]
    assert all(value.startswith(("/", "#", "?", "https://")) and not value.startswith("//") for value in links), address


LINK = '<a class="link" href="https://x/?a=1&amp;b" rel="noreferrer noopener" target="_blank">'


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        ("<p>a &lt;script&gt;</p>", "<p>a &lt;script&gt;</p>"),
        ("<script>alert(1)</script>", "alert(1)"),
        ('<p onclick="x" style="y">a</p>', "<p>a</p>"),
        ('<a href="javascript:alert(1)">a</a>', "a"),
        ("<p><h2>a", "<p><h2>a</h2></p>"),
        ("</p></div><iframe src=//x></iframe>", ""),
        ("1 < 2 <b>&amp; 3 > 2</b> <", "1 &lt; 2 &amp; 3 &gt; 2 &lt;"),
        ("<p title='href=https://x'>a<a title=x HREF = 'https://x/?a=1&amp;b'>b</A>", f"<p>a{LINK}b</a></p>"),
        ("<!DOCTYPE html><?php x ?><p/>a", "<p>a</p>"),
        ("<a href='<a href='", "&lt;a href=&#39;&lt;a href=&#39;"),
        (f"&#{'1' * 5000};", f"&amp;#{'1' * 5000};"),
        ("<!-- autowriter:image k1 --><!-- other --><!-- autowriter:image k2 -->", "<figure>"),
    ],
)
def test_only_known_elements_of_a_post_remain(html: str, shown: str) -> None:
    file = {"file": "0" * 64, "name": "a.jpg", "size": 1, "media_type": "image/jpeg"}
    image = Image.model_validate({"key": "k1", "type": "featured", "alt": '"><b>', "file": file, "provider": "x"})
    made = str(render_article(html, [image], lambda file: f"/files/{file.file}"))
    if shown == "<figure>":
        assert made == f'<figure><img src="/files/{"0" * 64}" alt="&#34;&gt;&lt;b&gt;" loading="lazy"></figure>'
    else:
        assert made == shown


def test_nested_elements_are_closed_up_to_a_limit() -> None:
    made = render_article("<p>" * 10_000 + "</h2>" * 10_000, [], lambda file: "")
    assert made == "<p>" * MAX_DEPTH + "</p>" * MAX_DEPTH


UNCLOSED = ("<a href='", '<a href="x', "<!-- ", "</", "<![CDATA[", "<a ", "<script>", "&#x", "<a" + "b" * 100)


@pytest.mark.timeout(60)  # quadratic work would take hours
@pytest.mark.parametrize("unit", [*UNCLOSED, "<", "x= ' ", "x=\" '", "x", " "])
def test_the_longest_post_of_unclosed_markup_is_shown(unit: str) -> None:
    long = unit * (MAX_CONTENT_LENGTH // len(unit))
    for text in (f"<p>{long}", f"<p><a {long}>"):
        assert render_article(text, [], lambda file: "").startswith("<p>")


async def test_a_post_beyond_its_limit_cannot_become_a_result(writer_app: WriterApp) -> None:
    run = await writer_app.write()
    payload = (await writer_app.get_results(run.id))["payload_ready"]
    body = {"step": "payload_ready", "value": {**payload, "content": "x" * (MAX_CONTENT_LENGTH + 1)}}
    answer = await writer_app.api.post(f"/api/v1/runs/{run.id}/edit", json=body)
    assert (answer.status_code, "content" in answer.text) == (422, True)


def test_every_code_has_a_sentence_for_people() -> None:
    assert set(messages.CODE_SENTENCES) >= set(ERROR_CODES)
    translator = Translator("pt", [messages.LOCALE, CATALOGUES])
    assert messages.describe_code(translator, "NOBODY_KNOWS") != messages.UNKNOWN_CODE


async def test_pages_need_a_login_and_forms_their_token(pages: WriterPages) -> None:
    run = await pages.app.start()
    stranger = Visitor(pages.app.api)
    for path in ("", "imports", "blogs", "new", str(run)):
        assert (await stranger.get(f"/articles/{path}")).status_code == 303
    for path in ("imports", "blogs", "new", f"{run}/rerun", f"{run}/cancel", f"{run}/resume", f"{run}/refresh"):
        assert (await pages.visitor.post(f"/articles/{path}", {"what": "all"})).status_code == 403
    files: dict[str, Any] = {"file": ("x.csv", b"a")}
    assert (await pages.visitor.upload("/articles/imports", {}, files)).status_code == 403
    assert (await stranger.upload("/articles/imports", {}, files)).status_code == 303


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "NO_MODEL no model configured: set OPENROUTER_API_KEY"),
        ("pt-BR", "NO_MODEL nenhum modelo configurado: defina OPENROUTER_API_KEY"),
    ],
)
async def test_without_a_model_the_preview_refuses_lines_that_cannot_be_written(
    pages: WriterPages, language: str, sentence: str
) -> None:
    pages.app.writer.is_offline = True
    for page in ("new", "imports"):
        assert "coffee (English), sleep (English), café" in await pages.read(page)
    preview = await pages.upload(LINE, LINE.replace("Café e cafeína", "Chá verde"))
    shown = await pages.read(preview, language)
    assert shown.count(sentence) == 1
    assert "“Chá verde”" in shown
    path = preview.partition("?")[0]
    assert (await pages.submit(path)).status_code == 422
    assert (await pages.submit(path, {"skip_invalid": "yes"})).status_code == 303
    await pages.app.work()
    assert [draft.theme for draft in await list_requests(pages)] == ["Café e cafeína"]


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "No model configured: set OPENROUTER_API_KEY"),
        ("pt-BR", "Nenhum modelo configurado: defina OPENROUTER_API_KEY"),
    ],
)
async def test_without_a_model_the_form_refuses_a_theme_that_cannot_be_written(
    pages: WriterPages, language: str, sentence: str
) -> None:
    pages.app.writer.is_offline = True
    token = token_of(await pages.visitor.get("/articles/imports"))
    fields = {**ARTICLE_FORM, "csrf": token, "theme": "Chá verde"}
    answer = await pages.visitor.post("/articles/new", fields, Accept_Language=language)
    assert (answer.status_code, sentence in read_text(answer)) == (422, True)
    assert await list_requests(pages) == []


async def list_requests(pages: WriterPages) -> list[ArticleRequest]:
    runs = await pages.app.client.runs.list(pipeline="article")
    return [ArticleRequest.model_validate(run.input) for run in runs]


@pytest.mark.parametrize(
    ("language", "sentence"),
    [("en", "1 article waits for your decision"), ("pt-BR", "1 artigo espera a sua decisão")],
)
async def test_an_import_says_that_only_a_decision_is_left(pages: WriterPages, language: str, sentence: str) -> None:
    address = await pages.import_lines(LINE, LINE.replace(",400", ",700").replace("Café e cafeína", "Sono profundo"))
    await pages.app.work()
    for page in ("imports", address):
        shown = await pages.get(page, language)
        assert sentence in read_text(shown)
        assert STATE_BADGE.search(shown.text)
    answer = await pages.app.api.get(f"/autowriter/{address}")
    assert (answer.json()["state"], answer.json()["needs_review"]) == ("running", 1)


async def test_an_import_with_work_left_is_running(pages: WriterPages) -> None:
    address = await pages.import_lines(LINE)
    for page in ("imports", address):
        shown = await pages.get(page)
        assert "Running" in read_text(shown)
        assert not STATE_BADGE.search(shown.text)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("en", "No language model is configured for this theme."),
        ("pt-BR", "Não há modelo de linguagem configurado para este tema."),
    ],
)
async def test_a_failed_line_says_why_in_the_readers_language(pages: WriterPages, language: str, sentence: str) -> None:
    address = await pages.import_lines(LINE.replace("Café e cafeína", "Chá verde"))
    await pages.app.work()
    shown = await pages.read(address, language)
    assert sentence in shown
    assert "ended as failed" not in shown


async def test_an_article_over_the_budget_of_its_blog_says_so(pages: WriterPages) -> None:
    await pages.app.client.budgets.set("saude", "month", 0)
    run = (await pages.app.write()).id
    shown = await pages.app.show(run)
    assert (shown["state"], shown["error"]["code"], shown["error"]["actor"]) == ("needs_review", "BUDGET", "operator")
    assert pages.app.writer.calls == []
    assert "The step would exceed a budget of the blog." in await pages.read(str(run))
