"""Every page: in both languages, under a strict policy, for those who may see it, with hostile text as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
from pydantic import BaseModel

from retoma import App, Context, Pipeline, Retry, Webhook
from retoma.client.bulk_actions import BulkFilter
from retoma.files import FileSettings, create_file_store
from retoma.records import REASON_MESSAGES, BulkKind, StuckCause, WaitReason
from retoma.server.pages import badges
from retoma.server.pages.page import Page
from retoma.server.pages.registry import PAGES
from retoma.server.request_limits import CONTENT_SECURITY_POLICY
from retoma.states import DeliveryState, JobState, ReviewState, RunState
from retoma.store.database import Database
from retoma.translations import CATALOGUES, LANGUAGES, Translator
from tests.conftest import RowsRead
from tests.server.api import Brief, film
from tests.server.pages.visitor import SAME_ORIGIN, OpenPages, Visitor, make_dead_delivery, token_of, visible_text
from tests.server.people import PASSWORD
from tests.studio import STUDIO

HERE = files("retoma.server.pages")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'--><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "</title></textarea></pre><iframe src=javascript:alert(1)>",
    "javascript:alert(1)",
)
EVERYTHING = " ".join(HOSTILE)


class Pictures(BaseModel):
    wanted: list[str] = []
    is_broken: bool = False


letter = Pipeline("letter", inputs=Brief)


@letter.step
def draft(topic: str) -> str:
    return topic


letter.review("approved_draft", of=draft)
BATCH = UUID(int=12)  # of an approval that is refused, as it is of another revision
FILMS_AND_LETTERS = App("films", pipelines=[film, letter], connections=[STUDIO])


async def addresses(visitor: Visitor, tenant: str = "default", topic: str = "bad") -> list[str]:
    """One address of each page that needs a login, with something to show."""
    run = await visitor.client.start("film", {"topic": topic}, tenant=tenant)
    reviewed = await visitor.client.start("letter", {"topic": topic}, tenant=tenant)
    delivery = await make_dead_delivery(visitor, tenant, EVERYTHING.encode())
    action = await visitor.client.bulk_actions.start(BulkKind.REDELIVER, BulkFilter(), tenant=tenant, by="ana")
    await visitor.client.bulk_actions.abort(action.id, by="ana")
    await visitor.api.sandbox.work()
    (review,) = await visitor.client.reviews.list(run=reviewed.id)
    item = f"{topic} 0"
    schedule = await visitor.client.schedules.create(
        "hourly", "film", every=3600, inputs={"topic": "tea"}, tenant=tenant, title=topic[:200], overlap="skip"
    )
    await visitor.client.schedules.trigger(schedule.id, by=topic[:100] or "ana")
    token = token_of(await visitor.get(f"/reviews/{review.id}"))
    form = {"csrf": token, "key": BATCH.hex, "review": f"{review.id}:{review.revision + 1}"}
    await visitor.post("/reviews", form)
    return [
        "/",
        "/runs",
        f"/runs?{httpx2.QueryParams({'tenant': tenant})}",
        f"/runs/{run.id}",
        f"/runs/{run.id}?step=lines",
        f"/runs/{run.id}?step=image",
        f"/runs/{run.id}?{httpx2.QueryParams({'step': 'image', 'item': item})}",
        f"/runs/{run.id}/edit?step=lines",
        f"/runs/{run.id}/fork",
        "/reviews",
        f"/reviews/{review.id}",
        f"/reviews/{review.id}/panes",
        "/reviews/approve",
        "/reviews?view=grid",
        f"/reviews/batches/{BATCH}",
        "/stuck",
        "/queues",
        "/pools",
        "/workers",
        "/budgets",
        "/connections",
        "/connections/edit/studio",
        "/connections/edit/studio?tenant=blog",
        "/connections/test",
        "/connections/delete",
        "/charts",
        "/charts?hours=24",
        "/retries",
        "/dead-letters",
        "/schedules",
        "/schedules/new?cron=0+3+*+*+*&time_zone=Europe/Lisbon",
        f"/schedules/{schedule.id}",
        f"/schedules/{schedule.id}/edit",
        "/bulk-actions",
        "/bulk-actions/new",
        "/bulk-actions/new?kind=redeliver",
        f"/bulk-actions/{action.id}",
        "/deliveries",
        f"/deliveries/{delivery}",
        "/people",
        "/people/role",
        "/people/link",
        "/people/disable",
        "/people/enable",
        "/people/end-sessions",
        "/account",
        "/account/password",
        "/account/sessions",
        "/people/second-factor",
        "/people/unlink",
        "/notifications",
        "/reviewers",
        "/audit",
        "/retention",
        "/retention?preview=1",
        "/retention/remove",
        "/style-guide",
    ]


async def test_the_addresses_cover_every_page(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS_AND_LETTERS) as visitor:
        paths = [address.partition("?")[0] for address in await addresses(visitor)]
    elsewhere = {
        "/audit.csv",
        "/audit.jsonl",
        "/account/second-factor",
        "/account/notifications",
        "/connections/consent/start",
        "/connections/consent",
    }  # of people or of a consent, not here
    shown = [page.path for page in PAGES if page.show and not page.is_public and page.path not in elsewhere]
    missing = [page for page in shown if not any(re.fullmatch(re.sub(r"{\w+}", "[^/]+", page), path) for path in paths)]
    assert missing == [], "add one address of each of these pages to `addresses`"


@pytest.mark.parametrize(
    ("language", "message"), [("en", "Times are shown in UTC."), ("pt-BR", "Horários no fuso UTC.")]
)
async def test_every_page_uses_the_visitors_language(open_pages: OpenPages, language: str, message: str) -> None:
    async with open_pages(application=FILMS_AND_LETTERS) as visitor:
        for address in [*await addresses(visitor), "/login?"]:
            answer = await visitor.get(address, Accept_Language=f"{language},fr;q=0.5")
            if answer.status_code == 303:
                continue
            assert answer.status_code == 200, f"{address}: {answer.text}"
            if not address.endswith("/panes"):  # a fragment of a page
                assert f'<html lang="{language}"' in answer.text
                assert message in answer.text
            assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert not re.search(r"\sstyle=|<script(?! type=\"module\" src=\"/static/)", answer.text)


async def test_a_worker_is_marked_only_after_its_own_heartbeat_timeout(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        async with visitor.api.sandbox.database.connection() as connection:
            await connection.execute(
                "insert into retoma.workers (name, queues, concurrency, started_at, heartbeat_at, heartbeat_timeout)"
                " select name, array['default'], 1, retoma.now(), retoma.now() - interval '10 seconds', own::interval"
                " from (values ('patient', '1 minute'), ('strict', '6 seconds')) as w (name, own)"
            )
        page = (await visitor.get("/workers")).text
        assert re.findall(r'"strong">(\w+)</span>.*?class="n (|c-warn)" data-l', page) == [
            ("strict", "c-warn"),
            ("patient", ""),
        ]


async def test_pages_listen_for_every_kind_of_event(database: Database) -> None:
    async with database.connection() as connection:
        rule = await connection.fetchval(
            "select pg_get_constraintdef(oid) from pg_constraint where conname = 'kind_is_known'"
        )
    script = (files("retoma.server") / "static" / "live.js").read_text()
    (named,) = re.findall(r"KINDS = \[(.*?)\]", script)
    assert set(re.findall(r'"(\w+)"', named)) == set(re.findall(r"'(\w+)'", rule))


async def test_the_chosen_language_and_theme_are_remembered(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.get("/?lang=pt")
        await visitor.get("/?theme=dark")
        answer = await visitor.get("/runs", Accept_Language="en")
        assert '<html lang="pt-BR" data-time-zone="UTC" data-theme="dark">' in answer.text


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


async def test_user_text_is_always_escaped(open_pages: OpenPages) -> None:
    async with open_pages(application=FILMS_AND_LETTERS) as visitor:
        found = await addresses(visitor, tenant=EVERYTHING, topic=f"bad {EVERYTHING}")
        hostile = str(httpx2.QueryParams({"v": EVERYTHING}))[2:]
        requested = [
            f"/runs?{name}={hostile}" for name in ("q", "state", "pipeline", "tenant", "notice", "lang", "theme")
        ] + [f"/runs/{hostile}", f"/deliveries/{hostile}", f"{found[3]}?step={hostile}", f"/static/{hostile}"]
        shown = 0
        for address in found + requested:
            answer = await visitor.get(address)
            elements = Elements()
            elements.feed(answer.text)
            shown += "alert(1)" in visible_text(answer) or "alert(1)" in answer.text
            assert elements.tags.isdisjoint({"img", "iframe", "object", "embed", "style", "base"}), address
            assert not [name for name, _ in elements.attributes if name.startswith("on")], address
            links = [value for name, value in elements.attributes if name in ("href", "src", "action")]
            assert all(value.startswith(("/", "#", "?")) and not value.startswith("//") for value in links), address
            assert "{{ 7 * 7 }}" in answer.text or "7 * 7" not in answer.text, address
        assert shown >= 8


async def test_a_missing_object_is_reported_on_a_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        for address in ("/runs/none", "/runs/01a1e0b5-0000-7000-8000-000000000000", "/deliveries/none", "/static/none"):
            answer = await visitor.get(address, Accept_Language="pt")
            assert (answer.status_code, "Não encontrado" in answer.text) == (404, True)
            assert answer.headers["content-type"].startswith("text/html")
        assert (await visitor.post("/runs", {})).status_code == 405


@pytest.mark.parametrize("address", ["/nada", "/%5Cexample.com"])
async def test_a_person_with_an_unknown_url_gets_an_html_page(open_pages: OpenPages, address: str) -> None:
    async with open_pages(development=False) as visitor:
        answer = await visitor.get(address, Accept="text/html,*/*;q=0.8", Accept_Language="pt")
        assert (answer.status_code, "Não existe página neste endereço." in answer.text) == (404, True)
        links = re.findall(r'href="([^"]*)"', answer.text)
        assert not [link for link in links if "example.com" in link]


async def test_programs_get_a_json_error_for_an_unknown_url(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        for address, accepts in (("/nada", "*/*"), ("/api/v1/nada", "text/html")):
            answer = await visitor.get(address, Accept=accepts)
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert (await visitor.get("/healthz", Accept="text/html")).status_code == 200


async def test_empty_lists_say_what_to_do(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        assert "retoma start PIPELINE APP" in (await visitor.get("/runs")).text
        assert "No matching runs" in (await visitor.get("/runs?tenant=nobody")).text
        assert "Nothing needs your attention" in (await visitor.get("/")).text


async def test_the_list_of_runs_is_filtered_and_paged(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        started = await visitor.client.start_many("film", [{}] * 60, tenant="shop")
        other = await visitor.client.start("film", {}, tenant="blog")
        first = await visitor.get("/runs?tenant=shop")
        assert first.text.count('href="/runs/0') == 50
        older = re.search(r'href="(/runs\?[^"]*before=[^"]*)"', first.text)
        assert older
        second = await visitor.get(older[1].replace("&amp;", "&"))
        assert second.text.count('href="/runs/0') == 10
        assert str(started[0].id) in second.text
        assert (await visitor.get(f"/runs?q={str(other.id)[:24]}")).text.count('href="/runs/0') >= 1
        assert (await visitor.get("/runs?state=failed")).text.count('href="/runs/0') == 0


async def test_the_list_of_runs_begins_at_a_day(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {})
        counts = {
            day: (await visitor.get(f"/runs?since={day}")).text.count('href="/runs/0')
            for day in ("0001-01-01", "2020-01-31", "2999-01-01")
        }
        assert counts == {"0001-01-01": 1, "2020-01-31": 1, "2999-01-01": 0}
        shown = await visitor.get("/runs?since=2999-01-01&lang=pt")
        assert 'value="2999-01-01"' in shown.text
        assert "Iniciada desde" in shown.text
        assert (await visitor.get("/runs?since=yesterday")).status_code == 404


async def test_a_run_shows_its_errors_with_their_stack(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"topic": "bad"})
        await visitor.api.sandbox.work()
        page = visible_text(await visitor.get(f"/runs/{run.id}"))
        assert "no paint left" in page
        assert "Traceback (most recent call last)" in page
        assert "0 of 2" in page


async def test_a_page_reads_no_more_than_it_shows(open_pages: OpenPages, rows_read: RowsRead) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"topic": "bad", "scenes": 25})
        await visitor.api.sandbox.work()
        for query in ("", "?state=completed_with_errors", f"?q={run.id}"):
            await visitor.get(f"/runs{query}")
        runs = [*rows_read["list_runs"], *rows_read["get_run"]]
        assert len(runs) == 3
        assert not [row for row in runs if "bad" in row]
        assert "and 5 more, by step" in visible_text(await visitor.get(f"/runs/{run.id}"))
        assert len(rows_read["list_last_errors"]) == 20


def get_panel(answer: httpx2.Response) -> str:
    """Return the panel of the selected step."""
    return answer.text.partition('id="step"')[2]


async def test_items_of_a_step_are_paged_and_filtered(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"scenes": 60})
        await visitor.api.sandbox.work()
        first = get_panel(await visitor.get(f"/runs/{run.id}?step=image"))
        assert first.count("item=tea") == 50
        more = re.search(r'href="([^"]*from=[^"]*)"', first)
        assert more
        assert get_panel(await visitor.get(more[1].replace("&amp;", "&"))).count("item=tea") == 10
        assert get_panel(await visitor.get(f"/runs/{run.id}?step=image&job_state=failed")).count("item=tea") == 0


async def test_an_opened_item_shows_its_input(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film")
        await visitor.api.sandbox.work()
        shown = get_panel(await visitor.get(f"/runs/{run.id}?step=image&item=tea+1"))
        assert re.search(r"<summary>Input</summary><pre[^>]*>&#34;tea 1&#34;</pre>", shown)
        assert "<summary>Input</summary>" not in get_panel(await visitor.get(f"/runs/{run.id}?step=cut"))


async def test_a_failed_run_is_on_the_overview_for_a_day(open_pages: OpenPages) -> None:
    broken = Pipeline("broken", retry=Retry(0))

    @broken.step
    def never() -> None:
        raise ValueError("no")

    async with open_pages(application=App("test", pipelines=[broken])) as visitor:
        await visitor.api.sandbox.clock.set(datetime.now(UTC))
        await visitor.client.start("broken")
        await visitor.api.sandbox.work()
        assert "A run of broken failed" in (await visitor.get("/")).text
        await visitor.api.sandbox.clock.advance(timedelta(hours=25))
        assert "A run of broken failed" not in (await visitor.get("/")).text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
async def test_no_page_is_visible_without_a_login_except_public_ones(open_pages: OpenPages, page: Page) -> None:
    path = re.sub(r"\{\w+\}", "retoma.css", page.path)
    async with open_pages(development=False) as visitor:
        key = await visitor.api.make_key("admin")
        for headers in ({}, {"X-API-Key": key}, {"Authorization": f"Bearer {key}"}, {"Cookie": "retoma=guessed"}):
            answer = await visitor.api.get(path, key=None, headers=headers)
            is_open = path.startswith(("/login", "/static/", "/set-password/"))
            assert page.is_public is is_open
            assert is_open or answer.status_code == 303, headers
            acted = await visitor.api.post(path, key=None, headers=headers)
            assert acted.status_code in ((403, 405) if is_open else (303,))
    assert PASSWORD not in answer.text


def test_every_stylesheet_rule_has_a_used_class() -> None:
    source = Path(str(files("retoma"))).parent
    has = {"add", "del"}  # `line.kind` of a difference
    for file in source.rglob("*"):
        if file.suffix in (".html", ".py", ".js"):
            quoted = r'"([^"\n]*)"' if file.suffix == ".js" else r'class="([^"]*)"'
            has |= {name for value in re.findall(quoted, file.read_text()) for name in re.findall(r"[\w-]+", value)}
    styles = re.sub(r"/\*.*?\*/", "", (source / "retoma/server/static/retoma.css").read_text(), flags=re.DOTALL)
    ruled = {name for rule in re.findall(r"[^{}]+(?=\{)", styles) for name in re.findall(r"\.([a-z][\w-]*)", rule)}
    assert {name for name in ruled - has if not name.startswith(("c-", "f-"))} == set(), "these are made of a colour"


def test_every_wait_reason_is_explained() -> None:
    assert {*WaitReason, *StuckCause} == set(REASON_MESSAGES)


@pytest.mark.parametrize("state", dict.fromkeys([*RunState, *JobState, *ReviewState, *DeliveryState]))
def test_every_state_has_a_badge_and_a_name(state: str) -> None:
    server = Path(str(files("retoma.server")))
    badge = badges.STATE_BADGES.get(state)
    assert badge is not None, f"{state!r} has no badge: add it to STATE_BADGES in server/pages/badges.py"
    icons = (server / "pages/templates/icons.html").read_text()
    assert f'id="i-{badge.icon}"' in icons, f"the icon of {state!r} is not in templates/icons.html"
    styles = (server / "static/retoma.css").read_text()
    assert f".c-{badge.colour} " in styles, f"the colour of {state!r} is not in retoma.css"
    for language in LANGUAGES[1:]:
        translated = Translator(language, [CATALOGUES]).translate(badge.name)
        assert translated != badge.name.text, (
            f"the name of {state!r} has no translation: add it to retoma.po ({language})"
        )


async def test_items_of_a_run_are_listed_over_all_steps_and_filtered(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"scenes": 60})
        await visitor.api.sandbox.work()
        first = await visitor.get(f"/runs/{run.id}")
        assert first.text.count("item=tea") == 25
        more = re.search(r'href="([^"]*item_from=[^"]*)#items"', first.text)
        assert more
        second = await visitor.get(more[1].replace("&amp;", "&"))
        assert (second.text.count("item=tea"), "item=tea+25" in second.text) == (25, True)
        assert (await visitor.get(f"/runs/{run.id}?search=TEA 5")).text.count("item=tea") == 11
        assert "No matching items" in (await visitor.get(f"/runs/{run.id}?item_state=failed")).text


async def test_files_that_a_run_names_are_listed_with_their_links(open_pages: OpenPages, tmp_path: Path) -> None:
    kept = Pipeline("kept")
    files = create_file_store(FileSettings(home=tmp_path, files_url=None))
    saved = await files.save(b"x" * 12_345, name=EVERYTHING[:100])

    @kept.step
    def paper() -> dict[str, object]:
        return {"in": [saved.model_dump(), {"file": "no digest"}]}

    async with open_pages(application=App("test", pipelines=[kept], files=files)) as visitor:
        run = await visitor.client.start("kept")
        await visitor.api.sandbox.work()
        answer = await visitor.get(f"/runs/{run.id}?step=paper")
        assert answer.text.count(f'href="/api/v1/runs/{run.id}/files/{saved.file}" download') == 2
        assert "12.3 kB" in answer.text
        assert "<script>alert" not in answer.text
        assert (await visitor.get(f"/api/v1/runs/{run.id}/files/{saved.file}")).content == b"x" * 12_345


async def test_a_large_input_is_truncated_and_its_whole_is_one_link_away(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        run = await visitor.client.start("film", {"topic": "tea" * 10_000})
        await visitor.log_in()
        page = await visitor.get(f"/runs/{run.id}")
        assert len(page.text) < 60_000
        assert f'href="/api/v1/runs/{run.id}"' in page.text
        whole = await visitor.get(f"/api/v1/runs/{run.id}", **SAME_ORIGIN)
        assert whole.json()["input"]["topic"] == "tea" * 10_000


async def test_a_token_in_a_webhook_url_is_shown_on_no_page_and_in_no_response(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        webhook = Webhook("https://n8n.example.com/hook?flow=1&token=canary", ("run.started",))
        run = await visitor.client.start("film", {}, webhook=webhook)
        (delivery,) = await visitor.client.webhooks.list_deliveries(run=run.id)
        answers = [
            await visitor.get("/deliveries"),
            await visitor.get(f"/deliveries/{delivery.id}"),
            await visitor.api.get("/api/v1/deliveries"),
            await visitor.api.get(f"/api/v1/deliveries/{delivery.id}"),
            await visitor.api.get("/api/v1/endpoints"),
            await visitor.api.post(f"/api/v1/endpoints/{delivery.endpoint}/enable"),
        ]
        for answer in answers:
            assert answer.status_code == 200
            assert "token=***" in answer.text
            assert "canary" not in answer.text


async def test_a_step_that_never_ran_does_not_wait_after_the_end_of_its_run(open_pages: OpenPages) -> None:
    pictures = Pipeline("pictures", retry=Retry(0), inputs=Pictures)

    @pictures.step
    def names(wanted: list[str], is_broken: bool) -> list[str]:
        if is_broken:
            raise ValueError("no")
        return wanted

    @pictures.each(names)
    def drawing(name: str) -> str:
        return name

    async with open_pages(application=App("test", pipelines=[pictures])) as visitor:
        for is_broken, progress, state in ((False, "2 of 2 steps", "Not needed"), (True, "0 of 2 steps", "Not run")):
            run = await visitor.client.start("pictures", {"is_broken": is_broken})
            await visitor.api.sandbox.work()
            text = visible_text(await visitor.get(f"/runs/{run.id}"))
            assert (progress in text, state in text, "Waiting" in text) == (True, True, False)


async def test_retried_jobs_are_counted_as_listed_and_their_errors_are_not_red(open_pages: OpenPages) -> None:
    shaky = Pipeline("shaky", retry=Retry(2, delays=[60]))

    @shaky.step
    def names() -> list[str]:
        return ["a", "b"]

    @shaky.each(names)
    def third_time(name: str, *, ctx: Context) -> str:
        if ctx.attempt < 3:
            raise OSError("the disk is unreachable")
        return name

    async with open_pages(application=App("test", pipelines=[shaky])) as visitor:
        run = await visitor.client.start("shaky")
        await visitor.api.sandbox.work()
        page = await visitor.get(f"/runs/{run.id}")
        assert re.search(r"Retried jobs\s+2\s", visible_text(page))
        assert page.text.count('class="wrapany dim">OSError: the disk is unreachable') == 2
        assert "errline" not in page.text


async def test_a_tenant_is_chosen_from_those_that_exist(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        for tenant in ("blog", "shop"):
            await visitor.client.start("film", {"topic": "tea"}, tenant=tenant)
        for path in ("/runs", "/deliveries", "/reviewers", "/audit"):
            page = (await visitor.get(f"{path}?tenant=shop")).text
            (select,) = re.findall(r'<select name="tenant".*?</select>', page)
            options = re.findall(r"<option( selected)?>([^<]*)</option>", select)
            assert options == [("", "blog"), (" selected", "shop")], path
