from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from retoma import seconds
from retoma.engine.claim_protocol import Claim
from retoma.store.database import Database
from retoma.worker import executor, step_runner
from retoma.worker.attempt import MAX_STACK_LENGTH
from retoma.worker.process_reaper import ProcessReaper
from retoma.worker.step_runner import JobAttempt
from retoma_apps.classifier import pipeline
from retoma_apps.classifier.pipeline import DOCUMENT_LIMIT, RETRY
from retoma_apps.classifier.steps.reading import Reading
from retoma_apps.providers.chains import get_first_provider
from tests.apps.classifier.classifier_app import SPOILT, TEXTS, ClassifierApp, make_project, running_classifier_app
from tests.apps.classifier.documents import hanging_pdf
from tests.apps.classifier.test_executions import first_steps

ONE_BAD = {"a.txt": TEXTS["a.txt"], "b.txt": f"OFÍCIO {SPOILT}."}


async def retries_of(classifier_app: ClassifierApp, execution: str, code: str) -> list[datetime]:
    events = await classifier_app.client.runs.list_events(UUID(execution))
    return [event.at for event in events if event.item == code and event.kind in ("retry", "failure")]


async def test_a_document_is_retried_after_five_and_ten_seconds_with_jitter(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.run_execution(ONE_BAD)
    reported = await retries_of(classifier_app, execution, "b.txt")
    first, second = (later - earlier for earlier, later in pairwise(reported))
    assert seconds(4.5) <= first <= seconds(5.5)
    assert seconds(9) <= second <= seconds(11)
    assert RETRY.jitter == 0.1
    assert (await classifier_app.documents(execution))["b.txt"]["tentativas"] == 3
    assert classifier_app.count_calls_about(SPOILT) == 3


@pytest.mark.parametrize(("allowed", "attempts"), [(0, 1), (1, 2), (4, 5)])
async def test_the_project_sets_how_often_a_document_is_retried(
    classifier_app: ClassifierApp, allowed: int, attempts: int
) -> None:
    execution = await classifier_app.run_execution(ONE_BAD, max_retries_documento=allowed)
    found = await classifier_app.documents(execution)
    assert {code: each["tentativas"] for code, each in found.items()} == {"a.txt": 1, "b.txt": attempts}
    assert found["b.txt"]["status"] == "ERRO"


async def test_an_execution_keeps_the_limits_it_was_started_with(classifier_app: ClassifierApp) -> None:
    project = await classifier_app.project(max_retries_execucao=1, max_retries_documento=0)
    execution = await classifier_app.begin(project, ONE_BAD)
    changed = make_project(max_retries_execucao=9, max_retries_documento=9, taxonomia=[{"rotulo": "x"}], exemplos=[])
    assert (await classifier_app.api.call("PUT", f"/projetos/{project}", json=changed)).status_code == 200
    await classifier_app.work()
    shown = await classifier_app.status(execution)
    assert (shown["max_retries"], shown["max_retries_documento"]) == (1, 0)
    found = await classifier_app.documents(execution)
    assert (found["b.txt"]["tentativas"], found["a.txt"]["rotulo"]) == (1, "sentença")


async def test_a_document_that_succeeded_on_retry_keeps_its_last_error(classifier_app: ClassifierApp) -> None:
    classifier_app.standin.faults.error_inside = 1
    execution = await classifier_app.run_execution({"a.txt": TEXTS["a.txt"]})
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["tentativas"], found["rotulo"]) == ("CONCLUIDO", 2, "sentença")
    assert (found["erro_codigo"], found["ultimo_erro_em"]) == ("LLM_UNAVAILABLE", "2030-01-01T12:00:00+00:00")
    assert "Provider disconnected" in found["erro_detalhe"]


class Reader:
    """Replaces reading: fails a number of times, then returns text that the model cannot label."""

    def __init__(self, *, fails: int = 0) -> None:
        self.fails = fails
        self.times = 0

    def __call__(self, _: str) -> Reading:
        self.times += 1
        if self.times <= self.fails:
            raise OSError("the disk did not answer")
        return Reading(f"OFÍCIO {SPOILT}.", "text")


