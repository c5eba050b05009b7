"""Review pages: what people see, how they answer, and the messages for invalid answers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from retoma import App
from retoma.errors import DefinitionError
from retoma.records import Review, Role
from retoma.reviews import Decision
from retoma.server.pages import inbox
from retoma.states import ReviewState, RunState
from tests.server import pictures
from tests.server.pages.catalogues import write_catalogue
from tests.server.pages.newsroom import TEXT, article, make_application, start_until_review, work_until_review
from tests.server.pages.test_pages import EVERYTHING
from tests.server.pages.visitor import OpenPages, Visitor, token_of, visible_text
from tests.server.people import add_person

APPROVE = Decision("approve", by="ana")


@pytest.fixture
async def visitor(open_pages: OpenPages, tmp_path: Path) -> AsyncIterator[Visitor]:
    async with open_pages(application=make_application(tmp_path)) as visitor:
        yield visitor


async def decide(visitor: Visitor, review: Review, action: str, **fields: str) -> Any:
    """Send the form of this act, as the page has it."""
    page = await visitor.get(f"/reviews/{review.id}")
    form_fields = {"csrf": token_of(page), "action": action, "seen": str(review.revision), "key": uuid4().hex}
    return await visitor.post(
        f"/reviews/{review.id}", form_fields | {name.replace("__", "."): v for name, v in fields.items()}
    )


async def start_until_final_review(visitor: Visitor) -> Review:
    """A review with its own form."""
    review = await start_until_review(visitor.api.sandbox)
    await visitor.client.reviews.decide(review.id, APPROVE)
    return await work_until_review(visitor.api.sandbox, review.run)


async def get_review(visitor: Visitor, review: Review) -> Review:
    return await visitor.client.reviews.get(review.id)


async def test_a_review_shows_texts_images_and_recordings(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = await visitor.get(f"/reviews/{review.id}")
    assert "Tesouro Selic rende quase o mesmo." in page.text
    assert re.search(
        rf'<audio controls preload="metadata" src="/api/v1/runs/{review.run}/files/[0-9a-f]{{64}}"', page.text
    )
    assert re.search(rf'<img src="/api/v1/runs/{review.run}/files/[0-9a-f]{{64}}" alt="capa.png"', page.text)
    assert "due in 2 hr" in visible_text(page)


async def test_a_run_says_once_that_it_waits_for_a_review(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = visible_text(await visitor.get(f"/runs/{review.run}"))
    assert "Waiting for review: draft_review" in page
    assert "Why is it waiting?" not in page


async def test_hostile_text_in_a_reviewed_result_is_escaped(visitor: Visitor) -> None:
    first = await start_until_review(visitor.api.sandbox, topic=EVERYTHING)
    await visitor.client.reviews.decide(first.id, Decision("send_back", by=EVERYTHING, notes=EVERYTHING))
    review = await work_until_review(visitor.api.sandbox, first.run)
    for address in (f"/reviews/{review.id}", "/reviews", f"/runs/{review.run}?step=draft"):
        page = await visitor.get(address)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert "<iframe" not in page.text


async def test_an_approval_can_be_undone_for_ten_seconds_and_then_takes_effect(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    answer = await decide(visitor, review, "approve")
    page = await visitor.get(answer.headers["location"])
    assert "Approved: Renda fixa em 2026 Undo" in " ".join(visible_text(page).split())
    assert 'data-seconds="10.0"' in page.text
    assert "Decided by Dora: Approved" in visible_text(await visitor.get(f"/reviews/{review.id}"))
    assert "draft_review: decided, takes effect shortly" in visible_text(await visitor.get(f"/runs/{review.run}"))
    undone = await visitor.post(f"/reviews/{review.id}/undo", {"csrf": token_of(page)})
    assert "The decision has been undone." in visible_text(await visitor.get(undone.headers["location"]))
    assert (await get_review(visitor, review)).is_open
    await decide(visitor, review, "approve")
    await visitor.api.sandbox.clock.advance(timedelta(seconds=11))
    await visitor.api.sandbox.work(advance_clock=False)
    late = await visitor.post(f"/reviews/{review.id}/undo", {"csrf": token_of(page)})
    assert "Too late" in visible_text(await visitor.get(late.headers["location"]))
    assert (await get_review(visitor, review)).via == "page"


async def test_a_run_continues_with_the_values_edited_in_typed_fields(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = await visitor.get(f"/reviews/{review.id}")
    assert 'value="Renda fixa em 2026"' in page.text
    fields = {
        "value__title": "Outro",
        "value__text": "um\r\ndois",
        "value__tags": "a\r\n\r\n b ",
        "value__score": "9,5",
    }
    assert (await decide(visitor, review, "edit", **fields)).status_code == 303
    value = (await get_review(visitor, review)).value
    expected = {"title": "Outro", "text": "um\ndois", "tags": ["a", "b"], "score": 9.5, "passed": False}
    assert {name: value[name] for name in expected} == expected


async def test_a_result_is_shown_in_the_viewers_language_as_far_as_the_application_translates_it(
    visitor: Visitor,
) -> None:
    review = await start_until_review(visitor.api.sandbox)
    for language, name, score in (("en", "Score", "8.5"), ("pt", "Pontuação", "8,5")):
        page = await visitor.get(f"/reviews/{review.id}", Accept_Language=language)
        assert f'<dt>{name}</dt><dd><span class="num">{score}</span>' in re.sub(r"\s*\n\s*", "", page.text)
        assert "<dt>Passed</dt>" in page.text
        assert re.search(rf'inputmode="decimal" value="{score}" id="value.score"', page.text)


async def test_a_decided_review_shows_the_edits_made_before_its_approval(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await decide(visitor, review, "edit", value__title="Renda fixa em 2027", value__text=TEXT)
    page = await visitor.get(f"/reviews/{review.id}")
    assert "Decided by Dora: Edited and approved" in visible_text(page)
    assert "Dora edited and approved" in visible_text(page)
    assert '<ins><span class="sr">added:</span> 2027</ins>' in page.text


async def test_filling_in_the_form_of_a_review_is_not_editing(visitor: Visitor) -> None:
    review = await start_until_final_review(visitor)
    await decide(visitor, review, "approve", value__picture="2", value__title="Meu título")
    page = visible_text(await visitor.get(f"/reviews/{review.id}"))
    assert ("Dora approved" in page, "dited and approved" in page) == (True, False)
    assert re.search(r"Approved result\s+Picture\s+2\s+Title\s+Meu título", page)


async def test_an_invalid_value_is_returned_at_its_field_as_typed(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    answer = await decide(visitor, review, "edit", value__title="", value__text="mine", value__score="much")
    assert answer.status_code == 422
    assert re.search(r'id="value.score-why" role="alert">.*Enter a number\.', answer.text)
    assert (">mine</textarea>" in answer.text, 'value="much"' in answer.text) == (True, True)
    answer = await decide(visitor, review, "edit", value__title="", value__text="mine", value__score="1")
    assert re.search(r'id="value.title-why" role="alert">.*This field is required', answer.text)
    assert "Some fields need attention: see below." in visible_text(answer)
    answer = await decide(visitor, review, "edit", value__title="x", value__text="", value__picture="{")
    assert re.search(r'id="value.picture-why" role="alert">.*Invalid JSON at line 1, column 2\.', answer.text)
    assert (await get_review(visitor, review)).is_open


async def test_a_form_asks_for_missing_fields_and_keeps_typed_values(visitor: Visitor) -> None:
    review = await start_until_final_review(visitor)
    page = await visitor.get(f"/reviews/{review.id}")
    assert 'name="value.title" form="decision" aria-describedby' in page.text
    answer = await decide(visitor, review, "approve", value__picture="0", value__title="Meu título")
    assert (answer.status_code, "Must be at least 1." in answer.text) == (422, True)
    assert 'value="Meu título"' in answer.text
    assert (await decide(visitor, review, "approve", value__picture="2", value__notify="yes")).status_code == 303
    assert (await get_review(visitor, review)).value == {"picture": 2, "title": None, "notify": True}


async def test_work_is_sent_back_with_notes_timed_comments_and_the_chosen_step(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    answer = await decide(visitor, review, "send_back", notes=" ", to="facts", **{"feedback.with_picture": "yes"})
    assert (answer.status_code, "Say what should be improved." in answer.text) == (422, True)
    assert 'value="facts" form="decision" checked' in answer.text
    await decide(
        visitor, review, "send_back", notes="Mais curto", to="facts", comments="1:02-1:05.5 corte\nalto demais"
    )
    decided = await get_review(visitor, review)
    assert (decided.state, decided.back_to, decided.notes) == (ReviewState.SENT_BACK, "facts", "Mais curto")
    assert decided.feedback["comments"] == [
        {"text": "corte", "at": 62.0, "to": 65.5},
        {"text": "alto demais", "at": None, "to": None},
    ]
    page = (await visitor.get(f"/reviews/{review.id}")).text
    assert page.count("1:02-1:05.5 corte\nalto demais") == 2  # where it says how it was decided, and in the history


async def test_work_is_sent_back_with_the_fields_of_its_feedback_form(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = (await visitor.get(f"/reviews/{review.id}?lang=pt")).text
    assert (">Tom</label>" in page, "Quente …" in page) == (True, True)
    fields = {"feedback.tone": "x" * 21, "feedback.other_words": "1: sol"}
    bounced = await decide(visitor, review, "send_back", **fields)
    assert (bounced.status_code, "no máximo 20 caracteres" in bounced.text, "1: sol</textarea>" in bounced.text) == (
        422,
        True,
        True,
    )
    assert 'value="yes" id="feedback.with_picture"' in bounced.text  # as it was left: without the tick
    await decide(visitor, review, "send_back", **fields | {"feedback.tone": "warm"})
    decided = await get_review(visitor, review)
    messages = {"tone": "warm", "other_words": {"1": "sol"}, "with_picture": False}
    assert (decided.state, decided.feedback) == (ReviewState.SENT_BACK, {**messages, "comments": []})


async def test_submitted_feedback_is_shown_in_the_readers_language(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    fields = {"feedback.tone": "warm", "feedback.other_words": "1: sol", "feedback.speed": "1,2", "feedback.sung": "no"}
    await decide(visitor, review, "send_back", **fields, **{"feedback.ends": "um\ndois"})
    reported = "Tom: warm\nOther words: 1: sol\nWith picture: não\nSpeed: 1,2\nEnds: um, dois\nCantado: não"
    page = (await visitor.get(f"/reviews/{review.id}?lang=pt")).text
    assert page.count(reported) == 2  # where it says how it was decided, and in the history
    await visitor.api.sandbox.clock.advance(timedelta(seconds=11))
    await visitor.api.sandbox.work(advance_clock=False)
    assert "Ends: um, dois" in (await visitor.get(f"/runs/{review.run}?step=draft")).text


async def test_an_optional_empty_field_is_not_shown_as_none(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = await visitor.get(f"/reviews/{review.id}?lang=pt")
    assert re.search(r'name="feedback.sung"[^>]*><option value="">sem mudança</option>', page.text)


async def test_items_of_a_step_are_sent_back_individually(visitor: Visitor) -> None:
    review = await start_until_final_review(visitor)
    page = await visitor.get(f"/reviews/{review.id}")
    items = re.findall(r'name="items" value="([^"]+)"', page.text)
    assert len(items) == 2
    await decide(visitor, review, "send_back", notes="brighter", to="image", items=items[1])
    assert (await get_review(visitor, review)).back_items == (items[1],)


async def test_a_rerun_result_is_compared_with_the_previous_one(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.client.reviews.decide(review.id, Decision("send_back", by="diego", notes="Mais curto"))
    again = await work_until_review(visitor.api.sandbox, review.run)
    page = await visitor.get(f"/reviews/{again.id}")
    text = " ".join(visible_text(page).split())
    assert "What changed since revision 1" in text
    assert "What was asked for diego" in text
    assert text.index("What was asked for") < text.index("What changed") < text.index("draft revision 2")
    assert 'rende<del><span class="sr">removed:</span> quase o mesmo</del>' in page.text
    assert '<ins><span class="sr">added:</span> menos que a poupança</ins>' in page.text
    (before, now) = re.findall(r'<audio controls preload="metadata" src="([^"]+)"( data-played)?', page.text)[:2]
    assert (before[1], now[1]) == ("", " data-played")  # comments are about what is there now
    lengths = [len((await visitor.get(address)).content) for address, _ in (before, now)]
    assert lengths[0] > lengths[1]
    assert "diego sent it back to draft" in visible_text(page)
    assert "Mais curto" in visible_text(page)


async def test_a_rejection_says_why_and_ends_the_run(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    answer = await decide(visitor, review, "reject")
    assert (answer.status_code, "Give a reason for the rejection." in answer.text) == (422, True)
    assert (await decide(visitor, review, "reject", notes="off topic")).status_code == 303
    await visitor.api.sandbox.clock.advance(timedelta(seconds=11))
    await visitor.api.sandbox.work(advance_clock=False)
    assert (await visitor.client.runs.get(review.run)).state is RunState.REJECTED
    head = " ".join(visible_text(await visitor.get(f"/runs/{review.run}")).split())
    assert re.search(r"Rejected by \w+ at draft_review .* off topic View the review", head)


@pytest.mark.parametrize(
    ("pipeline", "language", "effect"),
    [
        ("album", "en", "Rejects this item; the other items continue."),
        ("album", "pt", "Rejeita este item; os demais continuam."),
        ("passport", "en", "Ends the run. Its results are kept."),
        ("passport", "pt", "Encerra a execução. Os resultados são mantidos."),
    ],
)
async def test_a_review_says_beforehand_what_a_rejection_does(
    open_pages: OpenPages, pipeline: str, language: str, effect: str
) -> None:
    async with open_pages(application=pictures.app) as visitor:
        cup, _ = await pictures.start_until_reviews(visitor.api.sandbox, pipeline)
        assert effect in visible_text(await visitor.get(f"/reviews/{cup.id}?lang={language}"))


async def test_the_pages_of_a_run_show_who_rejected_an_item_and_why(open_pages: OpenPages) -> None:
    async with open_pages(application=pictures.app) as visitor:
        cup, leaf = await pictures.start_until_reviews(visitor.api.sandbox)
        assert (await decide(visitor, cup, "reject", notes="blurred")).status_code == 303
        await visitor.api.sandbox.clock.advance(timedelta(seconds=11))
        run = await pictures.approve_and_end(visitor.api.sandbox, leaf)
        for path in (f"/runs/{run}", f"/runs/{run}?step=good_picture&item=cup"):
            page = visible_text(await visitor.get(path))
            assert "REJECTED" in page, path
            assert re.search(r"rejected by \S+: blurred", page), path


async def test_the_second_reviewer_sees_who_decided_first_and_keeps_their_text(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    token = token_of(await visitor.get(f"/reviews/{review.id}"))
    await visitor.client.reviews.decide(review.id, Decision("reject", by="Marina", notes="too late for this"))
    fields = {"csrf": token, "action": "send_back", "seen": "1", "key": "k", "notes": "my long thoughts"}
    answer = await visitor.post(f"/reviews/{review.id}", fields)
    assert answer.status_code == 409
    page = visible_text(answer)
    assert "Someone else decided first" in page
    assert "Marina decided at 2030-01-01 12:00:00: rejected." in page
    assert "my long thoughts" in page


@pytest.mark.parametrize(
    ("act", "values", "labels"),
    [
        ("edit", {"value.title": "my title", "value.tags": "my tag\nother", "notes": "my reason"}, "Title|Tags|Notes"),
        (
            "send_back",
            {"to": "facts", "comments": "0:12 too loud", "feedback.tone": "warm", "items": "part 1"},
            "Send back to|Timed comments|Tone|Items",
        ),
        ("approve", {}, ""),
    ],
)
async def test_the_second_reviewer_keeps_all_form_values(
    visitor: Visitor, act: str, values: dict[str, str], labels: str
) -> None:
    review = await start_until_review(visitor.api.sandbox)
    token = token_of(await visitor.get(f"/reviews/{review.id}"))
    await visitor.client.reviews.decide(review.id, APPROVE)
    carried = {"csrf": token, "action": act, "seen": "1", "key": "k"}
    answer = await visitor.post(f"/reviews/{review.id}", carried | values)
    _, is_there, rest = answer.text.partition("What you wrote")
    kept = re.findall(r'<dt>([^<]*)</dt><dd><p class="user-text">([^<]*)</p>', rest.partition("</details>")[0])
    assert dict(kept) == dict(zip(filter(None, labels.split("|")), values.values(), strict=True))
    assert bool(is_there) is bool(values)


async def test_a_reviewer_who_returns_to_the_form_and_decides_differently_sees_the_decision(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await decide(visitor, review, "approve")
    answer = await decide(visitor, review, "reject", notes="off topic")
    assert (answer.status_code, "decided at 2030-01-01 12:00:00: approved." in visible_text(answer)) == (409, True)


async def test_a_revision_that_was_not_seen_is_not_approved(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    answer = await decide(visitor, review, "approve", seen="7", notes="my reason")
    assert (answer.status_code, "look at it again" in answer.text) == (409, True)
    assert ">my reason</textarea>" in answer.text
    assert (await get_review(visitor, review)).is_open


async def test_rejections_are_in_the_visitors_language(visitor: Visitor) -> None:
    review = await start_until_final_review(visitor)
    await visitor.get(f"/reviews/{review.id}?lang=pt")
    changed = await decide(visitor, review, "approve", seen="7", value__picture="1")
    assert "Uma nova versão foi criada" in visible_text(changed)
    missed = await decide(visitor, review, "send_back", to="image", items="no such part")
    assert (missed.status_code, "A etapa escolhida não leva a esta revisão" in visible_text(missed)) == (422, True)
    chosen = {"csrf": token_of(missed), "review": f"{review.id}:{review.revision}", "key": "k"}
    results = (await visitor.post("/reviews", chosen)).headers["location"]
    assert "não aprovada: Abra e preencha o formulário." in visible_text(await visitor.get(results))


async def test_an_approval_may_have_notes(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await decide(visitor, review, "approve", notes="good, but late")
    assert (await get_review(visitor, review)).notes == "good, but late"
    assert "good, but late" in visible_text(await visitor.get(f"/reviews/{review.id}"))


async def test_a_review_shows_the_cost_of_its_run(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    page = visible_text(await visitor.get(f"/reviews/{review.id}"))
    assert re.search(r"Charges\s+US\$ 0\.0123", page)


async def test_a_step_that_asks_for_help_is_accepted_rerun_or_rejected(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox, words=-1)
    await visitor.client.reviews.decide(review.id, APPROVE)
    help_ = await work_until_review(visitor.api.sandbox, review.run)
    page = visible_text(await visitor.get(f"/reviews/{help_.id}/panes"))
    for expected in (
        "A step asks for help",
        "TOO_SHORT",
        "shorter than it should be",
        "a short page",
        "Run again",
        "Accept",
    ):
        assert expected in page
    assert "Send back" not in page
    assert (await decide(visitor, help_, "edit", value="a longer page")).status_code == 303
    assert (await get_review(visitor, help_)).value == "a longer page"


async def test_the_list_groups_by_kind_highlights_overdue_reviews_and_filters_by_url(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox, topic="late one")
    for minutes, colour, expected in (
        (59, "", "1 hr 1 min"),
        (2, " c-warn", "59 min"),
        (45, " c-fail", "14 min"),
    ):
        await visitor.api.sandbox.clock.advance(timedelta(minutes=minutes))
        page = await visitor.get("/reviews")
        assert f'<span class="d{colour}"><span class="sr">due in</span>{expected}</span>' in page.text, expected
    await visitor.api.sandbox.clock.advance(timedelta(minutes=15))
    for path in ("/reviews", f"/reviews/{review.id}", f"/runs/{review.run}"):
        assert "1 min overdue" in visible_text(await visitor.get(path)), path
    await visitor.client.reviews.assign(review.id, "Diego", by="ana")
    await visitor.client.reviews.claim(review.id, by="Marina")
    for query, is_there in (
        ("step=draft_review&tenant=channel&assignee=Diego", True),
        ("step=final_review", False),
        ("tenant=other", False),
        ("assignee=Ana", False),
        ("state=rejected", False),
    ):
        page = await visitor.get(f"/reviews?{query}")
        assert ("late one" in page.text) is is_there, query
    assert re.search(r'Reviews\s+<span class="count you">1</span>', page.text)
    overview = visible_text(await visitor.get("/"))
    assert "Waiting for review" in overview
    assert "1 overdue" in overview


async def test_the_assignee_is_chosen_among_those_who_may_decide(open_pages: OpenPages, tmp_path: Path) -> None:
    async with open_pages(application=make_application(tmp_path), development=False) as visitor:
        await visitor.log_in()
        await add_person(visitor.client, "rui@example.com", Role.REVIEWER, "channel")
        await add_person(visitor.client, "bia@example.com", Role.REVIEWER, "another")
        await add_person(visitor.client, "vera@example.com", Role.VIEWER)
        review = await start_until_review(visitor.api.sandbox)
        page = (await visitor.get(f"/reviews/{review.id}")).text
        (select,) = re.findall(r'/assign[^"]*">.*?<select name="assignee"[^>]*>(.*?)</select>', page)
        offered = re.findall(r'value="([^"]*)"', select)
        assert offered == ["", "reviewer", "operator", "administrator", "Ana", "Rui"]


async def test_a_row_says_its_age_its_assignee_and_who_reviews_it(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.client.reviews.assign(review.id, "Diego", by="ana")
    await visitor.client.reviews.claim(review.id, by="Marina")
    await visitor.api.sandbox.clock.advance(timedelta(minutes=3))
    text = visible_text(await visitor.get("/reviews"))
    assert "channel · waiting for 3 min · with Marina · for Diego" in text


async def test_overdue_only_counts_overdue_reviews(visitor: Visitor) -> None:
    late = await start_until_review(visitor.api.sandbox, topic="late")
    await visitor.api.sandbox.clock.advance(timedelta(hours=3))
    await start_until_review(visitor.api.sandbox, topic="in time")
    page = await visitor.get(f"/reviews/{late.id}?overdue=yes")
    assert "1 of 1" in visible_text(page)
    assert "Approve all 1…" in page.text
    assert re.search(r'id="total">1<', page.text)
    assert 'Reviews <span class="count you">2</span>' in page.text


async def test_the_list_goes_on_after_its_last_review_though_that_one_is_decided(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "PAGE_SIZE", 2)
    final = await start_until_final_review(visitor)  # of another kind, without a deadline
    for number in range(1, 4):
        await start_until_review(visitor.api.sandbox, topic=f"topic {number}")
        await visitor.api.sandbox.clock.advance(timedelta(minutes=1))
    first = await visitor.get("/reviews")
    shown = [UUID(each) for each in re.findall(r'<li data-id="([^"]+)"', first.text)]
    assert len(shown) == 2
    for each in shown:
        await visitor.client.reviews.decide(each, APPROVE)
    (later,) = re.findall(r'href="([^"]+)" data-later', first.text)
    page = await visitor.get(html.unescape(later))
    assert "topic 3" in visible_text(page)
    assert re.findall(r'<li data-id="([^"]+)"', page.text)[1:] == [str(final.id)]


async def test_an_empty_list_has_an_explanation(visitor: Visitor) -> None:
    assert "Nothing to review" in visible_text(await visitor.get("/reviews"))
    assert "No matching reviews" in visible_text(await visitor.get("/reviews?step=x"))


async def test_many_reviews_are_approved_at_once_and_each_reports_its_outcome(visitor: Visitor) -> None:
    good = await start_until_review(visitor.api.sandbox, topic="good")
    bad = await start_until_final_review(visitor)
    taken = await start_until_review(visitor.api.sandbox, topic="taken")
    old = await start_until_review(visitor.api.sandbox, topic="old")
    token = token_of(await visitor.get("/reviews"))
    await visitor.client.reviews.decide(taken.id, Decision("approve", by="Marina"))
    chosen = [
        *(f"{each.id}:{each.revision}" for each in (good, bad, taken)),
        f"{old.id}:7",
        "no id",
        f"{UUID(int=1)}:1",
    ]
    answer = await visitor.post("/reviews", {"csrf": token, "review": chosen, "key": UUID(int=7).hex})  # type: ignore[dict-item]
    assert (answer.status_code, answer.headers["location"]) == (303, f"/reviews/batches/{UUID(int=7)}")
    outcomes = " ".join(visible_text(await visitor.get(answer.headers["location"])).split())
    assert "1 of 5 approved" in outcomes
    assert outcomes.index("Open it and fill in its form.") < outcomes.index("good · draft_review approved")
    for expected in (
        "Open it and fill in its form.",
        "Marina decided at",
        "look at it again",
        "this review does not exist",
    ):
        assert expected in outcomes
    states = [(await get_review(visitor, each)).state for each in (good, bad, taken, old)]
    assert states == [ReviewState.APPROVED, ReviewState.OPEN, ReviewState.APPROVED, ReviewState.OPEN]


async def test_approving_without_a_selection_is_reported_on_the_same_page(visitor: Visitor) -> None:
    token = token_of(await visitor.get(f"/reviews/{(await start_until_review(visitor.api.sandbox)).id}"))
    answer = await visitor.post("/reviews?tenant=channel", {"csrf": token, "key": "k"})
    page = await visitor.get(answer.headers["location"])
    assert "Nothing was selected." in visible_text(page)
    assert '<option value="channel" selected>' in page.text


async def test_colleagues_see_who_is_viewing_a_review_and_its_assignee(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    token = token_of(await visitor.get(f"/reviews/{review.id}"))
    assert (await visitor.post(f"/reviews/{review.id}/claim", {"csrf": token, "quiet": "yes"})).status_code == 204
    assert "you are reviewing it" in visible_text(await visitor.get(f"/reviews/{review.id}"))
    await visitor.post(f"/reviews/{review.id}/assign", {"csrf": token, "assignee": " Diego "})
    assert (await get_review(visitor, review)).assignee == "Diego"
    await visitor.api.sandbox.clock.advance(timedelta(minutes=11))
    await visitor.client.reviews.claim(review.id, by="Marina")
    assert "Marina is reviewing it" in visible_text(await visitor.get(f"/reviews/{review.id}"))


async def test_an_application_renders_reviewed_results_with_its_own_template(
    open_pages: OpenPages, tmp_path: Path
) -> None:
    (tmp_path / "own.html").write_text(
        """<h2>{{ subjects.draft.value.title }} {{ file_url(subjects.draft.value.picture) }} {{ review.step }}</h2>
        <input value="{{ submitted['value.picture'] }}" name="value.picture" form="approve">{{
        errors['value.picture'] }}"""
    )
    application = make_application(tmp_path, templates=tmp_path, review_templates={"final_review": "own.html"})
    async with open_pages(application=application) as visitor:
        review = await start_until_final_review(visitor)
        page = await visitor.get(f"/reviews/{review.id}")
        assert f"Renda fixa em 2026 /api/v1/runs/{review.run}/files/" in page.text
        assert page.text.count('name="value.picture"') == 1
        assert 'name="value.title"' in page.text
        answer = await decide(visitor, review, "approve", value__picture="0")
        assert 'value="0" name="value.picture" form="approve">Must be at least 1.' in answer.text


async def test_pages_use_the_application_labels_of_steps(open_pages: OpenPages, tmp_path: Path) -> None:
    labels = {"draft": "Draft", "draft_review": "Reading"}
    locale = write_catalogue(tmp_path / "locale", {"Draft": "Rascunho", "Reading": "Leitura"})
    async with open_pages(application=make_application(tmp_path, labels=labels, locale=locale)) as visitor:
        review = await start_until_review(visitor.api.sandbox)
        for path in ("/reviews", f"/reviews/{review.id}", f"/runs/{review.run}"):
            assert "Leitura" in visible_text(await visitor.get(f"{path}?lang=pt")), path
        assert "Rascunho" in visible_text(await visitor.get(f"/reviews/{review.id}"))
        assert "Aguardando revisão: Leitura" in visible_text(await visitor.get(f"/runs/{review.run}"))


def test_a_label_for_a_missing_step_is_rejected() -> None:
    with pytest.raises(DefinitionError, match="did you mean 'draft'"):
        App("newsroom", pipelines=[article], labels={"drafts": "Draft"})


def test_a_template_for_a_missing_review_is_rejected() -> None:
    with pytest.raises(DefinitionError, match="did you mean 'final_review'"):
        App("newsroom", pipelines=[article], review_templates={"final_revue": "own.html"})


@pytest.mark.parametrize(
    ("language", "message"),
    [("en", "Renda fixa em 2026: a text has no music"), ("pt", "Renda fixa em 2026: um texto não tem música")],
)
async def test_feedback_that_a_step_cannot_follow_is_returned_with_the_reason(
    visitor: Visitor, language: str, message: str
) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await visitor.get(f"/reviews/{review.id}?lang={language}")
    bounced = await decide(visitor, review, "send_back", notes="add music", to="draft")
    assert (bounced.status_code, message in bounced.text, ">add music</textarea>" in bounced.text) == (422, True, True)
    assert (await get_review(visitor, review)).is_open
    await decide(visitor, review, "send_back", notes="add music", to="facts")  # which follows whatever is said
    assert not (await get_review(visitor, review)).is_open


async def test_a_comment_is_carried_to_the_next_revision_until_it_is_resolved(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    answer = await decide(visitor, review, "send_back", notes="", comments="0:01-0:02 “No susto” too loud\nplain")
    assert answer.status_code == 303, answer.text
    await visitor.api.sandbox.clock.advance(timedelta(seconds=11))
    again = await work_until_review(visitor.api.sandbox, review.run)
    carried = await visitor.client.reviews.list_comments(again)
    assert [(each.text, each.at, each.to, each.quote, each.resolved_by) for each in carried] == [
        ("too loud", 1.0, 2.0, "No susto", None),
        ("plain", None, None, "", None),
    ]
    page = await visitor.get(f"/reviews/{again.id}")
    assert re.findall(r'data-resolved="(\w+)"', page.text) == ["no", "no"]
    form = {"csrf": token_of(page), "of": str(review.id), "position": "0", "resolved": "yes"}
    assert (await visitor.post(f"/reviews/{again.id}/comments", form)).status_code == 303
    text = (await visitor.get(f"/reviews/{again.id}")).text
    assert re.findall(r'data-resolved="(\w+)"', text) == ["yes", "no"]
    assert "resolved by Dora" in text
    assert (await visitor.post(f"/reviews/{again.id}/comments", form | {"resolved": ""})).status_code == 303
    assert [each.resolved_by for each in await visitor.client.reviews.list_comments(again)] == [None, None]


@pytest.mark.parametrize(("of", "position"), [("", "2"), ("", "x"), ("nothing", "0"), (str(UUID(int=0)), "0")])
async def test_a_comment_that_does_not_exist_cannot_be_resolved(visitor: Visitor, of: str, position: str) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await decide(visitor, review, "send_back", notes="shorter", comments="0:01 too loud")
    form = {"csrf": token_of(await visitor.get(f"/reviews/{review.id}")), "position": position, "resolved": "yes"}
    answer = await visitor.post(f"/reviews/{review.id}/comments", form | {"of": of or str(review.id)})
    assert answer.status_code == 404


async def test_selected_reasons_become_lines_of_the_notes(open_pages: OpenPages, tmp_path: Path) -> None:
    reasons = {"draft_review": {"draft": ["Shorter", "Warmer"], "facts": ["Warmer"]}}
    async with open_pages(application=make_application(tmp_path, review_reasons=reasons)) as visitor:
        review = await start_until_review(visitor.api.sandbox)
        page = (await visitor.get(f"/reviews/{review.id}")).text
        assert re.findall(r'data-steps="([^"]+)"><input type="checkbox" name="reasons" value="(\w+)"', page) == [
            ("draft", "Shorter"),
            ("draft facts", "Warmer"),
        ]
        answer = await decide(visitor, review, "send_back", notes="please", reasons="Shorter")
        assert answer.status_code == 303
        assert (await visitor.client.reviews.get(review.id)).notes == "Shorter\nplease"
        await visitor.client.reviews.undo(review.id, by="Dora")
        again = (await visitor.get(f"/reviews/{review.id}")).text
        assert re.findall(r'name="reasons" value="(\w+)" form="decision" checked', again) == ["Shorter"]


async def test_a_reason_that_is_not_offered_is_not_sent(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox)
    await decide(visitor, review, "send_back", notes="please", reasons="Shorter")
    assert (await visitor.client.reviews.get(review.id)).notes == "please"


async def test_decided_reviews_of_one_kind_are_listed_together(visitor: Visitor) -> None:
    final = await start_until_final_review(visitor)
    await visitor.api.sandbox.clock.advance(timedelta(minutes=1))
    await visitor.client.reviews.decide(final.id, Decision("reject", by="ana", notes="off topic"))
    await visitor.api.sandbox.clock.advance(timedelta(minutes=1))
    await start_until_final_review(visitor)
    page = (await visitor.get("/reviews?state=decided")).text
    headings = re.findall(r'<h2 id="kind-\d+"><a [^>]*>([^<]*)</a> <span class="count">(\d+)<', page)
    assert headings == [("draft_review", "2"), ("final_review", "1")]


async def test_the_space_key_is_visible_where_keys_are_changed(visitor: Visitor) -> None:
    page = await visitor.get("/reviews")
    fields = dict(re.findall(r'class="key" id="key-\w+" name="(\w+)" value="([^"]*)"', page.text))
    assert fields["play"] == "\N{OPEN BOX}"
    await visitor.post("/reviews/keys", {"csrf": token_of(page), "key": uuid4().hex, **fields, "approve": "y"})
    (keys,) = re.findall(r'data-keys="([^"]*)"', (await visitor.get("/reviews")).text)
    kept = json.loads(html.unescape(keys))
    assert (kept["approve"], kept["play"]) == ("y", " ")


async def test_the_audit_log_shows_what_was_decided_about_which_review(visitor: Visitor) -> None:
    review = await start_until_review(visitor.api.sandbox, topic="Renda fixa")
    await visitor.client.reviews.decide(review.id, Decision("send_back", by="ana", notes="shorter"))
    shown = " ".join(visible_text(await visitor.get("/audit?action=review.decide")).split())
    assert "Review: Decided Sent back Renda fixa" in shown
