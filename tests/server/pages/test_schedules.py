"""The pages of schedules: the list, one with its history, and the form."""

from __future__ import annotations

import re
from html import unescape

import pytest
from httpx2 import Response

from retoma import App, hours
from retoma.schedules import Schedule
from tests.server.api import app
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text

FORM = {
    "name": "nightly",
    "pipeline": "film",
    "tenant": "default",
    "cron": "0 3 * * *",
    "time_zone": "America/Sao_Paulo",
    "inputs": '{"topic": "{{ due_date }}"}',
    "catch_up": "all",
    "catch_up_limit": "3",
    "overlap": "skip",
}


async def test_the_form_shows_the_next_times_and_creates_a_schedule(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        page = await visitor.get("/schedules/new?cron=0+3+*+*+*&time_zone=America/Sao_Paulo")
        assert visible_text(page).count("America/Sao_Paulo") == 5
        answer = await visitor.post("/schedules/new", FORM | {"csrf": token_of(page)})
        assert answer.status_code == 303, answer.text
        shown = visible_text(await visitor.get(answer.headers["location"]))
        assert "The schedule is created." in shown
        (created,) = await visitor.client.schedules.list()
        assert (created.cron, created.catch_up, created.catch_up_limit) == ("0 3 * * *", "all", 3)
        listed = visible_text(await visitor.get("/schedules"))
        assert "2030-01-02 06:00" in listed
        assert "2030-01-02 03:00 America/Sao_Paulo" in listed


async def test_the_form_keeps_what_was_entered_and_says_what_is_wrong(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        page = await visitor.get("/schedules/new")
        answer = await visitor.post("/schedules/new", FORM | {"csrf": token_of(page), "inputs": "{"})
        assert answer.status_code == 422
        assert "The inputs must be a JSON object" in visible_text(answer)
        assert 'value="nightly"' in answer.text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"inputs": '{"topic": "{{ due_dat }}"}'},
            "O marcador 'due_dat' não existe; você quis dizer 'due_date'?",
        ),
        (
            {"inputs": '{"topic": "{{ tea }}"}'},
            "O marcador 'tea' não existe; marcadores disponíveis: 'due_at', 'due_date', 'previous_due_at', 'schedule'",
        ),
        (
            {"cron": "", "every": "9999", "unit": "days"},
            "Um intervalo vai de um segundo a 3650 dias; valor recebido: 863913600 s",
        ),
    ],
)
async def test_what_is_wrong_is_said_in_the_viewers_language(
    open_pages: OpenPages, fields: dict[str, str], expected: str
) -> None:
    async with open_pages() as visitor:
        page = await visitor.get("/schedules/new")
        submitted = FORM | {"csrf": token_of(page)} | fields
        answer = await visitor.post("/schedules/new", submitted, Accept_Language="pt-BR")
        assert answer.status_code == 422
        assert expected in visible_text(answer)


