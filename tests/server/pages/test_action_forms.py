"""Acts of people: done by forms of ours on their behalf, and by nothing else."""

from __future__ import annotations

import html
import re
from datetime import timedelta

import httpx2
import pytest

from retoma.engine import watchdog
from retoma.server.sessions import CSRF_HEADER
from retoma.states import DeliveryState, RunState
from tests.server.pages.visitor import SAME_ORIGIN, OpenPages, Visitor, make_dead_delivery, token_of, visible_text

FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "", "Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "", "Origin": "null"},
    {"Sec-Fetch-Site": ""},
)


async def load_form(visitor: Visitor) -> None:
    assert (await visitor.log_in()).status_code == 303


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_cross_origin_form_is_rejected(open_pages: OpenPages, headers: dict[str, str]) -> None:
    async with open_pages(development=False) as visitor:
        await load_form(visitor)
        token = await visitor.token()
        (run,) = await visitor.client.runs.list()
        answer = await visitor.post(f"/runs/{run.id}/cancel", {"csrf": token}, **headers)
        assert (answer.status_code, "CROSS_ORIGIN_FORM" in answer.text) == (403, True)
        assert (await visitor.client.runs.get(run.id)).state is RunState.RUNNING


@pytest.mark.parametrize("values", ["", "0" * 64, "é"])
async def test_a_form_without_the_sessions_token_is_refused(open_pages: OpenPages, values: str) -> None:
    async with open_pages(development=False) as visitor:
        await load_form(visitor)
        run = await visitor.client.start("film", {})
        answer = await visitor.post(f"/runs/{run.id}/cancel", {"csrf": values})
        assert (answer.status_code, "FORM_TOO_OLD" in answer.text) == (403, True)
        assert (await visitor.client.runs.get(run.id)).state is RunState.RUNNING


