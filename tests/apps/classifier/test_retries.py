from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from retoma import minutes, seconds
from retoma.worker.attempt import LONGEST_STACK
from retoma_apps.classifier.pipeline import AGAIN, DOCUMENT_LIMIT, classification
from tests.apps.classifier.office import SPOILT, TEXTS, Office, a_project

ONE_BAD = {"a.txt": TEXTS["a.txt"], "b.txt": f"OFÍCIO {SPOILT}."}


async def retries_of(office: Office, execution: str, code: str) -> list[datetime]:
    events = await office.client.events(UUID(execution))
    return [event.at for event in events if event.item == code and event.kind in ("retry", "failure")]


async def test_a_document_is_tried_again_after_five_and_ten_seconds_with_jitter(office: Office) -> None:
    execution = await office.done(ONE_BAD)
    told = await retries_of(office, execution, "b.txt")
    first, second = (later - earlier for earlier, later in pairwise(told))
    assert seconds(4.5) <= first <= seconds(5.5)
    assert seconds(9) <= second <= seconds(11)
    assert AGAIN.jitter == 0.1
    assert (await office.documents(execution))["b.txt"]["tentativas"] == 3
    assert office.asked_about(SPOILT) == 3


@pytest.mark.parametrize(("allowed", "attempts"), [(0, 1), (1, 2), (4, 5)])
async def test_the_project_says_how_often_a_document_is_tried_again(
    office: Office, allowed: int, attempts: int
) -> None:
    execution = await office.done(ONE_BAD, max_retries_documento=allowed)
    found = await office.documents(execution)
    assert {code: each["tentativas"] for code, each in found.items()} == {"a.txt": 1, "b.txt": attempts}
    assert found["b.txt"]["status"] == "ERRO"


async def test_an_execution_keeps_the_limits_of_its_start(office: Office) -> None:
    project = await office.project(max_retries_execucao=1, max_retries_documento=0)
    execution = await office.begin(project, ONE_BAD)
    changed = a_project(max_retries_execucao=9, max_retries_documento=9, taxonomia=[{"rotulo": "x"}], exemplos=[])
    assert (await office.api.call("PUT", f"/projetos/{project}", json=changed)).status_code == 200
    await office.work()
    shown = await office.status(execution)
    assert (shown["max_retries"], shown["max_retries_documento"]) == (1, 0)
    found = await office.documents(execution)
    assert (found["b.txt"]["tentativas"], found["a.txt"]["rotulo"]) == (1, "sentença")


async def test_a_document_that_was_tried_again_with_success_keeps_its_last_error(office: Office) -> None:
    office.standin.faults.error_inside = 1
    execution = await office.done({"a.txt": TEXTS["a.txt"]})
    (found,) = (await office.documents(execution)).values()
    assert (found["status"], found["tentativas"], found["rotulo"]) == ("CONCLUIDO", 2, "sentença")
    assert (found["erro_codigo"], found["ultimo_erro_em"]) == ("LLM_UNAVAILABLE", "2030-01-01T12:00:00+00:00")
    assert "Provider disconnected" in found["erro_mensagem"]


def test_a_document_has_two_minutes_in_a_child_that_is_killed() -> None:
    assert minutes(2) == DOCUMENT_LIMIT
    text, label = (classification.steps[name].policy for name in ("text", "label"))
    assert text.timeout == label.timeout == minutes(2)
    assert text.isolation is not None


async def test_the_stack_of_an_error_is_shortened(office: Office) -> None:
    def deep(depth: int) -> Any:
        if depth == 0:
            raise RuntimeError("too deep")
        return deeper(depth) if depth % 2 else deep(depth - 1)  # what repeats itself is told once

    def deeper(depth: int) -> Any:
        return deep(depth - 1)

    office.api.sandbox.app.resources["labeller"].label = lambda *given: deep(300)
    execution = await office.done({"a.txt": TEXTS["a.txt"]}, max_retries_documento=0)
    (found,) = (await office.documents(execution)).values()
    assert found["erro_mensagem"] == "too deep"
    assert "RuntimeError: too deep" in found["erro_stack"]
    assert len(found["erro_stack"]) <= LONGEST_STACK