async def test_a_schedule_is_paused_resumed_triggered_and_deleted_on_its_page(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        created = await visitor.client.schedules.create("hourly", "film", every=3600)
        path = f"/schedules/{created.id}"
        assert "The schedule is paused." in await submit(visitor, path, "pause")
        assert "starts runs again" in await submit(visitor, path, "resume")
        assert "has started this run" in await submit(visitor, path, "trigger")
        history = visible_text(await visitor.get(path))
        assert re.search(r"started by \w+", history)
        assert "The schedule is deleted." in await submit(visitor, path, "delete")


async def test_the_history_has_no_link_to_a_run_that_was_removed(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        schedule = await visitor.client.schedules.create("hourly", "film", every=3600)
        kept, removed = [(await visitor.client.schedules.trigger(schedule.id)).id for _ in range(2)]
        await visitor.client.runs.cancel(removed)
        await visitor.client.retention.erase_run(removed)
        page = await visitor.get(f"/schedules/{schedule.id}")
        assert (f"/runs/{kept}" in page.text, f"/runs/{removed}" in page.text) == (True, False)
        assert "removed" in visible_text(page)


async def test_the_form_to_edit_changes_only_what_was_edited(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        created = await visitor.client.schedules.create(
            "refresh", "film", every=hours(6), jitter=100, title="Refresh", inputs={"topic": "tea"}
        )
        path = f"/schedules/{created.id}"
        assert f'href="{path}/edit"' in (await visitor.get(path)).text
        page = await visitor.get(f"{path}/edit")
        assert (form_value(page, "every"), form_value(page, "title")) == ("6", "Refresh")
        assert "2030-01-01 18:00" in visible_text(page)  # the next times
        answer = await visitor.post(f"{path}/edit", form_values(page) | {"title": "", "inputs": '{"topic": "rice"}'})
        assert answer.status_code == 303, answer.text
        assert "The schedule has been changed." in visible_text(await visitor.get(answer.headers["location"]))
        changed = await visitor.client.schedules.get(created.id)
        assert (changed.title, changed.inputs) == (None, {"topic": "rice"})
        assert (changed.every, changed.jitter, changed.next_at) == (created.every, created.jitter, created.next_at)


async def test_the_form_to_edit_replaces_the_rule(open_pages: OpenPages) -> None:
    async with open_pages() as visitor:
        created = await visitor.client.schedules.create("refresh", "film", every=hours(6), inputs={"topic": "tea"})
        path = f"/schedules/{created.id}/edit"
        submitted = form_values(await visitor.get(path)) | {"every": "", "cron": "0 3 * * *"}
        answer = await visitor.post(path, submitted)
        assert answer.status_code == 303, visible_text(answer)
        changed = await visitor.client.schedules.get(created.id)
        assert (changed.cron, changed.every) == ("0 3 * * *", None)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"every": ""}, "Set one of cron and every"),
        ({"inputs": "{"}, "The inputs must be a JSON object"),
        ({"revision": "7"}, "was changed since"),
    ],
)
async def test_the_form_to_edit_says_what_is_wrong(
    open_pages: OpenPages, fields: dict[str, str], expected: str
) -> None:
    async with open_pages() as visitor:
        created = await visitor.client.schedules.create("refresh", "film", every=hours(6), inputs={"topic": "tea"})
        path = f"/schedules/{created.id}/edit"
        submitted = form_values(await visitor.get(path)) | {"title": "Mine"} | fields
        answer = await visitor.post(path, submitted)
        assert answer.status_code == 422
        assert expected.lower() in visible_text(answer).lower()
        assert form_value(answer, "title") == "Mine"
        assert await visitor.client.schedules.get(created.id) == created


async def test_a_schedule_of_the_code_cannot_be_edited_or_deleted(open_pages: OpenPages) -> None:
    declared = App("films", pipelines=list(app.own_pipelines.values()), schedules=[Schedule("daily", "film", every=60)])
    async with open_pages(application=declared) as visitor:
        (saved,) = await visitor.client.schedules.declare()
        page = await visitor.get(f"/schedules/{saved.id}")
        assert "the code of films" in visible_text(page)
        for action in ("edit", "delete"):
            assert f"/schedules/{saved.id}/{action}" not in page.text
            answer = await visitor.post(f"/schedules/{saved.id}/{action}", {"csrf": token_of(page)})
            assert answer.status_code == 409
        shown = await visitor.get(f"/schedules/{saved.id}/edit")
        assert (shown.status_code, shown.headers["location"]) == (303, f"/schedules/{saved.id}")


def form_values(page: Response) -> dict[str, str]:
    """What a browser submits if nothing is edited."""
    names = ("csrf", "revision", "title", "cron", "every", "time_zone", "catch_up_limit", "jitter")
    (inputs,) = re.findall(r"<textarea[^>]*name=\"inputs\"[^>]*>\n(.*?)</textarea>", page.text, re.DOTALL)
    options = re.findall(r'<select[^>]*name="(\w+)".*?<option(?: value="(\w+)")? selected>([\w ]+)', page.text)
    selected = {name: value or shown for name, value, shown in options}
    return {name: form_value(page, name) for name in names} | {"inputs": unescape(inputs)} | selected


def form_value(page: Response, name: str) -> str:
    (value,) = re.findall(rf'<input[^>]*name="{name}"[^>]*value="([^"]*)"', page.text)
    return unescape(value)


async def submit(visitor: Visitor, path: str, action: str) -> str:
    page = await visitor.get(path)
    answer = await visitor.post(f"{path}/{action}", {"csrf": token_of(page), "key": action})
    assert answer.status_code == 303, answer.text
    return visible_text(await visitor.get(answer.headers["location"]))
