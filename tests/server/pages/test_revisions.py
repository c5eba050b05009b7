"""The page of a run with reruns, and of a fork."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode
from uuid import UUID

import pytest

from retoma.reviews import Decision
from retoma.server.pages.formats import format_json
from retoma.states import RunState
from tests.server.pages.newsroom import make_application, start_until_review, work_until_review
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text

APPROVE = Decision("approve", by="ana")


@pytest.fixture
async def visitor(open_pages: OpenPages, tmp_path: Path) -> AsyncIterator[Visitor]:
    async with open_pages(application=make_application(tmp_path)) as visitor:
        yield visitor


async def run_to_end(visitor: Visitor, **values: object) -> UUID:
    """A run that people have approved to its end."""
    review = await start_until_review(visitor.api.sandbox, **values)
    await visitor.client.reviews.decide(review.id, APPROVE)
    last = await work_until_review(visitor.api.sandbox, review.run)
    await visitor.client.reviews.decide(last.id, Decision("approve", by="ana", value={"picture": 1}))
    await visitor.api.sandbox.work(advance_clock=False)
    return review.run


async def submit_action(visitor: Visitor, run: UUID, path: str, **fields: str) -> str:
    """Return the text of the page after this action."""
    token = token_of(await visitor.get(f"/runs/{run}"))
    form_fields = {name.replace("__", "."): value for name, value in fields.items()}
    answer = await visitor.post(f"/runs/{run}/{path}", {"csrf": token} | form_fields)
    assert answer.status_code == 303, answer.text
    return visible_text(await visitor.get(answer.headers["location"]))


async def test_a_run_that_waits_for_a_person_links_to_the_review(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = await visitor.get(f"/runs/{review.run}?step=draft_review")
    assert f'href="/reviews/{review.id}"' in page.text
    text = visible_text(page)
    assert "Waiting for review" in text
    assert "Outside" not in text


async def test_a_result_is_edited_while_its_run_waits_for_a_person(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    for step, is_offered in (("facts", True), ("draft_review", False)):
        page = visible_text(await visitor.get(f"/runs/{review.run}?step={step}"))
        assert ("Edit the result" in page) is is_offered, step
    text = await submit_action(visitor, review.run, "edit?step=facts", value='["mine"]')
    assert "The result is saved" in text
    again = await work_until_review(visitor.api.sandbox, review.run)
    assert (again.revision, (await visitor.client.runs.get_results(review.run))["facts"]) == (2, ["mine"])


async def test_a_result_of_another_type_is_returned_as_typed_with_the_error(visitor: Visitor) -> None:
    run = (await start_until_review(visitor.api.sandbox)).run
    token = token_of(await visitor.get(f"/runs/{run}?lang=pt"))
    for step, value, expected in (
        ("draft", '{"text": "my long text"}', "title: Campo obrigatório. Nada foi alterado."),
        ("facts", '["my long text", 1]', "not a valid result for 'facts'"),
    ):
        answer = await visitor.post(f"/runs/{run}/edit?step={step}", {"csrf": token, "value": value})
        assert (answer.status_code, expected in visible_text(answer), value in visible_text(answer)) == (
            422,
            True,
            True,
        )
    assert (await visitor.client.runs.get(run)).revision == 1


async def test_a_rejected_run_cannot_be_edited(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.client.reviews.decide(review.id, Decision("reject", by="ana", notes="no"))
    await visitor.api.sandbox.work(advance_clock=False)
    assert "Edit the result" not in visible_text(await visitor.get(f"/runs/{review.run}?step=facts"))


async def test_time_spent_waiting_for_people_is_drawn_separately(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.api.sandbox.clock.advance(timedelta(minutes=7))
    page = await visitor.get(f"/runs/{review.run}")
    assert "in review 7 min" in visible_text(page)
    assert '<rect class="h"' in page.text


async def test_a_run_that_waited_for_hours_is_drawn_with_compressed_time(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.api.sandbox.clock.advance(timedelta(hours=3))
    page = await visitor.get(f"/runs/{review.run}")
    assert (page.status_code, "in review 3 hr" in visible_text(page)) == (200, True)
    ticks = re.findall(r'text-anchor="(start|end)"[^>]*>(\d\d:\d\d):', page.text)
    assert ticks == [("start", "12:00"), ("end", "15:00")]
    assert "<title>2030-01-01 12:00:00 UTC</title><text" in page.text


async def test_a_step_is_rerun_with_a_recorded_reason(visitor: Visitor) -> None:
    run = await run_to_end(visitor)
    text = await submit_action(visitor, run, "rerun?step=page", what="step", reason="new figures")
    assert "The rerun has started." in text
    assert "new figures" in text
    assert (await visitor.client.runs.get(run)).revision == 2


async def test_an_isolated_rerun_marks_dependents_until_they_rerun_too(visitor: Visitor) -> None:
    run = await run_to_end(visitor)
    (item, _) = await visitor.client.runs.list_items(run, "parts")
    query = urlencode({"step": "image", "item": item.item})
    assert "The rerun has started." in await submit_action(visitor, run, f"rerun?{query}", what="step_only")
    await visitor.api.sandbox.work(advance_clock=False)
    page = visible_text(await visitor.get(f"/runs/{run}?step=page"))
    assert "Based on results that have changed since: page." in page
    assert "out of date" in page
    assert "The rerun has started." in await submit_action(visitor, run, "rerun", what="stale")
    assert "There was nothing to rerun." in await submit_action(visitor, run, "rerun?step=image&item=none", what="step")


async def test_a_group_is_rerun(visitor: Visitor) -> None:
    run = await run_to_end(visitor)
    assert 'value="group:images"' in (await visitor.get(f"/runs/{run}")).text
    assert "The rerun has started." in await submit_action(visitor, run, "rerun", what="group:images")
    token = token_of(await visitor.get(f"/runs/{run}"))
    for what, status in (("group:none", 404), ("", 422)):
        assert (await visitor.post(f"/runs/{run}/rerun", {"csrf": token, "what": what})).status_code == status


async def test_the_revisions_of_a_step_are_listed_with_their_changes_and_authors(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.client.reviews.decide(review.id, Decision("send_back", by="Diego", notes="Mais curto"))
    await work_until_review(visitor.api.sandbox, review.run)
    page = await visitor.get(f"/runs/{review.run}?step=draft")
    assert "Diego requested: Mais curto" in visible_text(page)
    assert "<ins>menos</ins>" in page.text


async def test_a_run_is_forked_with_another_input_after_a_typing_error(visitor: Visitor) -> None:
    run = await run_to_end(visitor)
    page = await visitor.get(f"/runs/{run}")
    assert 'name="value.words"' in page.text
    fields = {"csrf": token_of(page), "value.topic": "mine", "value.tone": "loud", "value.words": "many"}
    wrong = await visitor.post(f"/runs/{run}/fork", fields)
    assert (wrong.status_code, "Enter a whole number." in wrong.text) == (422, True)
    assert ">loud</textarea>" in wrong.text
    answer = await visitor.post(
        f"/runs/{run}/fork", fields | {"value.words": "1850", "value.topic": "Renda fixa em 2026"}
    )
    forked = visible_text(await visitor.get(answer.headers["location"]))
    assert "This is the new run." in forked
    assert f"Forked from Renda fixa em 2026 {str(run)[:13]}" in " ".join(forked.split())
    (new, _) = await visitor.client.runs.list()
    assert (new.input["tone"], new.state) == ("loud", RunState.RUNNING)


async def test_a_run_that_is_over_shows_its_result_and_offers_to_rerun_any_step(visitor: Visitor) -> None:
    run = await run_to_end(visitor)
    page = await visitor.get(f"/runs/{run}")
    shown = page.text[page.text.index('id="results"') : page.text.index('id="graph"')]
    assert format_json((await visitor.client.runs.get_results(run))["post"]) in html.unescape(shown)
    assert "Select a step to see its result, edit it or rerun it." in visible_text(page)
    assert '<option value="image">' in page.text
    assert "The rerun has started." in await submit_action(visitor, run, "rerun", what="downstream", step="image")
    assert (await visitor.client.runs.get(run)).revision == 2


async def test_what_a_run_shows_only_at_its_end_appears_without_a_reload(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = (await visitor.get(f"/runs/{review.run}")).text
    for part in ("results", "errors", "retried", "again"):
        assert re.search(rf'data-live id="{part}">\s*</div>', page), part
