from __future__ import annotations

import pytest

from retoma.states import JobState, RunState
from retoma_apps.classifier.states import (
    DOCUMENT_STATUS_BY_JOB_STATE,
    DOCUMENT_STATUSES,
    STATUS_BY_RUN_STATE,
    STATUSES,
    job_states_of,
    states_of,
    status_of,
)


def test_every_state_of_a_run_is_one_of_the_seven_of_an_execution() -> None:
    assert set(STATUS_BY_RUN_STATE) == set(RunState)
    assert set(STATUS_BY_RUN_STATE.values()) == set(STATUSES)
    assert len(STATUSES) == 7


def test_every_state_of_a_job_is_one_of_the_five_of_a_document() -> None:
    assert set(DOCUMENT_STATUS_BY_JOB_STATE) == set(JobState)
    assert set(DOCUMENT_STATUS_BY_JOB_STATE.values()) == set(DOCUMENT_STATUSES)
    assert DOCUMENT_STATUSES == ("PENDENTE", "PROCESSANDO", "CONCLUIDO", "ERRO", "PULADO")


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("begun", [False, True])
def test_a_status_filter_finds_every_execution_with_it(state: RunState, begun: bool) -> None:
    assert state in states_of(status_of(state, started=begun))


@pytest.mark.parametrize("state", JobState)
def test_a_status_filter_finds_every_document_with_it(state: JobState) -> None:
    assert state in job_states_of(DOCUMENT_STATUS_BY_JOB_STATE[state])


def test_only_the_watchdogs_state_is_stuck() -> None:
    assert [state for state, status in STATUS_BY_RUN_STATE.items() if status == "TRAVADO"] == ["stuck"]
