"""The page of a run that people have made anew, in parts or as another."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode
from uuid import UUID

import pytest

from retoma import Decision
from retoma.states import RunState
from tests.server.pages.newsroom import an_application, asked, come_to
from tests.server.pages.visitor import Opened, Visitor, seen, token_of

APPROVE = Decision("approve", by="ana")


@pytest.fixture
async def visitor(open_pages: Opened, tmp_path: Path) -> AsyncIterator[Visitor]:
    async with open_pages(application=an_application(tmp_path)) as visitor:
        yield visitor


async def ended(visitor: Visitor, **given: object) -> UUID:
    """A run that people have approved to its end."""
    review = await asked(visitor.api.sandbox, **given)
    await visitor.client.decide(review.id, APPROVE)
    last = await come_to(visitor.api.sandbox, review.run)
    await visitor.client.decide(last.id, Decision("approve", by="ana", value={"picture": 1}))
    await visitor.api.sandbox.work(until_later=False)
    return review.run


async def act(visitor: Visitor, run: UUID, path: str, **fields: str) -> str:
    """What the page says after this act."""
    token = token_of(await visitor.get(f"/runs/{run}"))
    given = {name.replace("__", "."): value for name, value in fields.items()}
    answer = await visitor.post(f"/runs/{run}/{path}", {"csrf": token} | given)
    assert answer.status_code == 303, answer.text
    return seen(await visitor.get(answer.headers["location"]))


async def test_a_run_that_waits_for_a_person_says_so_and_leads_to_the_review(visitor: Visitor) -> None:
    review = await asked(visitor.api.sandbox)
    page = await visitor.get(f"/runs/{review.run}?step=draft_review")
    assert f'href="/reviews/{review.id}"' in page.text
    told = seen(page)
    assert "Waiting for a person" in told
    assert "it waits for a person to decide" in told
    assert "Outside" not in told


async def test_a_result_is_put_right_while_its_run_waits_for_a_person(visitor: Visitor) -> None:
    review = await asked(visitor.api.sandbox)
    for step, is_offered in (("facts", True), ("draft_review", False)):
        page = seen(await visitor.get(f"/runs/{review.run}?step={step}"))
        assert ("Edit the result" in page) is is_offered, step
    told = await act(visitor, review.run, "edit?step=facts", value='["mine"]')
    assert "The result is saved" in told
    again = await come_to(visitor.api.sandbox, review.run)
    assert (again.revision, (await visitor.client.results(review.run))["facts"]) == (2, ["mine"])


async def test_a_result_of_another_type_comes_back_as_it_was_written_with_what_is_wrong(visitor: Visitor) -> None:
    run = (await asked(visitor.api.sandbox)).run
    token = token_of(await visitor.get(f"/runs/{run}?lang=pt"))
    for step, given, said in (
        ("draft", '{"text": "my long text"}', "title: Preencha este campo. Nada foi alterado."),
        ("facts", '["my long text", 1]', "this is no result of 'facts'"),
    ):
        answer = await visitor.post(f"/runs/{run}/edit?step={step}", {"csrf": token, "value": given})
        assert (answer.status_code, said in seen(answer), given in seen(answer)) == (422, True, True)
    assert (await visitor.client.show(run)).revision == 1


async def test_a_run_that_was_rejected_is_not_put_right(visitor: Visitor) -> None:
    review = await asked(visitor.api.sandbox)
    await visitor.client.decide(review.id, Decision("reject", by="ana", notes="no"))
    await visitor.api.sandbox.work(until_later=False)
    assert "Edit the result" not in seen(await visitor.get(f"/runs/{review.run}?step=facts"))


async def test_the_time_that_people_took_is_drawn_apart(visitor: Visitor) -> None:
    review = await asked(visitor.api.sandbox)
    await visitor.api.sandbox.clock.advance(timedelta(minutes=7))
    page = await visitor.get(f"/runs/{review.run}")
    assert "people 7 min" in seen(page)
    assert '<rect class="h"' in page.text


async def test_a_run_that_waited_for_hours_is_drawn_with_that_time_squeezed(visitor: Visitor) -> None:
    review = await asked(visitor.api.sandbox)
    await visitor.api.sandbox.clock.advance(timedelta(hours=3))
    page = await visitor.get(f"/runs/{review.run}")
    assert (page.status_code, "people 3 h" in seen(page)) == (200, True)
    ticks = re.findall(r'text-anchor="(start|end)"[^>]*>(\d\d:\d\d):', page.text)
    assert ticks == [("start", "12:00"), ("end", "15:00")]


async def test_a_step_is_made_anew_with_a_reason_that_is_kept(visitor: Visitor) -> None:
    run = await ended(visitor)
    told = await act(visitor, run, "rerun?step=page", what="step", why="new figures")
    assert "It is being made anew." in told
    assert "new figures" in told
    assert (await visitor.client.show(run)).revision == 2


async def test_what_is_made_anew_alone_leaves_the_rest_marked_until_that_is_made_anew_too(visitor: Visitor) -> None:
    run = await ended(visitor)
    (item, _) = await visitor.client.items(run, "parts")
    query = urlencode({"step": "image", "item": item.item})
    assert "It is being made anew." in await act(visitor, run, f"rerun?{query}", what="alone")
    await visitor.api.sandbox.work(until_later=False)
    page = seen(await visitor.get(f"/runs/{run}?step=page"))
    assert "Made of something that is no longer current: page." in page
    assert "out of date" in page
    assert "It is being made anew." in await act(visitor, run, "rerun", what="stale")
    assert "There was nothing to make anew." in await act(visitor, run, "rerun?step=image&item=none", what="step")


async def test_a_group_is_made_anew(visitor: Visitor) -> None:
    run = await ended(visitor)
    assert 'value="group:images"' in (await visitor.get(f"/runs/{run}")).text
    assert "It is being made anew." in await act(visitor, run, "rerun", what="group:images")
    token = token_of(await visitor.get(f"/runs/{run}"))
    for what, status in (("group:none", 404), ("", 422)):
        assert (await visitor.post(f"/runs/{run}/rerun", {"csrf": token, "what": what})).status_code == status


async def test_the_revisions_of_a_step_are_listed_with_what_changed_and_who_asked(visitor: Visitor) -> None:
    review = await asked(visitor.api.sandbox)
    await visitor.client.decide(review.id, Decision("send_back", by="Diego", notes="Mais curto"))
    await come_to(visitor.api.sandbox, review.run)
    page = await visitor.get(f"/runs/{review.run}?step=draft")
    assert "Diego asked: Mais curto" in seen(page)
    assert "<ins>menos</ins>" in page.text


async def test_a_run_is_forked_with_another_input_after_a_slip(visitor: Visitor) -> None:
    run = await ended(visitor)
    page = await visitor.get(f"/runs/{run}")
    assert 'name="value.words"' in page.text
    given = {"csrf": token_of(page), "value.topic": "mine", "value.tone": "loud", "value.words": "many"}
    wrong = await visitor.post(f"/runs/{run}/fork", given)
    assert (wrong.status_code, "This is no whole number." in wrong.text) == (422, True)
    assert ">loud</textarea>" in wrong.text
    answer = await visitor.post(
        f"/runs/{run}/fork", given | {"value.words": "1850", "value.topic": "Renda fixa em 2026"}
    )
    forked = seen(await visitor.get(answer.headers["location"]))
    assert "This is the new run." in forked
    assert f"Forked from {str(run)[:13]}" in " ".join(forked.split())
    (new, _) = await visitor.client.runs()
    assert (new.input["tone"], new.state) == ("loud", RunState.RUNNING)
