"""What is drawn from a run: its graph, and its time on one axis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from retoma.records import StepProgress
from retoma.server.pages import graph, waterfall
from retoma.server.pages.formats import Formats
from retoma.states import JobState
from tests.server.api import film

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def a_step(name: str, created: float, started: float | None, ended: float | None) -> StepProgress:
    state = JobState.SUCCEEDED if ended is not None else JobState.READY if started is None else JobState.RUNNING
    began = None if started is None else at(started)
    over = None if ended is None else at(ended)
    return StepProgress(name, False, "default", {state: 1}, began, over, at(created))


def test_a_long_idle_time_is_squeezed_and_labelled() -> None:
    steps = [a_step("one", 0, 0, 5), a_step("two", 0, 125, 130)]
    fall = waterfall.drawn(steps, {"two": ["one"]}, [], at(0), at(130))
    (band,) = fall.bands
    assert (band.lasted, band.width) == (timedelta(minutes=120), waterfall.BAND)
    (_, second) = fall.lanes
    assert [(bar.kind, bar.x, bar.width) for bar in second.bars] == [("queue", 47.5, 5.0), ("run", 52.5, 47.5)]


def test_a_step_is_in_the_queue_from_when_its_needs_are_over() -> None:
    steps = [a_step("one", 0, 0, 4), a_step("two", 0, 5, 8), a_step("three", 0, None, None)]
    fall = waterfall.drawn(steps, {"two": ["one"], "three": ["two"]}, [], at(0), at(8))
    assert fall.totals["queue"] == timedelta(minutes=1)
    waiting = waterfall.drawn([a_step("one", 0, 1, None), steps[2]], {"three": ["one"]}, [], at(0), at(8))
    assert waiting.lanes[1].bars == []


def test_every_bar_lies_on_the_axis() -> None:
    steps = [a_step(str(number), number, number + 1, number + 20 * (number % 3 + 1)) for number in range(0, 200, 7)]
    fall = waterfall.drawn(steps, {}, [], at(0), at(300))
    bars = [bar for lane in fall.lanes for bar in lane.bars]
    assert all(bar.x >= 0 and bar.width > 0 and bar.x + bar.width <= 100.01 for bar in bars)


def test_a_run_of_no_time_is_drawn() -> None:
    fall = waterfall.drawn([a_step("one", 0, 0, 0)], {}, [], at(0), at(0))
    assert len(fall.lanes[0].bars) == 2


def test_steps_stand_right_of_what_they_need_and_hidden_ones_nowhere() -> None:
    drawing = graph.drawn(film.graph, {})
    columns = {node.step: node.x for node in drawing.nodes}
    assert columns["lines"] < columns["image"] < columns["cut"]
    assert set(columns) == {"lines", "image", "cut"}
    assert len(drawing.lines) == 2


def test_numbers_and_times_are_those_of_the_language() -> None:
    english, portuguese = Formats("en"), Formats("pt")
    assert (english.number(1234567), portuguese.number(1234567)) == ("1,234,567", "1.234.567")
    assert (english.duration(1.25), portuguese.duration(1.25)) == ("1.2 s", "1,2 s")
    assert english.duration(timedelta(hours=26, minutes=5)) == "1 d 2 h"
    assert english.duration(3600) == "1 h"
    assert portuguese.ago(at(0), at(5)) == "há 5 min"
