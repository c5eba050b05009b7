"""Fan-outs: expansion, chains of items, shared dependencies, and joins."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel

from retoma import GiveUp, Items, Pipeline, Retry
from tests.conftest import OpenSandbox
from tests.engine.builders import codes, names, run_claims, run_next, state, states


class Batch(BaseModel):
    documents: list[str] = ["a", "b"]


class Document(BaseModel):
    sha256: str
    pages: int


async def test_each_item_is_a_job_with_its_own_key(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("keys")

    @pipeline.step
    async def documents() -> list[Document]:
        return [Document(sha256="f00", pages=2), Document(sha256="ba2", pages=3)]

    @pipeline.each(documents, key="sha256")
    async def size(document: Document) -> int:
        return document.pages * 10

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        jobs = [job for job in await sandbox.client.runs.list_jobs(run.id) if job.step == "size"]
    assert {job.item: job.output for job in jobs} == {"f00": 20, "ba2": 30}


async def test_a_join_has_the_results_in_the_order_of_the_items(open_sandbox: OpenSandbox) -> None:
    pipeline = texts_and_labels(["b", "c", "a"])
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "documents")
        items = await worker.claim(10)
        for item in ("text:c", "text:a", "text:b"):
            await run_claims(worker, items, item)
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run))["report"] == ["b2", "c2", "a2"]


async def test_an_item_proceeds_while_another_has_not_started(open_sandbox: OpenSandbox) -> None:
    pipeline = texts_and_labels(["a", "b"])
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "documents")
        (first,) = await worker.claim(1)
        (label,) = await worker.record_outcomes(await worker.attempt([first]), limit=1)
        assert (first.step, label.step, label.item) == ("text", "label", first.item)
        await run_claims(worker, [label])
        other = "b" if first.item == "a" else "a"
        assert (await states(sandbox, run)) | {"documents": "succeeded"} == {
            "documents": "succeeded",
            f"text:{first.item}": "succeeded",
            f"label:{first.item}": "succeeded",
            f"text:{other}": "ready",
            "report": "waiting",
        }


async def test_a_join_waits_for_the_last_item(open_sandbox: OpenSandbox) -> None:
    pipeline = texts_and_labels(["a", "b"])
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "documents")
        await run_next(worker, "text:a", "text:b")
        labels = await worker.claim(10)
        await run_claims(worker, labels, "label:b")
        assert (await states(sandbox, run))["report"] == "waiting"
        await run_claims(worker, labels, "label:a")
        assert names(await worker.claim(10)) == ["report"]


async def test_a_join_does_not_fire_before_its_source_has_ended(open_sandbox: OpenSandbox) -> None:
    pipeline = texts_and_labels(["a"])
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        assert names(await worker.claim(10)) == ["documents"]
        assert await worker.claim(10) == []


async def test_a_run_whose_last_step_fans_out_ends_with_the_last_item(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("items", inputs=Batch)

    @pipeline.each("documents")
    async def label(document: str) -> str:
        return document.upper()

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        await run_next(worker, "documents")
        labels = await worker.claim(10)
        await run_claims(worker, labels, "label:a")
        assert await state(sandbox, run) == "running"
        await run_claims(worker, labels, "label:b")
        assert await state(sandbox, run) == "completed"


async def test_an_input_can_be_fanned_out(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("input", inputs=Batch)

    @pipeline.each("documents")
    async def label(document: str) -> str:
        return document.upper()

    @pipeline.step
    async def report(label: Items[str], documents: list[str]) -> dict[str, str]:
        return dict(zip(documents, label, strict=True))

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline, {"documents": ["x", "y"]})
        empty = await sandbox.run(pipeline, {"documents": []})
    assert run.results["report"] == {"x": "X", "y": "Y"}
    assert (empty.state, empty.results["report"]) == ("completed", {})


async def test_several_each_steps_fan_out_over_the_same_items(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("both", inputs=Batch)

    @pipeline.each("documents")
    async def upper(document: str) -> str:
        return document.upper()

    @pipeline.each("documents")
    async def double(document: str) -> str:
        return document * 2

    @pipeline.each("documents")
    async def both(upper: str, double: str, document: str) -> str:
        return f"{document}{upper}{double}"

    @pipeline.step
    async def report(both: Items[str], upper: Items[str]) -> list[list[str]]:
        return [list(both), list(upper)]

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["report"] == [["aAaa", "bBbb"], ["A", "B"]]


async def test_an_each_step_need_not_take_its_item(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("itemless", inputs=Batch)

    @pipeline.each("documents")
    async def text(document: str) -> str:
        return document

    @pipeline.each("documents")
    async def label(text: str) -> str:
        return text.upper()

    @pipeline.step
    async def report(label: Items[str]) -> dict[str, str]:
        return label.by_key

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["report"] == {"a": "A", "b": "B"}


async def test_a_join_can_be_fanned_out_again(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("twice", inputs=Batch)

    @pipeline.each("documents")
    async def pages(document: str) -> int:
        return 2

    @pipeline.step
    async def sheets(pages: Items[int]) -> list[str]:
        return [f"{key}{page}" for key, count in pages.by_key.items() for page in range(count)]

    @pipeline.each(sheets)
    async def scan(sheet: str) -> str:
        return sheet.upper()

    @pipeline.step
    async def book(scan: Items[str], pages: Items[int]) -> str:
        return f"{''.join(scan)} {sum(pages)}"

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.results["book"] == "A0A1B0B1 4"


async def test_runs_that_fan_out_in_one_call_keep_their_items_separate(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("apart", inputs=Batch)

    @pipeline.each("documents")
    async def label(document: str) -> str:
        return document.upper()

    @pipeline.step
    async def report(label: Items[str]) -> list[str]:
        return list(label)

    async with open_sandbox(pipeline) as sandbox:
        values: list[list[str]] = [["a", "b"], [], ["b"], ["c", "a", "b"]]
        runs = await sandbox.client.start_many(pipeline, [{"documents": documents} for documents in values])
        await sandbox.work()
        results = [(await sandbox.client.runs.get_results(run.id))["report"] for run in runs]
    assert results == [["A", "B"], [], ["B"], ["C", "A", "B"]]


async def test_a_thousand_items_join_once(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("many")

    @pipeline.step
    async def numbers() -> list[int]:
        return list(range(1000))

    @pipeline.each(numbers)
    async def square(number: int) -> int:
        return number * number

    @pipeline.step
    async def total(square: Items[int]) -> int:
        return sum(square)

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        while await run_claims(worker, await worker.claim(400)):
            pass
        assert await state(sandbox, run) == "completed"
        assert (await sandbox.client.runs.get_results(run))["total"] == sum(n * n for n in range(1000))


@pytest.mark.parametrize("gives", [["a", "a"], [""], ["x" * 201], ["tab\t"]])
async def test_items_with_invalid_keys_are_a_failure_that_is_not_retried(
    open_sandbox: OpenSandbox, gives: list[str]
) -> None:
    pipeline = Pipeline("keys", retry=Retry(2))

    @pipeline.step
    async def documents() -> list[str]:
        return gives

    @pipeline.each(documents)
    async def label(document: str) -> str:
        return document

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        errors = await sandbox.client.runs.get_errors(run.id)
        jobs = await sandbox.client.runs.list_jobs(run.id)
    assert run.state == "failed"
    assert [(job.code, job.attempt) for job in jobs if job.step == "documents"] == [("INVALID_ITEMS", 1)]
    assert "of 'documents'" in errors["documents", ""]["message"]


async def test_a_key_that_cannot_be_computed_is_a_failure_that_is_not_retried(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("keys", retry=Retry(2))

    @pipeline.step
    async def documents() -> list[dict[str, str]]:
        return [{"name": "a"}]

    @pipeline.each(documents, key=lambda document: document["id"])
    async def label(document: dict[str, str]) -> str:
        return document["name"]

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        error = (await sandbox.client.runs.get_errors(run.id))["documents", ""]
    assert (error["code"], error["attempt"]) == ("INVALID_ITEMS", 1)
    assert "key= failed for item 0 of 'documents': KeyError: 'id'" in error["message"]


Ending = Literal["succeeds", "fails", "is skipped"]
Moment = Literal["before", "with", "after"]
ENDINGS: list[Ending] = ["succeeds", "fails", "is skipped"]
MOMENTS: list[Moment] = ["before", "with", "after"]


def make_shared_dependency(ending: Ending, *, optional: bool = False, items: int = 2) -> Pipeline:
    """`label` needs its item's text, and `taxonomy` and `rules`, which all items share."""
    pipeline = Pipeline("shared", retry=Retry(0))

    @pipeline.step
    async def documents() -> list[str]:
        return ["a", "b"][:items]

    @pipeline.step(on_failure="continue", when=lambda: ending != "is skipped")
    async def taxonomy() -> str:
        if ending == "fails":
            raise GiveUp("no taxonomy today")
        return "taxonomy"

    @pipeline.step
    async def rules() -> str:
        return "rules"

    @pipeline.each(documents)
    async def text(document: str) -> str:
        return document.upper()

    async def with_default(text: str, rules: str, taxonomy: str = "none") -> str:
        return f"{text} {rules} {taxonomy}"

    async def without_default(text: str, rules: str, taxonomy: str) -> str:
        return f"{text} {rules} {taxonomy}"

    label = with_default if optional else without_default
    label.__name__ = "label"
    pipeline.each(documents)(label)

    @pipeline.step
    async def report(label: Items[str]) -> dict[str, list[str]]:
        return {"good": list(label), "failed": [f"{failed.key} {failed.code}" for failed in label.failures]}

    return pipeline


