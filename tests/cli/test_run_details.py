"""The table of steps that `retoma runs show` prints."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from retoma.cli.run_details import _step_row
from retoma.records import StepProgress
from retoma.states import JobState, RunState

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("jobs", "states", "items"),
    [
        ({JobState.SUCCEEDED: 64}, "succeeded", "64/64"),
        ({JobState.SUCCEEDED: 62, JobState.FAILED: 2}, "succeeded 62, failed 2", "62/64"),
        (
            {JobState.SUCCEEDED: 1, JobState.RUNNING: 1, JobState.QUARANTINED: 1},
            "succeeded 1, quarantined 1, running 1",
            "1/3",
        ),
        ({}, "waiting", "none yet"),
    ],
)
def test_the_items_of_a_step_are_shown_as_succeeded_of_total(
    jobs: dict[JobState, int], states: str, items: str
) -> None:
    row = _step_row(StepProgress("image", True, "default", jobs, NOON, NOON, NOON), RunState.RUNNING)
    assert (str(row["state"]), row["items"]) == (states, items)


@pytest.mark.parametrize(
    ("run", "state"), [(RunState.COMPLETED, "not needed"), (RunState.FAILED, "not run"), (RunState.RUNNING, "waiting")]
)
def test_a_step_that_never_ran_does_not_wait_after_the_end(run: RunState, state: str) -> None:
    row = _step_row(StepProgress("image", True, "default", {}, None, None, NOON), run)
    assert str(row["state"]) == state
