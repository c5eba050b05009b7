"""Random pipelines with random failures: counters, final states and results are compared with plain code."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Any, Literal
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retoma import GiveUp, Items, Pipeline, Retry
from retoma.define.graph import Edge, Graph
from retoma.engine.outcomes import Outcome
from retoma.testing import ManualWorker, Sandbox
from tests.conftest import OpenSandbox
from tests.engine.builders import rows

FINAL = ("succeeded", "failed", "skipped", "quarantined", "cancelled")
KEYS = ["a", "b", "c"]

Fate = Literal["succeeds", "fails", "is not wanted", "is flaky"]
Mode = Literal["required", "optional", "after"]


@dataclass(frozen=True)
class StepPlan:
    """One step of a random pipeline. `source` is set for an each step; `count` is its number of items."""

    name: str
    source: str | None
    needs: Mapping[str, Mode]
    fates: Mapping[str, Fate]
    stops: bool
    count: int


@dataclass(frozen=True)
class JobEnd:
    """How a job ends: with an output, or with a code that explains why there is none."""

    state: str
    output: Any = None
    code: str | None = None


Name = tuple[str, str]


@st.composite
def plans(draw: st.DrawFn, stopping: bool) -> list[StepPlan]:
    made: list[StepPlan] = []
    for number in range(draw(st.integers(2, 7))):
        plain = [plan.name for plan in made if plan.source is None]
        source = draw(st.sampled_from([None, None, *plain]))
        known = [plan for plan in made if source is None or plan.source in (None, source)]
        chosen = (
            draw(st.lists(st.sampled_from([plan.name for plan in known]), max_size=3, unique=True)) if known else []
        )
        modes: st.SearchStrategy[Mode] = st.sampled_from(["required", "required", "optional", "after"])
        fates: st.SearchStrategy[Fate] = st.sampled_from(
            ["succeeds", "succeeds", "succeeds", "fails", "is not wanted", "is flaky"]
        )
        made.append(
            StepPlan(
                name=f"s{number}",
                source=source,
                needs={need: draw(modes) for need in chosen},
                fates={key: draw(fates) for key in (KEYS if source else [""])},
                stops=stopping and draw(st.booleans()),
                count=draw(st.integers(0, len(KEYS))),
            )
        )
    return made


SETTINGS = settings(
    max_examples=int(os.environ.get("MODEL_EXAMPLES", "30")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
numbers = itertools.count()


@SETTINGS
@given(plan=plans(stopping=False), seed=st.integers(0, 2**32))
async def test_a_random_pipeline_ends_as_plain_code_predicts_with_correct_counters_throughout(
    open_sandbox: OpenSandbox, plan: list[StepPlan], seed: int
) -> None:
    pipeline = build_pipeline(plan)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await work(sandbox, run, pipeline.graph, random.Random(seed))
        expected = run_model(plan)
        found = {
            (job.step, job.item): JobEnd(str(job.state), job.output, job.code)
            for job in await sandbox.client.runs.list_jobs(run)
        }
        assert found == expected
        failed = any(end.state == "failed" for end in expected.values())
        ended = await sandbox.client.runs.get(run)
        assert ended.state == ("completed_with_errors" if failed else "completed")


@SETTINGS
@given(plan=plans(stopping=True), seed=st.integers(0, 2**32))
async def test_a_random_pipeline_with_stopping_failures_fails_and_leaves_no_live_job(
    open_sandbox: OpenSandbox, plan: list[StepPlan], seed: int
) -> None:
    pipeline = build_pipeline(plan)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        await work(sandbox, run, pipeline.graph, random.Random(seed))
        stops = {step.name for step in plan if step.stops}
        stopped = any(end.state == "failed" and name in stops for (name, _), end in run_model(plan).items())
        shown = await sandbox.client.runs.get(run)
        assert shown.is_over
        assert (shown.state == "failed") == stopped
        assert {str(job.state) for job in await sandbox.client.runs.list_jobs(run)} <= set(FINAL)


@SETTINGS
@given(plan=plans(stopping=False), seed=st.integers(0, 2**32), after=st.integers(0, 12))
async def test_a_cancelled_random_pipeline_leaves_no_live_job(
    open_sandbox: OpenSandbox, plan: list[StepPlan], seed: int, after: int
) -> None:
    pipeline = build_pipeline(plan)
    async with open_sandbox(pipeline) as sandbox:
        run = (await sandbox.client.start(pipeline)).id
        answer = await work(sandbox, run, pipeline.graph, random.Random(seed), cancel_after=after)
        shown = await sandbox.client.runs.get(run)
        assert shown.state == ("cancelled" if answer in ("cancelling", "cancelled") else answer)
        assert {str(job.state) for job in await sandbox.client.runs.list_jobs(run)} <= set(FINAL)


async def work(
    sandbox: Sandbox, run: UUID, graph: Graph, chance: random.Random, cancel_after: int | None = None
) -> str | None:
    """Work with two workers that return any of their jobs in any call, until nothing is left."""
    answer = None
    async with sandbox.manual_worker() as one, sandbox.manual_worker() as other:
        holding: dict[ManualWorker, list[Outcome]] = {one: [], other: []}
        idle = call = 0
        while idle < 2 or any(holding.values()):
            if call == cancel_after:
                answer = str(await sandbox.client.runs.cancel(run))
            call += 1
            worker = one if call % 2 else other
            given = [outcome for outcome in holding[worker] if chance.random() < 0.6]
            holding[worker] = [outcome for outcome in holding[worker] if outcome not in given]
            claims = await worker.record_outcomes(given, limit=chance.randint(1, 4))
            holding[worker] += await worker.attempt(claims)
            idle = 0 if given or claims else idle + 1
            await check_counters(sandbox, run, graph)
        if cancel_after is not None and call <= cancel_after:
            answer = str(await sandbox.client.runs.cancel(run))
    return answer


async def check_counters(sandbox: Sandbox, run: UUID, graph: Graph) -> None:
    """Check that stored counters equal the counts of rows."""
    ((open_sinks, ends_as, ended),) = await rows(
        sandbox, "select open_sinks, final_state, ended_at is not null from retoma.runs where id = $1", run
    )
    if ends_as is not None:
        return
    found = await rows(
        sandbox, "select step, item, state::text, waiting_on, output::text from retoma.jobs where run = $1", run
    )
    count = ExpectedCounts(graph, {(row["step"], row["item"]): row["state"] for row in found}, items_of(graph, found))
    assert {(row["step"], row["item"]): row["waiting_on"] for row in found} == {
        (row["step"], row["item"]): count.waiting_on(row["step"], row["item"]) for row in found
    }
    ends = await rows(
        sandbox,
        "select from_step from retoma.edges e join retoma.runs r on r.version = e.version "
        "where r.id = $1 and e.edge_kind = 'end' and e.via = ''",
        run,
    )
    assert open_sinks == sum(count.left(row["from_step"]) for row in ends)
    assert ended == all(count.left(step.name) == 0 for step in graph.steps)


def items_of(graph: Graph, found: list[Any]) -> dict[str, int]:
    """Return how many items each succeeded source produced."""
    sources = {step.source for step in graph.steps}
    return {
        row["step"]: row["output"].count('"') // 2
        for row in found
        if row["step"] in sources and row["state"] == "succeeded"
    }


@dataclass
class ExpectedCounts:
    graph: Graph
    states: dict[Name, str]
    items: dict[str, int]

    def waiting_on(self, step: str, item: str) -> int:
        if self.states[step, item] != "waiting":
            return 0
        return sum(self._left_of(edge, item) for edge in self.graph.edges if edge.to_step == step and edge.counted)

    def left(self, step: str) -> int:
        """How many ends are to come until a step is final as a whole; a list that is to come counts as one."""
        source = next(shape.source for shape in self.graph.steps if shape.name == step)
        if source is None:
            return int(not self._is_final(step, ""))
        if not self._is_final(source, ""):
            return 1
        ended = sum(state in FINAL for (name, _), state in self.states.items() if name == step)
        return self.items.get(source, 0) - ended

    def _left_of(self, edge: Edge, item: str) -> int:
        if edge.kind == "join":
            return self.left(edge.from_step)
        return int(not self._is_final(edge.from_step, item if edge.kind == "item" else ""))

    def _is_final(self, step: str, item: str) -> bool:
        return self.states.get((step, item)) in FINAL


def build_pipeline(plan: list[StepPlan]) -> Pipeline:
    pipeline = Pipeline(f"random{next(numbers)}", retry=Retry(1, delays=[0], jitter=0))
    sources = {step.source for step in plan}
    each = {step.name for step in plan if step.source}
    for step in plan:
        function = function_of(step, step.name in sources, each)
        options: dict[str, Any] = {
            "on_failure": "stop" if step.stops else "continue",
            "after": [need for need, mode in step.needs.items() if mode == "after"],
            "when": condition_of(step),
        }
        if step.source:
            pipeline.each(step.source, **options)(function)
        else:
            pipeline.step(**options)(function)
    return pipeline


def condition_of(step: StepPlan) -> Callable[..., bool]:
    if step.source:
        return lambda element: step.fates[element] != "is not wanted"
    return lambda: step.fates[""] != "is not wanted"


def function_of(step: StepPlan, is_source: bool, each: set[str]) -> Callable[..., Any]:
    flaky: set[str] = set()

    async def function(**values: Any) -> Any:
        fate = step.fates[values.get("element", "")]
        if fate == "fails":
            raise GiveUp("it fails", code="BROKEN")
        if fate == "is flaky" and not flaky:
            flaky.add("once")
            raise OSError("not yet")
        if is_source:
            return KEYS[: step.count]
        return digest(step.name, {name: format_value(value) for name, value in values.items()})

    function.__name__ = step.name
    function.__signature__ = Signature(list(parameters_of(step, each)))  # type: ignore[attr-defined]
    return function


def parameters_of(step: StepPlan, each: set[str]) -> Iterator[Parameter]:
    if step.source:
        yield Parameter("element", Parameter.POSITIONAL_OR_KEYWORD)
    taken = {need: mode for need, mode in step.needs.items() if mode != "after"}
    for need in sorted(taken, key=lambda need: taken[need] == "optional"):
        yield Parameter(
            need,
            Parameter.POSITIONAL_OR_KEYWORD,
            annotation=Items[Any] if need in each and not step.source else Any,
            default="none" if taken[need] == "optional" else Parameter.empty,
        )


def format_value(value: Any) -> Any:
    if isinstance(value, Items):
        return [value.by_key, [[failed.key, failed.state, failed.code] for failed in value.failures]]
    return value


def digest(name: str, values: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{name} {sorted(values.items())}".encode()).hexdigest()[:10]


def run_model(plan: list[StepPlan]) -> dict[Name, JobEnd]:
    model = Model({step.name: step for step in plan})
    for step in plan:
        model.add(step)
    return model.ends


@dataclass
class Model:
    """Which jobs there will be and how they end, in the order of the steps and without any notion of time."""

    plan: dict[str, StepPlan]
    ends: dict[Name, JobEnd] = field(default_factory=dict)

    def add(self, step: StepPlan) -> None:
        if step.source is None:
            self.ends[step.name, ""] = self._end_of(step, "")
        elif self.ends[step.source, ""].state == "succeeded":
            for key in KEYS[: self.plan[step.source].count]:
                self.ends[step.name, key] = self._end_of(step, key)

    def _end_of(self, step: StepPlan, key: str) -> JobEnd:
        required = [need for need, mode in step.needs.items() if mode == "required"]
        missing = [code for need in required if (code := self._missing_code(step, need, key))]
        if missing:
            return JobEnd("skipped", code=min(missing))
        if step.fates[key] == "is not wanted":
            return JobEnd("skipped", code="SKIPPED")
        if step.fates[key] == "fails":
            return JobEnd("failed", code="BROKEN")
        if any(other.source == step.name for other in self.plan.values()):
            return JobEnd("succeeded", KEYS[: step.count])
        return JobEnd("succeeded", digest(step.name, self._values(step, key)))

    def _missing_code(self, step: StepPlan, dependency: str, key: str) -> str | None:
        """Return why this dependency has no result; for a join, why there are no items at all."""
        end = self._subject(step, dependency, key)
        if end.state == "succeeded":
            return None
        return "SKIPPED" if (end.state, end.code) == ("skipped", "SKIPPED") else "DEPENDENCY_FAILED"

    def _subject(self, step: StepPlan, dependency: str, key: str) -> JobEnd:
        source = self.plan[dependency].source
        if source is None:
            return self.ends[dependency, ""]
        return self.ends[dependency, key] if step.source else self.ends[source, ""]

    def _values(self, step: StepPlan, key: str) -> dict[str, Any]:
        values: dict[str, Any] = {"element": key} if step.source else {}
        for need, mode in step.needs.items():
            if mode != "after":
                values[need] = self._value(step, need, key)
        return values

    def _value(self, step: StepPlan, dependency: str, key: str) -> Any:
        subject = self._subject(step, dependency, key)
        if subject.state != "succeeded":
            return "none"
        if self.plan[dependency].source is None or step.source:
            return subject.output
        items = {name[1]: end for name, end in self.ends.items() if name[0] == dependency}
        return [
            {item: end.output for item, end in items.items() if end.state == "succeeded"},
            [[item, end.state, end.code] for item, end in items.items() if end.state != "succeeded"],
        ]