@pytest.mark.parametrize(("unread", "labels"), [(0, 3), (1, 2), (2, 1), (3, 0)])
async def test_reading_and_labelling_share_the_retries_of_a_document(
    classifier_app: ClassifierApp, monkeypatch: pytest.MonkeyPatch, unread: int, labels: int
) -> None:
    reader = Reader(fails=unread)
    monkeypatch.setattr(pipeline, "read_path", reader)
    execution = await classifier_app.run_execution({"b.txt": ONE_BAD["b.txt"]}, max_retries_documento=2)
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["tentativas"]) == ("ERRO", 3)
    assert (reader.times, classifier_app.count_calls_about(SPOILT)) == (min(unread + 1, 3), labels)


async def test_a_rerun_document_has_all_its_retries_again(
    classifier_app: ClassifierApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "read_path", Reader(fails=2))
    execution = await classifier_app.run_execution({"b.txt": ONE_BAD["b.txt"]}, max_retries_documento=2)
    await classifier_app.post_action(execution, "reprocessar-erros")
    await classifier_app.work()
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["tentativas"], classifier_app.count_calls_about(SPOILT)) == ("ERRO", 3, 1 + 3)


async def test_reading_and_labelling_share_two_minutes_per_document(classifier_app: ClassifierApp) -> None:
    execution = await classifier_app.begin(await classifier_app.project(), {"a.txt": TEXTS["a.txt"]})
    await first_steps(classifier_app)
    (reading,) = await classifier_app.worker.claim(1)
    assert get_attempt(classifier_app, reading).time_limit == 120
    read = await classifier_app.worker.attempt([reading])
    await classifier_app.api.sandbox.clock.advance(seconds(100))
    (labelling,) = await classifier_app.worker.record_outcomes(read, limit=1)
    attempt = get_attempt(classifier_app, labelling)
    await attempt.run()
    assert attempt.time_limit == 20
    await classifier_app.worker.record_outcomes([attempt.build_timeout_outcome()])
    await classifier_app.work()
    (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["erro_codigo"], found["tentativas"]) == ("ERRO", "TIMEOUT", 1)


def get_attempt(classifier_app: ClassifierApp, claim: Claim) -> JobAttempt:
    attempt = classifier_app.worker._runner.prepare(claim)
    assert attempt is not None
    return attempt


async def test_native_code_that_never_returns_is_killed_after_two_minutes(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, children = 0.0, []
    for module in (executor, step_runner):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    monkeypatch.setattr(ProcessReaper, "watch", lambda _, pid: children.append(pid))
    async with running_classifier_app(database, tmp_path, offline=True, isolated=True) as classifier_app:
        execution = await classifier_app.begin(await classifier_app.project(), {"a.pdf": hanging_pdf()})
        await first_steps(classifier_app)
        claims, began = await classifier_app.worker.claim(1), asyncio.Event()
        start = JobAttempt._start
        monkeypatch.setattr(JobAttempt, "_start", lambda own: [start(own), began.set()])  # type: ignore[func-returns-value]
        attempt = asyncio.create_task(classifier_app.worker.attempt(claims))
        await began.wait()
        passed = DOCUMENT_LIMIT.total_seconds()
        await classifier_app.worker.record_outcomes(await attempt)
        (found,) = (await classifier_app.documents(execution)).values()
    assert (found["status"], found["erro_codigo"], found["tentativas"]) == ("ERRO", "TIMEOUT", 1)
    (child,) = children
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


async def test_the_stack_trace_of_an_error_is_shortened(classifier_app: ClassifierApp) -> None:
    def deep(depth: int) -> Any:
        if depth == 0:
            raise RuntimeError("too deep")
        return deeper(depth) if depth % 2 else deep(depth - 1)  # repeated frames are listed once

    def deeper(depth: int) -> Any:
        return deep(depth - 1)

    get_first_provider(classifier_app.api.sandbox.app.resources["labeller"]).label = lambda *given: deep(300)
    execution = await classifier_app.run_execution({"a.txt": TEXTS["a.txt"]}, max_retries_documento=0)
    (found,) = (await classifier_app.documents(execution)).values()
    assert found["erro_mensagem"] == "too deep"
    assert "RuntimeError: too deep" in found["erro_stack"]
    assert len(found["erro_stack"]) <= MAX_STACK_LENGTH