@pytest.mark.parametrize("optional", [False, True], ids=["required", "optional"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_shared_dependency_counts_once_whenever_and_however_it_ends(
    open_sandbox: OpenSandbox, ending: Ending, moment: Moment, optional: bool
) -> None:
    pipeline = make_shared_dependency(ending, optional=optional)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        order = {
            "before": [["taxonomy"], ["documents"]],
            "with": [["taxonomy", "documents"]],
            "after": [["documents"], ["taxonomy"]],
        }
        for together in order[moment]:
            await run_claims(worker, claims, *together)
        found = await states(sandbox, run)
        assert (found["label:a"], found["label:b"], found["report"]) == ("waiting", "waiting", "waiting")

        texts = await worker.claim(10)
        assert names(texts) == ["text:a", "text:b"]
        await run_claims(worker, texts)
        assert (await states(sandbox, run))["label:a"] == "waiting"
        await run_claims(worker, claims, "rules")
        await sandbox.work()
        results = await sandbox.client.runs.get_results(run)
        assert results["report"] == expected_report(ending, optional)
        assert await state(sandbox, run) == ("completed_with_errors" if ending == "fails" else "completed")


def expected_report(ending: Ending, optional: bool) -> dict[str, list[str]]:
    if ending == "succeeds":
        return {"good": ["A rules taxonomy", "B rules taxonomy"], "failed": []}
    if optional:
        return {"good": ["A rules none", "B rules none"], "failed": []}
    code = {"fails": "DEPENDENCY_FAILED", "is skipped": "SKIPPED"}[ending]
    return {"good": [], "failed": [f"a {code}", f"b {code}"]}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_shared_and_item_dependencies_may_end_in_one_call(open_sandbox: OpenSandbox, ending: Ending) -> None:
    pipeline = make_shared_dependency(ending)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        first = await worker.claim(10)
        await run_claims(worker, first, "documents")
        claims = [*first, *await worker.claim(10)]
        await run_claims(worker, claims, "taxonomy", "rules", "text:a")
        found = await states(sandbox, run)
        assert found["label:a"] == ("ready" if ending == "succeeds" else "skipped")
        assert found["label:b"] == "waiting"
        await run_claims(worker, claims, "text:b")
        await sandbox.work()
        assert (await sandbox.client.runs.get_results(run))["report"] == expected_report(ending, False)


async def test_items_whose_shared_dependencies_have_all_ended_are_ready_at_once(open_sandbox: OpenSandbox) -> None:
    pipeline = Pipeline("early", inputs=Batch)

    @pipeline.step
    async def taxonomy() -> str:
        return "taxonomy"

    @pipeline.each("documents")
    async def label(document: str, taxonomy: str) -> str:
        return f"{document} {taxonomy}"

    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        await sandbox.client.start(pipeline)
        claims = await worker.claim(10)
        await run_claims(worker, claims, "taxonomy")
        await run_claims(worker, claims, "documents")
        await run_next(worker, "label:a", "label:b")


@pytest.mark.parametrize("ending", ENDINGS)
async def test_with_no_items_a_run_still_waits_for_their_shared_dependencies(
    open_sandbox: OpenSandbox, ending: Ending
) -> None:
    pipeline = make_shared_dependency(ending, items=0)
    async with open_sandbox(pipeline) as sandbox, sandbox.manual_worker() as worker:
        run = (await sandbox.client.start(pipeline)).id
        claims = await worker.claim(10)
        await run_claims(worker, claims, "documents")
        await run_next(worker, "report")
        assert await state(sandbox, run) == "running"
        await run_claims(worker, claims, "rules")
        assert await state(sandbox, run) == "running"
        await run_claims(worker, claims, "taxonomy")
        assert await state(sandbox, run) == ("completed_with_errors" if ending == "fails" else "completed")


@pytest.mark.parametrize(("ending", "code"), [("fails", "DEPENDENCY_FAILED"), ("is skipped", "SKIPPED")])
async def test_without_its_source_a_fan_out_has_no_items_and_its_join_is_skipped(
    open_sandbox: OpenSandbox, ending: Ending, code: str
) -> None:
    pipeline = make_missing_source(ending)

    @pipeline.step
    async def report(label: Items[str]) -> int:
        return len(label)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
        assert await states(sandbox, run.id) == {
            "documents": "failed" if ending == "fails" else "skipped",
            "report": "skipped",
        }
        assert (await codes(sandbox, run.id))["report"] == code
    assert run.state == ("completed_with_errors" if ending == "fails" else "completed")


async def test_a_join_with_a_default_runs_even_without_the_source(open_sandbox: OpenSandbox) -> None:
    pipeline = make_missing_source("fails")

    stand_in = Items.of({"x": "nothing was read"})

    @pipeline.step
    async def report(label: Items[str] = stand_in) -> list[str]:
        return list(label)

    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert (run.state, run.results) == ("completed_with_errors", {"report": ["nothing was read"]})


async def test_a_fan_out_without_its_source_ends_the_run(open_sandbox: OpenSandbox) -> None:
    pipeline = make_missing_source("is skipped")
    async with open_sandbox(pipeline) as sandbox:
        run = await sandbox.run(pipeline)
    assert run.state == "completed"


def make_missing_source(ending: Ending) -> Pipeline:
    pipeline = Pipeline("sourceless", retry=Retry(0))

    @pipeline.step(on_failure="continue", when=lambda: ending != "is skipped")
    async def documents() -> list[str]:
        raise GiveUp("nothing to read")

    @pipeline.each(documents)
    async def text(document: str) -> str:
        return document

    @pipeline.each(documents)
    async def label(text: str) -> str:
        return text

    return pipeline


def texts_and_labels(documents_given: list[str]) -> Pipeline:
    pipeline = Pipeline("texts")

    @pipeline.step
    async def documents() -> list[str]:
        return documents_given

    @pipeline.each(documents)
    async def text(document: str) -> str:
        return document

    @pipeline.each(documents)
    async def label(text: str) -> str:
        return f"{text}2"

    @pipeline.step
    async def report(label: Items[str]) -> list[str]:
        return list(label)

    return pipeline
