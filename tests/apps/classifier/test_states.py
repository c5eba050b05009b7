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


def test_every_run_state_maps_to_one_of_the_seven_execution_states() -> None:
    assert set(STATUS_BY_RUN_STATE) == set(RunState)
    assert set(STATUS_BY_RUN_STATE.values()) == set(STATUSES)
    assert len(STATUSES) == 7


def test_every_job_state_maps_to_one_of_the_five_document_states() -> None:
    assert set(DOCUMENT_STATUS_BY_JOB_STATE) == set(JobState)
    assert set(DOCUMENT_STATUS_BY_JOB_STATE.values()) == set(DOCUMENT_STATUSES)
    assert DOCUMENT_STATUSES == ("PENDENTE", "PROCESSANDO", "CONCLUIDO", "ERRO", "PULADO")


@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("begun", [False, True])
def test_a_status_filter_returns_every_matching_execution(state: RunState, begun: bool) -> None:
    assert state in states_of(status_of(state, started=begun))


@pytest.mark.parametrize("state", JobState)
def test_a_status_filter_returns_every_matching_document(state: JobState) -> None:
    assert state in job_states_of(DOCUMENT_STATUS_BY_JOB_STATE[state])


def test_only_the_watchdogs_state_maps_to_stuck() -> None:
    assert [state for state, status in STATUS_BY_RUN_STATE.items() if status == "TRAVADO"] == ["stuck"]