async def test_only_form_content_types_are_parsed(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await load_form(visitor)
        token = await visitor.token()
        (run,) = await visitor.client.runs.list()
        answer = await visitor.post(f"/runs/{run.id}/cancel", {"csrf": token}, Content_Type="text/plain")
        assert answer.status_code == 403


async def test_development_mode_also_needs_the_token(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {})
        assert (await visitor.post(f"/runs/{run.id}/cancel", {})).status_code == 403
        token = token_of(await visitor.get(f"/runs/{run.id}"))
        assert (await visitor.post(f"/runs/{run.id}/cancel", {"csrf": token})).status_code == 303


async def test_a_get_request_changes_nothing(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {})
        assert (await visitor.get(f"/runs/{run.id}/cancel")).status_code == 405
        assert (await visitor.client.runs.get(run.id)).state is RunState.RUNNING


async def test_a_cancelled_run_shows_who_cancelled_it(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        token = await visitor.token()
        (run,) = await visitor.client.runs.list()
        answer = await visitor.post(f"/runs/{run.id}/cancel", {"csrf": token})
        assert answer.status_code == 303
        page = visible_text(await visitor.get(answer.headers["location"]))
        assert "The run is being cancelled." in page
        assert "Dora" in page
        assert (await visitor.client.runs.get(run.id)).state is RunState.CANCELLED


async def test_a_dead_delivery_is_redriven_from_its_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        delivery = await make_dead_delivery(visitor)
        token = token_of(await visitor.get(f"/deliveries/{delivery}"))
        answer = await visitor.post(f"/deliveries/{delivery}/redeliver", {"csrf": token})
        assert "The webhook will be sent again." in visible_text(await visitor.get(answer.headers["location"]))
        assert (await visitor.client.webhooks.get_delivery(delivery)).state is DeliveryState.DUE
        again = await visitor.post(f"/deliveries/{delivery}/redeliver", {"csrf": token})
        assert (again.status_code, "This has already changed" in again.text) == (409, True)


async def test_a_pools_capacity_is_set_from_the_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        token = await visitor.token()
        for value, status in (("none", 422), ("-1", 422), ("٣", 422), ("5", 404)):
            answer = await visitor.post("/pools", {"csrf": token, "pool": "gpu", "capacity": value})
            assert answer.status_code == status


async def test_a_queue_is_paused_resumed_and_limited_from_the_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        await visitor.client.start("film", {})
        token = await visitor.token()
        form = {"csrf": token, "queue": "default"}
        answer = await visitor.post("/queues/pause", {**form, "reason": "<b>new</b> GPU"})
        page = await visitor.get(answer.headers["location"])
        assert "The queue is paused." in visible_text(page)
        assert "by Dora" in visible_text(page)
        assert "&lt;b&gt;new&lt;/b&gt; GPU" in page.text
        assert 'action="/queues/resume"' in page.text
        assert "the queue is paused: its waiting jobs (2) do not start" in visible_text(page)
        portuguese = await visitor.get("/queues", Accept_Language="pt-BR")
        assert "a fila está pausada: seus jobs em espera (2) não começam" in visible_text(portuguese)
        assert (await visitor.client.queues.list())[0].paused_by == "Dora"
        answer = await visitor.post("/queues/resume", form)
        assert "The queue starts jobs again." in visible_text(await visitor.get(answer.headers["location"]))
        answer = await visitor.post("/queues/limit", {**form, "capacity": "4"})
        assert "of at most 4" in visible_text(await visitor.get(answer.headers["location"]))
        assert (await visitor.post("/queues/limit", {**form, "capacity": "x"})).status_code == 422
        for action in ("pause", "resume", "limit"):
            missing = await visitor.post(f"/queues/{action}", {**form, "queue": "none", "capacity": "1"})
            assert missing.status_code == 404


async def test_a_worker_is_drained_from_the_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor, visitor.api.sandbox.manual_worker() as worker:
        token = await visitor.token()
        answer = await visitor.post("/workers", {"csrf": token, "worker": str(worker.worker)})
        page = " ".join(visible_text(await visitor.get(answer.headers["location"])).split())
        assert "The worker finishes its jobs and exits." in page
        assert "draining by Dora" in page
        for number in ("", "x", "9" * 18):
            assert (await visitor.post("/workers", {"csrf": token, "worker": number})).status_code == 404


async def test_a_session_changes_things_through_the_api_only_with_its_token(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await load_form(visitor)
        (run, token) = (await visitor.client.start("film", {})).id, await visitor.token()
        cancel = f"/api/v1/runs/{run}/cancel"
        assert (await visitor.post(cancel, {})).status_code == 401
        for headers in ({CSRF_HEADER: "0" * 64}, {CSRF_HEADER: token, "Sec-Fetch-Site": "cross-site"}):
            assert (await visitor.post(cancel, {}, **headers)).status_code == 403
        assert (await visitor.client.runs.get(run)).state is RunState.RUNNING
        assert (await visitor.post(cancel, {}, **{CSRF_HEADER: token})).status_code == 200


async def test_a_session_reads_through_the_api_without_its_token(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await load_form(visitor)
        for headers in (SAME_ORIGIN, {"Sec-Fetch-Site": "none"}, {"Origin": "http://api.example"}, {}):
            assert (await visitor.get("/api/v1/runs", **headers)).status_code == 200
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
        ):
            assert (await visitor.get("/api/v1/runs", **headers)).status_code == 403
        visitor.cookies.clear()
        assert (await visitor.get("/api/v1/runs", **SAME_ORIGIN)).status_code == 401


async def test_a_token_that_is_sent_is_checked_even_for_a_read(open_pages: OpenPages) -> None:
    async with open_pages(development=False) as visitor:
        await load_form(visitor)
        named = {CSRF_HEADER: await visitor.token()}
        assert (await visitor.get("/api/v1/runs", **named, **SAME_ORIGIN)).status_code == 200
        assert (await visitor.get("/api/v1/runs", **{CSRF_HEADER: "0" * 64}, **SAME_ORIGIN)).status_code == 403
        assert (await visitor.get("/api/v1/runs", **named, Sec_Fetch_Site="cross-site")).status_code == 403
        visitor.cookies.clear()
        assert (await visitor.get("/api/v1/runs", **named, **SAME_ORIGIN)).status_code == 401


async def test_a_stuck_run_is_listed_explained_and_resumed(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        token = await visitor.token()
        (run,) = await visitor.client.runs.list()
        await visitor.api.sandbox.clock.advance(timedelta(minutes=6))
        await watchdog.check_due_runs(visitor.client.database, timedelta(seconds=6))
        for address in ("/stuck", "/", f"/runs/{run.id}"):
            assert str(run.id)[:13] in (await visitor.get(address)).text
        page = visible_text(await visitor.get(f"/runs/{run.id}", Accept_Language="pt"))
        assert "nenhum trabalho concluído se perdeu" in page
        assert "lines: nenhum worker em execução atende a fila 'default'" in page
        assert "Continuar de onde parou" in page
        answer = await visitor.post(f"/runs/{run.id}/resume", {"csrf": token})
        assert answer.headers["location"] == f"/runs/{run.id}?notice=resumed_no_worker"
        assert "nenhum worker está em execução" in visible_text(
            await visitor.get(answer.headers["location"], Accept_Language="pt")
        )
        assert (await visitor.client.runs.get(run.id)).state is RunState.RUNNING


async def test_only_failed_jobs_are_rerun(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"topic": "bad"})
        await visitor.api.sandbox.work()
        shown = await visitor.get(f"/runs/{run.id}", Accept_Language="pt")
        assert "Executar novamente só o que falhou" in shown.text
        answer = await visitor.post(f"/runs/{run.id}/rerun-failed", {"csrf": token_of(shown)})
        assert answer.headers["location"] == f"/runs/{run.id}?notice=rerun"
        assert (await visitor.client.runs.get(run.id)).revision == 2
        assert (await visitor.get(answer.headers["location"])).status_code == 200


async def run_to_end(visitor: Visitor) -> str:
    """The address of a run that is over, of whose items one failed."""
    run = await visitor.client.start("film", {"topic": "bad", "scenes": 2})
    await visitor.api.sandbox.work()
    return f"/runs/{run.id}"


async def test_editing_a_result_in_its_job_reruns_its_dependents(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await run_to_end(visitor)
        page = await visitor.get(f"{run}?step=image&item=bad+0")
        answer = await visitor.post(f"{run}/edit?step=image&item=bad+0", {"csrf": token_of(page), "value": '"A LAMP"'})
        assert answer.headers["location"] == f"{run}?step=image&item=bad+0&notice=edited"
        await visitor.api.sandbox.work()
        (found,) = await visitor.client.runs.list()
        assert (await visitor.client.runs.get_results(found.id))["image"] == {"bad 0": "A LAMP"}
        assert "Dora" in visible_text(await visitor.get(run))


@pytest.mark.parametrize("values", ["", "{<b>", "NaN", "[" * 100_000, '{"a": 1,}', "\x00"])
async def test_invalid_json_is_returned_in_its_form(open_pages: OpenPages, values: str) -> None:
    async with open_pages() as visitor:
        run = await run_to_end(visitor)
        token = token_of(await visitor.get(f"{run}?step=lines"))
        answer = await visitor.post(f"{run}/edit?step=lines", {"csrf": token, "value": values}, Accept_Language="pt")
        assert (answer.status_code, "Nada foi alterado." in answer.text) == (422, True)
        assert f">{values[:50]}" in html.unescape(answer.text)
        assert f'action="{run}/edit?step=lines"' in answer.text
        assert 'href="/runs/' in answer.text
        assert "/edit?lang" not in answer.text
        (found,) = await visitor.client.runs.list()
        assert found.revision == 1


async def test_an_item_is_skipped_from_its_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await run_to_end(visitor)
        page = await visitor.get(f"{run}?step=image&item=bad+1")
        answer = await visitor.post(f"{run}/skip?step=image&item=bad+1", {"csrf": token_of(page)})
        shown = await visitor.get(answer.headers["location"])
        assert "The item has been skipped." in visible_text(shown)
        assert "Skip this item" not in visible_text(shown)


async def test_results_of_a_running_run_cannot_be_edited(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {})
        page = await visitor.get(f"/runs/{run.id}?step=lines")
        assert "Edit the result" not in page.text
        for act in ("edit", "skip"):
            answer = await visitor.post(f"/runs/{run.id}/{act}?step=lines", {"csrf": token_of(page), "value": "[ ]"})
            assert (answer.status_code, "This has already changed" in answer.text) == (409, True)
            assert (">[ ]</textarea>" in answer.text) == (act == "edit")


def form_of(page: httpx2.Response, action: str) -> dict[str, str]:
    """Return the fields that the form with this action already contains."""
    found = re.search(rf'<form[^>]*action="{re.escape(html.escape(action))}"[^>]*>(.*?)</form>', page.text, re.DOTALL)
    assert found, f"no form for {action}"
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', found[1]))


ACTIONS = [
    ("rerun-failed", "", {}),
    ("rerun", "?step=lines", {"what": "step"}),
    ("edit", "?step=image&item=bad+0", {"value": '"A LAMP"'}),
    ("skip", "?step=image&item=bad+0", {}),
    ("fork", "", {"value.topic": "calm", "value.scenes": "1"}),
    ("cancel", "", {}),
]


@pytest.mark.parametrize(("act", "place", "fields"), ACTIONS, ids=[act for act, *_ in ACTIONS])
async def test_a_form_that_is_sent_twice_takes_effect_once(
    open_pages: OpenPages, act: str, place: str, fields: dict[str, str]
) -> None:
    async with open_pages() as visitor:
        run = await visitor.client.start("film", {"topic": "calm" if act == "cancel" else "bad", "scenes": 2})
        if act != "cancel":
            await visitor.api.sandbox.work()
        page = await visitor.get(f"/runs/{run.id}{place}")
        address = f"/runs/{run.id}/{act}{place.replace('+', '%20')}"
        sent = form_of(page, address) | fields
        first = await visitor.post(address, sent)
        acts = [event for event in await visitor.client.runs.list_events(run.id) if event.kind == "action"]
        await visitor.api.sandbox.work()
        again = await visitor.post(address, sent)
        assert (first.status_code, again.status_code) == (303, 303), again.text
        assert again.headers["location"] == first.headers["location"]
        assert [event for event in await visitor.client.runs.list_events(run.id) if event.kind == "action"] == acts
