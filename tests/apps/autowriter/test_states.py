from __future__ import annotations

import pytest

from retoma.states import RunState
from retoma_apps.autowriter.states import ArticleState, state_of, states_of

EXPECTED = {
    RunState.PENDING: "pending",
    RunState.RUNNING: "running",
    RunState.STUCK: "running",
    RunState.CANCELLING: "running",
    RunState.NEEDS_REVIEW: "needs_review",
    RunState.PAUSED: "needs_review",
    RunState.FAILED: "failed",
    RunState.COMPLETED: "done",
    RunState.CANCELLED: "canceled",
    RunState.REJECTED: "canceled",
}


@pytest.mark.parametrize("state", RunState)
def test_every_run_state_is_exactly_one_of_the_six_states(state: RunState) -> None:
    expected = EXPECTED.get(state, "done")
    assert state_of(state, has_started=True, is_published=True) == expected
    assert state in states_of(ArticleState(expected))


def test_a_run_with_errors_and_without_a_draft_has_failed() -> None:
    assert state_of(RunState.COMPLETED_WITH_ERRORS, has_started=True, is_published=True) == "done"
    assert state_of(RunState.COMPLETED_WITH_ERRORS, has_started=True, is_published=False) == "failed"


@pytest.mark.parametrize("state", [RunState.PENDING, RunState.RUNNING, RunState.STUCK])
def test_an_article_without_an_attempt_is_pending(state: RunState) -> None:
    assert state_of(state, has_started=False, is_published=False) == "pending"
    assert state in states_of(ArticleState.PENDING)


def test_there_are_six_states() -> None:
    assert [*ArticleState] == ["pending", "running", "needs_review", "failed", "done", "canceled"]
