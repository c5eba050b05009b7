"""Drawings of a run: its graph, and its timeline on one axis."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from retoma import App, Pipeline, Retry
from retoma.records import ExternalWork, FailedAttempt, Review, StepProgress
from retoma.server.pages import graph, waterfall
from retoma.server.pages.formats import Formats
from retoma.states import JobState, ReviewState
from tests.server.api import film
from tests.server.pages.newsroom import article
from tests.server.pages.visitor import OpenPages

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def make_step(name: str, created: float, started: float | None, ended: float | None) -> StepProgress:
    state = JobState.SUCCEEDED if ended is not None else JobState.READY if started is None else JobState.RUNNING
    began = None if started is None else at(started)
    over = None if ended is None else at(ended)
    spans = () if began is None else ((began, over),)
    return StepProgress(name, False, "default", {state: 1}, began, over, at(created), spans)


def test_a_long_idle_time_is_compressed_and_labelled() -> None:
    steps = [make_step("one", 0, 0, 5), make_step("two", 0, 125, 130)]
    fall = waterfall.draw_waterfall(steps, {"two": ["one"]}, [], at(0), at(130))
    (band,) = fall.bands
    assert (band.duration, band.width) == (timedelta(minutes=120), waterfall.BAND_WIDTH)
    (_, second) = fall.lanes
    assert [(bar.kind, bar.x, bar.width) for bar in second.bars] == [("queue", 47.5, 5.0), ("run", 52.5, 47.5)]


def make_record(kind: type[Any], **values: Any) -> Any:
    """With None for all that does not matter."""
    return kind(**{field.name: values.get(field.name) for field in fields(kind)})


def make_review(step: str, opened: float, decided: float | None, item: str = "") -> Review:
    state = ReviewState.OPEN if decided is None else ReviewState.APPROVED
    over = None if decided is None else at(decided)
    reported = {
        "step": step,
        "item": item,
        "state": state,
        "opened_at": at(opened),
        "decided_at": over,
        "applied_at": over,
    }
    review: Review = make_record(Review, planned=True, **reported)
    return review


def test_labels_of_compressed_times_stay_on_the_axis_and_do_not_overlap() -> None:
    steps = [make_step(str(number), number * 31, number * 31, number * 31 + 0.1) for number in range(9)]
    fall = waterfall.draw_waterfall(steps, {}, [], at(0), at(400))
    labelled = [band for band in fall.bands if band.label_x is not None]
    assert len(fall.bands) == 9
    assert labelled[-1].duration == max(band.duration for band in fall.bands)
    assert (labelled[-1].anchor, labelled[-1].label_x) == ("end", 100)
    assert [band.on_phones for band in labelled] == [*[False] * (len(labelled) - 1), True]
    places = [band.label_x for band in labelled if band.label_x is not None]
    assert all(after - before >= waterfall.LABEL_WIDTH for before, after in pairwise(places))


def test_every_round_of_a_review_counts_as_waiting_for_people() -> None:
    steps = [make_step("script", 5, 5, 6), make_step("approval", 5, 10, 10)]
    rounds = [make_review("approval", 1, 5), make_review("approval", 6, 10)]
    fall = waterfall.draw_waterfall(steps, {"approval": ["script"]}, [], at(0), at(10), reviews=rounds)
    assert fall.totals["human"] == fall.review_time == timedelta(minutes=8)
    assert fall.totals["queue"] == timedelta(0)
    assert fall.lanes[1].duration == timedelta(minutes=8)


def test_a_review_of_items_counts_as_waiting_for_people_and_not_as_work() -> None:
    steps = [replace(make_step("approval", 0, 2, 9), each=True)]
    reviews = [
        make_review("approval", 0, 2, "a"),
        make_review("approval", 1, 8, "b"),
        make_review("approval", 0, 8, "c"),
    ]
    fall = waterfall.draw_waterfall(steps, {}, [], at(0), at(9), reviews=reviews)
    assert fall.totals["human"] == fall.review_time == timedelta(minutes=8)
    assert fall.totals["run"] == timedelta(minutes=1)


def test_a_step_is_queued_from_the_end_of_its_dependencies() -> None:
    steps = [make_step("one", 0, 0, 4), make_step("two", 0, 5, 8), make_step("three", 0, None, None)]
    fall = waterfall.draw_waterfall(steps, {"two": ["one"], "three": ["two"]}, [], at(0), at(8))
    assert fall.totals["queue"] == timedelta(minutes=1)
    waiting = waterfall.draw_waterfall([make_step("one", 0, 1, None), steps[2]], {"three": ["one"]}, [], at(0), at(8))
    assert waiting.lanes[1].bars == []


def test_every_bar_lies_on_the_axis() -> None:
    steps = [make_step(str(number), number, number + 1, number + 20 * (number % 3 + 1)) for number in range(0, 200, 7)]
    fall = waterfall.draw_waterfall(steps, {}, [], at(0), at(300))
    bars = [bar for link in fall.lanes for bar in link.bars]
    assert all(bar.x >= 0 and bar.width > 0 and bar.x + bar.width <= 100.01 for bar in bars)


def test_a_run_without_duration_is_drawn() -> None:
    fall = waterfall.draw_waterfall([make_step("one", 0, 0, 0)], {}, [], at(0), at(0))
    assert len(fall.lanes[0].bars) == 2


def test_steps_are_right_of_their_dependencies_and_internal_ones_are_omitted() -> None:
    drawing = graph.draw_graph(film.graph, {}, dict.fromkeys(film.steps, "waiting"))
    columns = {node.step: node.x for node in drawing.nodes}
    assert columns["lines"] < columns["image"] < columns["cut"]
    assert set(columns) == {"lines", "image", "cut"}
    assert len(drawing.lines) == 2


def test_a_review_closes_a_phase_which_is_one_column() -> None:
    drawing = graph.draw_graph(article.graph, {}, dict.fromkeys(article.steps, "waiting"))
    columns: dict[int, list[str]] = {}
    for node in drawing.nodes:
        columns.setdefault(node.x, []).append(node.step)
    assert list(columns.values()) == [
        ["facts", "draft", "draft_review"],
        ["parts", "image", "page", "final_review"],
        ["post"],
    ]
    assert len({(node.x, node.y) for node in drawing.nodes}) == len(drawing.nodes)
    assert len(drawing.lines) == 7  # one less than steps: what others imply is left out


def test_numbers_and_times_follow_the_language() -> None:
    english, portuguese = Formats("en"), Formats("pt")
    assert (english.number(1234567), portuguese.number(1234567)) == ("1,234,567", "1.234.567")
    assert (english.duration(1.25), portuguese.duration(1.25)) == ("1.2 sec", "1,2 s")
    assert english.duration(timedelta(hours=26, minutes=5)) == "1 day 2 hr"
    assert english.duration(3600) == "1 hr"
    assert portuguese.duration(timedelta(days=2, hours=4)) == "2 dias 4 h"
    assert portuguese.duration(timedelta(hours=1, minutes=57)) == "1 h 57 min"
    assert portuguese.ago_text(at(0), at(5)) == "há 5 min"
    assert (english.percent(0.125), portuguese.percent(0.125)) == ("12.5%", "12,5%")
    assert (english.money(1_234_500_000), portuguese.money(1_230)) == ("1,234.50", "0,0012")
    assert (english.exact(0.1), portuguese.exact(1234.125)) == ("0.1", "1.234,125")


def make_failed_attempt(began: float, ended: float, again: float | None = None) -> FailedAttempt:
    return FailedAttempt("one", "", at(began), at(ended), None if again is None else at(again))


def list_spans(fall: waterfall.Waterfall, link: int = 0) -> list[tuple[str, float]]:
    return [(bar.kind, bar.duration / timedelta(minutes=1)) for bar in fall.lanes[link].bars]


def test_attempts_of_a_job_are_drawn_separately_with_the_wait_between_them() -> None:
    steps = [make_step("one", 0, 7, 9)]
    fall = waterfall.draw_waterfall(steps, {}, [], at(0), at(9), [make_failed_attempt(1, 3, 5)])
    assert list_spans(fall) == [("queue", 1), ("bad", 2), ("again", 2), ("queue", 2), ("run", 2)]
    assert fall.totals["again"] == timedelta(minutes=2)
    assert fall.totals["run"] == timedelta(minutes=4)


def test_the_time_between_two_revisions_does_not_count_as_duration() -> None:
    spans = ((at(0), at(1)), (at(60), at(62)))
    step = StepProgress("one", True, "default", {JobState.SUCCEEDED: 2}, at(0), at(62), at(0), spans)
    (lane,) = waterfall.draw_waterfall([step], {}, [], at(0), at(62)).lanes
    assert lane.duration == step.duration == timedelta(minutes=3)
    assert [bar.duration / timedelta(minutes=1) for bar in lane.bars if bar.kind == "run"] == [1, 2]


def test_external_work_counts_as_duration_and_not_as_work_of_the_worker() -> None:
    work = make_record(ExternalWork, step="one", item="", parked_at=at(1), ended_at=at(30), is_child_run=False)
    fall = waterfall.draw_waterfall([make_step("one", 0, 0, 32)], {}, [work], at(0), at(32))
    assert fall.lanes[0].duration == timedelta(minutes=32)
    assert (fall.totals["run"], fall.totals["external"]) == (timedelta(minutes=3), timedelta(minutes=29))


def test_the_last_attempt_that_failed_is_not_drawn_twice() -> None:
    steps = [make_step("one", 0, 4, 6)]
    fall = waterfall.draw_waterfall(
        steps, {}, [], at(0), at(6), [make_failed_attempt(1, 3, 4), make_failed_attempt(4, 6)]
    )
    assert list_spans(fall) == [("queue", 1), ("bad", 2), ("again", 1), ("bad", 2)]


def test_a_job_waiting_for_its_next_attempt_is_drawn_as_waiting_until_now() -> None:
    steps = [StepProgress("one", False, "default", {JobState.READY: 1}, at(1), None, at(0))]
    fall = waterfall.draw_waterfall(steps, {}, [], at(0), at(4), [make_failed_attempt(1, 3, 8)])
    assert list_spans(fall) == [("queue", 1), ("bad", 2), ("again", 1)]


async def test_attempts_are_on_the_page_with_a_lane_for_the_selected_item(open_pages: OpenPages) -> None:
    shaky = Pipeline("shaky", retry=Retry(1, delays=[60]))

    @shaky.step
    def names() -> list[str]:
        return ["a"]

    @shaky.each(names)
    def never(name: str) -> str:
        raise ValueError("no")

    async with open_pages(application=App("test", pipelines=[shaky])) as visitor:
        run = await visitor.client.start("shaky")
        await visitor.api.sandbox.work()
        (tried, last) = await visitor.client.runs.list_failed_attempts(run.id, "never", "a")
        assert tried.started_at <= tried.ended_at < (tried.retry_at or tried.ended_at) <= last.started_at
        assert last.retry_at is None
        page = (await visitor.get(f"/runs/{run.id}?step=never&item=a")).text
        assert page.count('class="w bad"') == 3
        assert page.count('class="a"') == 1
        assert 'class="row sub"' in page


def test_a_step_whose_items_ended_differently_shows_how_many_succeeded_and_failed() -> None:
    jobs = {JobState.SUCCEEDED: 61, JobState.FAILED: 2, JobState.QUARANTINED: 1}
    node = graph._make_node(
        "image", True, StepProgress("image", True, "default", jobs, at(0), at(1), at(0)), "failed", 0, 0
    )
    assert (node.done, node.total, node.failed) == (61, 64, 3)
