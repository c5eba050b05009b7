"""Reviews and revisions on real PostgreSQL, moved by people and workers with stale handles, against the model."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from retoma import App
from retoma.engine.claim_protocol import Claim, _describe_outcome
from retoma.engine.outcomes import Outcome, Success
from retoma.errors import AlreadyDecided, Conflict, NotFound, RunBusy
from retoma.reviews import Decision
from retoma.store import workers
from retoma.store.database import Database
from retoma.testing import ManualWorker, Sandbox, fresh_database, sandbox
from tests.conftest import empty_database, list_underived_states
from tests.model import review_pipelines
from tests.model.review_pipelines import (
    BEHAVIOUR,
    DOUBTFUL,
    ON_EXPIRY,
    REJECTION_ENDS_RUN,
    REVIEW_PIPELINES,
    REVIEWED,
)
from tests.model.revision_model import Job, Name, Review, Run

Answer = TypeVar("Answer")
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "10"))
APP = App("model", pipelines=list(REVIEW_PIPELINES.values()))
NUMBER = st.integers(0, 999)
EXPIRES = timedelta(hours=4)
CAPS = {"approved": 2, "sure": 10, "sharp": 10, "printed": 10}
NEVER = datetime.max.replace(tzinfo=UTC)


DAYS = int(os.environ.get("MODEL_DAYS", "4"))
FIRST_DAY = int(os.environ.get("MODEL_FIRST_DAY", "1"))
WORDS = [["a", "b"], ["a", "b"], ["b", "c"], []]
RERUN_KINDS = ["step", "step", "step", "item", "after", "fresh", "stale", "alone", "two"]
DECISIONS = ["approve", "approve", "edit", "send_back", "send_back", "reject"]
WRONG = [0, 0, 0, 0, -1, 1]  # how far from the revision is what a person saw


def which(chance: random.Random) -> dict[str, Any]:
    return {"which": chance.randrange(1000)}


def luck(chance: random.Random) -> dict[str, Any]:
    return {"salt": chance.choice([0, 0, 1]), "fails": chance.choice([False, False, True])}


# How often each of a day's acts comes, and what it is given.
ACTIONS: dict[str, tuple[float, Callable[[random.Random], dict[str, Any]]]] = {
    "start": (1, lambda c: {"shape": c.choice(sorted(REVIEW_PIPELINES))}),
    "claim": (3, lambda c: which(c) | {"limit": c.randint(1, 3)}),
    "finish": (8, lambda c: which(c) | luck(c) | {"words": c.choice(WORDS), "limit": c.randint(0, 2)}),
    "much_is_done": (2, lambda c: luck(c) | {"rounds": c.randint(1, 6)}),
    "all_of_it_is_done": (2, luck),
    "a_late_result_is_refused": (1, which),
    "decide": (
        6,
        lambda c: (
            which(c)
            | {
                "action": c.choice(DECISIONS),
                "to": c.randrange(1000),
                "undo": c.choice([0, 0, 10]),
                "wrong": c.choice(WRONG),
                "newest": c.random() < 0.7,
            }
        ),
    ),
    "undo": (2, which),
    "time_passes": (2, lambda c: {"seconds": c.choice([1, 11, 11, 3600, 14400])}),
    "cancel": (0.4, which),
    "rerun": (6, lambda c: which(c) | {"step": c.randrange(1000), "how": c.choice(RERUN_KINDS)}),
    "edit": (3, lambda c: which(c) | {"name": c.randrange(1000), "goes_on": c.random() < 0.5}),
    "fork": (1, lambda c: which(c) | {"field": c.choice(["topic", "tone", None])}),
}


def choose(some: list[Answer], number: int) -> Answer:
    return some[number % len(some)]


@dataclass
class HeldClaim:
    """A claim that is never forgotten, however stale."""

    worker: ManualWorker
    claim: Claim
    run: Run
    job: Job

    @property
    def name(self) -> Name:
        return self.claim.step, self.claim.item


@dataclass
class SeenReview:
    """A review as a person once saw it."""

    id: UUID
    run: Run
    name: Name
    job: Job
    review: Review


class People(RuleBasedStateMachine):
    loop: ClassVar[asyncio.AbstractEventLoop]
    database: ClassVar[Database]

    def __init__(self) -> None:
        super().__init__()
        self.runs: dict[UUID, Run] = {}
        self.inputs: dict[UUID, dict[str, str]] = {}
        self.hands: list[ManualWorker] = []
        self.claims: list[HeldClaim] = []
        self.seen: dict[UUID, SeenReview] = {}
        self.written: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.stack = ExitStack()
        self.count = 0

    def wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run_until_complete(work)

    def enter(self, context: Any) -> Any:
        entered = self.wait(context.__aenter__())
        self.stack.callback(lambda: self.wait(context.__aexit__(None, None, None)))
        return entered

    @initialize(shape=st.sampled_from(sorted(REVIEW_PIPELINES)))
    def open(self, shape: str) -> None:
        self.wait(empty_database(self.database))
        self.sandbox: Sandbox = self.enter(sandbox(APP, self.database))
        self.now: datetime = self.wait(self.sandbox.clock.now())
        self.hands = [self.enter(self.sandbox.manual_worker()) for _ in range(2)]
        self.start(shape)

    def teardown(self) -> None:
        self.stack.close()

    def expiry(self, step: str) -> datetime | None:
        return self.now + EXPIRES if step in ON_EXPIRY else None

    @rule(shape=st.sampled_from(sorted(REVIEW_PIPELINES)))
    def start(self, shape: str) -> None:
        if len(self.runs) > 2:
            return
        started = self.wait(self.sandbox.client.start(shape, {}))
        self.runs[started.id] = run = Run(REVIEW_PIPELINES[shape].graph, self.expiry)
        self.inputs[started.id] = {"topic": "tea", "tone": "calm"}
        run.start()

    # Workers

    def take(self, worker: ManualWorker, claims: list[Claim]) -> None:
        for claim in claims:
            run = self.runs[claim.run]
            job = run.job((claim.step, claim.item))
            assert (job.state, job.revision) == ("ready", claim.revision), (
                claim.step,
                claim.item,
                claim.revision,
                job.state,
                job.revision,
            )
            job.state, job.holder = "running", claim
            self.claims.append(HeldClaim(worker, claim, run, job))

    @rule(which=NUMBER, limit=st.integers(1, 3))
    def claim(self, which: int, limit: int) -> None:
        worker = choose(self.hands, which)
        self.take(worker, self.wait(worker.claim(limit)))

    def held(self) -> list[HeldClaim]:
        return [held for held in self.claims if held.job.state == "running" and held.job.holder is held.claim]

    @rule(
        which=NUMBER,
        salt=st.sampled_from([0, 0, 1]),
        fails=st.sampled_from([False, False, True]),
        words=st.sampled_from([["a", "b"], ["a", "b"], ["b", "c"], []]),
        limit=st.integers(0, 2),
    )
    def finish(self, which: int, salt: int, fails: bool, words: list[str], limit: int) -> None:
        if not self.held():
            return
        held = choose(self.held(), which)
        BEHAVIOUR.salt, BEHAVIOUR.fails, BEHAVIOUR.words = salt, fails, words
        expected = self.expected(held)
        BEHAVIOUR.called.clear()
        (outcome,) = self.wait(held.worker.attempt([held.claim]))
        assert describe_outcome(outcome) == expected
        assert bool(BEHAVIOUR.called) == self.calls_body(held), (BEHAVIOUR.called, held.job)
        before = held.worker.rejected_outcomes
        claims = self.wait(held.worker.record_outcomes([outcome], limit))
        assert held.worker.rejected_outcomes == before
        self.apply(held, *expected)
        self.take(held.worker, claims)

    @rule(rounds=st.integers(1, 6), salt=st.sampled_from([0, 0, 1]), fails=st.sampled_from([False, False, True]))
    def much_is_done(self, rounds: int, salt: int, fails: bool) -> None:
        for number in range(rounds):
            self.claim(number, 2)
            for _ in range(2):
                self.finish(0, salt, fails, ["a", "b"], 0)

    @rule(salt=st.sampled_from([0, 0, 1]), fails=st.sampled_from([False, False, True]))
    def all_of_it_is_done(self, salt: int, fails: bool) -> None:
        for _ in range(4):
            self.much_is_done(3, salt, fails)
            self.see_open_reviews()
            for number in [place for place, seen in enumerate(self.seen.values()) if seen.review.is_open]:
                self.decide(number, "approve", 0, 0, 0, newest=False)

    def calls_body(self, held: HeldClaim) -> bool:
        return not (
            held.job.kept or held.job.review or held.run.missing(held.name) or held.run.shape(held.name[0]).review
        )

    def expected(self, held: HeldClaim) -> tuple[str, Any]:
        """How this job ends: by a reused result, by a decision, or by the step itself."""
        job, step = held.job, held.run.shape(held.name[0])
        if job.kept:
            return "succeeded", job.value
        if job.review is not None and job.review.decision == "rejected":
            return "failed", "REJECTED"
        if held.run.missing(held.name):
            return "skipped", "DEPENDENCY_FAILED"
        if job.review is not None:
            if job.review.value is not None:
                return "succeeded", job.review.value
            return ("succeeded", subject(job)) if job.review.planned else ("skipped", "SKIPPED")
        if step.review:
            return ("review", None) if subject(job).endswith(DOUBTFUL) else ("succeeded", subject(job))
        if BEHAVIOUR.fails and step.name in review_pipelines.CAN_FAIL:
            return "failed", "BROKEN"
        return "succeeded", self.value_of(held)

    def value_of(self, held: HeldClaim) -> Any:
        function = getattr(review_pipelines, held.claim.step)
        known = self.inputs[held.claim.run] | {
            parameter: normalise_input(value) for parameter, value in held.job.used.items() if value is not None
        }
        names = inspect.signature(function).parameters
        known = {"word" if name == "element" else name: value for name, value in known.items()}
        return function(**{name: known[name] for name in names if name in known})

    def apply(self, held: HeldClaim, how: str, what: Any) -> None:
        run, name, job = held.run, held.name, held.job
        if how == "succeeded":
            run.end(name, how, what)
        elif run.final_state is not None and how == "review":
            run.end(name, "cancelled")
        elif how == "review":
            run.open_review(name, job, planned=True)
        elif how == "failed" and run.shape(name[0]).on_failure == "review" and job.review is None:
            if run.final_state is not None:
                run.end(name, "cancelled")
            else:
                run.open_review(name, job, planned=False)
        else:
            run.end(name, how, code=what)

    @rule(which=NUMBER)
    def a_late_result_is_refused(self, which: int) -> None:
        now = self.held()
        if len(now) == len(self.claims):
            return
        held = choose([held for held in self.claims if held not in now], which)
        before = held.worker.rejected_outcomes
        items = {"z": '"z"'} if held.run.is_source(held.claim.step) else None
        assert (
            self.wait(held.worker.record_outcomes([Success(held.claim, '["z"]' if items else '"late"', items)])) == []
        )
        assert held.worker.rejected_outcomes == before + 1

    # Reviews

    def see_open_reviews(self) -> None:
        """People see the currently open reviews, and never forget them."""
        found = self.wait(self.sandbox.client.reviews.list(limit=100))
        open_ones = {
            (number, *name, job.revision): (run, name, job, job.review)
            for number, run in self.runs.items()
            for name, job in run.current_jobs().items()
            if job.state == "asking" and job.review is not None and job.review.is_open
        }
        assert {(one.run, one.step, one.item, one.revision): one.planned for one in found} == {
            key: review.planned for key, (*_, review) in open_ones.items()
        }
        for one in sorted(found, key=lambda one: (list(self.runs).index(one.run), one.step, one.item)):
            self.seen[one.id] = SeenReview(one.id, *open_ones[one.run, one.step, one.item, one.revision])

    @rule(
        which=NUMBER,
        action=st.sampled_from(["approve", "approve", "edit", "send_back", "send_back", "reject"]),
        to=NUMBER,
        undo=st.sampled_from([0, 0, 10]),
        wrong=st.sampled_from(WRONG),
        newest=st.booleans(),
    )
    def decide(self, which: int, action: str, to: int, undo: int, wrong: int, newest: bool) -> None:
        if not self.seen:
            return
        known = list(self.seen.values())
        seen = choose([one for one in known if newest and one.review.is_open] or known, which)
        review, step = seen.review, seen.name[0]
        self.count += 1
        back_to = choose(list(REVIEWED[step]), to) if review.planned else None
        delay = timedelta(seconds=undo, milliseconds=self.count if undo else 0)
        edited: dict[str, Any] = {"value": "mine"} if action == "edit" else {}
        decision = Decision(
            "approve" if action == "edit" else action,
            by="ana",
            seen=seen.job.revision + wrong,
            notes="so",
            to=back_to if action == "send_back" else None,
            undo=delay,
            **edited,
        )
        if not review.is_open:
            with pytest.raises(AlreadyDecided):
                self.wait(self.sandbox.client.reviews.decide(seen.id, decision))
        elif wrong or (action == "send_back" and seen.run.times_sent_back(seen.name) >= CAPS.get(step, 99)):
            with pytest.raises(Conflict):
                self.wait(self.sandbox.client.reviews.decide(seen.id, decision))
        else:
            self.wait(self.sandbox.client.reviews.decide(seen.id, decision))
            review.state = {"approve": "approved", "edit": "approved", "reject": "rejected"}.get(action, "sent_back")
            review.value = "mine" if action == "edit" else None
            review.back_to = back_to or step
            review.effective_at = self.now + delay
            if not undo:
                self.take_effect(seen)

    def take_effect(self, seen: SeenReview) -> None:
        review, run = seen.review, seen.run
        if review.state == "sent_back":
            step = review.back_to or ""
            target = step, seen.name[1] if run.shape(step).each else ""
            if not self.wait(self.sandbox.client.reviews.get(seen.id)).applied_at:
                assert run.waits_for_others({target}, run.affected({target}))
                review.effective_at = self.now + timedelta(seconds=1)
                return
            review.in_effect = True
            run.rerun({target})
        elif review.decision == "rejected" and (not seen.name[1] or seen.name[0] in REJECTION_ENDS_RUN):
            review.in_effect = True
            run.stop("rejected")
        else:
            review.in_effect = True
            seen.job.state = "ready"

    @rule(which=NUMBER)
    def undo(self, which: int) -> None:
        if not self.seen:
            return
        known = list(self.seen.values())
        seen = choose([one for one in known if not one.review.is_open and not one.review.in_effect] or known, which)
        if seen.review.in_effect:
            with pytest.raises(Conflict):
                self.wait(self.sandbox.client.reviews.undo(seen.id, by="ana"))
        else:
            self.wait(self.sandbox.client.reviews.undo(seen.id, by="ana"))
            seen.review.state, seen.review.effective_at, seen.review.value = "open", None, None

    @rule(seconds=st.sampled_from([1, 11, 11, 11, 3600, 4 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.wait(self.sandbox.clock.set(self.now))
        self.see_open_reviews()
        self.wait(workers.release_due_jobs(self.database, 1_000))
        for seen in sorted(self.seen.values(), key=lambda seen: due_at(seen.review)):
            if due_at(seen.review) <= self.now and not seen.review.in_effect:
                if seen.review.is_open:
                    seen.review.state, seen.review.on_expiry = "expired", ON_EXPIRY[seen.name[0]]
                self.take_effect(seen)

    # Acts on runs

    @rule(which=NUMBER)
    def cancel(self, which: int) -> None:
        number = choose(list(self.runs), which)
        run = self.runs[number]
        if not run.is_over and run.final_state != "cancelled":
            run.stop("cancelled")
        assert self.wait(self.sandbox.client.runs.cancel(number)) == run.state

    def may_be_acted_on(self, run: Run, *, over: bool) -> bool:
        alone = any(job.isolated_rerun and job.is_live for job in run.current_jobs().values())
        return run.final_state is None and not alone and (run.is_over or not over)

    @rule(
        which=NUMBER,
        step=NUMBER,
        how=st.sampled_from(["step", "step", "step", "item", "after", "fresh", "stale", "alone", "two"]),
    )
    def rerun(self, which: int, step: int, how: str) -> None:
        number = choose(list(self.runs), which)
        run = self.runs[number]
        steps = [] if how == "stale" else [choose(run.graph.names, step)]
        steps += [choose(run.graph.names, step // 7)] if how == "two" else []
        items = [choose(["a", "b", "c"], step)] if how == "item" else None
        options: dict[str, Any] = {"items": items} | {
            "fresh": {"reuse": False},
            "stale": {"stale": True},
            "alone": {"downstream": False},
        }.get(how, {})
        if how == "after":
            options["from_step"] = steps.pop()
        named = {*steps, *([options["from_step"]] if how == "after" else [])}
        targets = {
            name
            for name in run.names()
            if name[0] in named and run.is_known(name) and (items is None or name[1] in ("", *items))
        }
        if how == "stale":  # an item may be stale on a list that is being replaced
            targets, named = run.stale(), set(run.graph.names)
        self.apply_rerun(number, run, targets, named, steps, options)

    def apply_rerun(
        self, number: UUID, run: Run, targets: set[Name], named: set[str], steps: list[str], options: dict[str, Any]
    ) -> None:
        alone, fresh = "downstream" in options, "reuse" in options or "from_step" in options
        affected = set() if alone else run.affected(targets)
        to_come = any(run.shape(one).each and run.shape(one).source not in run.lists for one in named)
        try:
            revision = self.wait(self.sandbox.client.runs.rerun(number, *steps, **options))
        except RunBusy:
            assert (
                not self.may_be_acted_on(run, over=alone)
                or run.is_busy(affected)
                or run.waits_for_others(targets, affected)
                or to_come
                or (alone and any(run.is_source(step) for step, _ in targets))
            )
            return
        assert self.may_be_acted_on(run, over=alone)
        assert not run.is_busy(affected)
        assert (revision.number, revision.jobs) == (run.revision + bool(targets), len(targets)), targets
        if targets and alone:
            run.rerun_isolated(targets)
        elif targets:
            run.rerun(targets, keeps=targets if "stale" in options else None, fresh=fresh)

    @rule(which=NUMBER, name=NUMBER, goes_on=st.booleans())
    def edit(self, which: int, name: int, goes_on: bool) -> None:
        number = choose(list(self.runs), which)
        run = self.runs[number]
        step, item = choose(list(run.jobs), name)
        value = ["a"] if run.is_source(step) else "edited"
        stands = (step, item) in set(run.names())
        affected = run.affected({(step, item)}) - {(step, item)}
        try:
            revision = self.wait(
                self.sandbox.client.runs.edit(number, step, value, item=item, downstream=goes_on, by="ana")
            )
        except RunBusy:
            assert (
                not self.may_be_acted_on(run, over=not goes_on)
                or run.is_source(step)
                or run.is_busy(affected)
                or run.waits_for_others(set(), affected | {(step, item)})
                or not stands
                or not run.job((step, item)).is_final
            )
            return
        except NotFound:
            assert not stands or not run.job((step, item)).is_final
            return
        assert self.may_be_acted_on(run, over=not goes_on)
        assert stands
        assert not run.is_source(step)
        assert run.job((step, item)).is_final
        assert not run.is_busy(affected if goes_on else set())
        assert revision.number == run.revision + 1
        run.put((step, item), value)
        if goes_on:
            run.rerun(set(), edited=[(step, item)])
        else:
            run.revision += 1

    @rule(which=NUMBER, field=st.sampled_from(["topic", "tone", None]))
    def fork(self, which: int, field: str | None) -> None:
        number = choose(list(self.runs), which)
        run = self.runs[number]
        changes = {field: f"other {len(self.runs)}"} if field else {}
        if not run.is_over:
            with pytest.raises(RunBusy):
                self.wait(self.sandbox.client.runs.fork(number, changes, by="ana"))
            return
        if run.final_state is not None:  # what a cancel or a rejection left undone follows rules of its own
            return
        if len(self.runs) > 3:
            return
        started = self.wait(self.sandbox.client.runs.fork(number, changes, by="ana"))
        new = run.fork()
        takes = {"topic": {"facts", "words", "spots"}, "tone": {"picture", "style", "light"}, None: set()}[field]
        targets = {name for name in new.names() if name[0] in takes | {"post", "approved"}}
        stale = run.stale()
        if targets | stale:
            new.rerun(targets | stale)
        self.runs[started.id] = new
        self.inputs[started.id] = self.inputs[number] | changes

    # What holds after every act

    @invariant()
    def compare_with_database(self) -> None:
        if not self.runs:
            return
        self.see_open_reviews()
        assert self.wait(list_underived_states(self.database)) == []
        runs, jobs = self.wait(rows_of(self.database))
        for number, run in self.runs.items():
            row = runs[number]
            assert row["state"] == run.state, (row["state"], run.state)
            assert row["revision"] == run.revision
            assert (row["ended_at"] is not None) == run.is_over
            if row["ended_at"] is None and row["final_state"] is None:
                left = {step: run.left(run.shape(step)) for step in row["ends"]}
                assert row["open_sinks"] == sum(left.values()), (row["open_sinks"], left)
            self.check_jobs(number, run, [job for job in jobs if job["run"] == number])
            if run.is_over and run.final_state is None:
                found = set(self.wait(self.sandbox.client.runs.list_stale(number)))
                assert found == run.stale(), (found, run.stale())

    def check_jobs(self, number: UUID, run: Run, jobs: list[Any]) -> None:
        found = {(job["step"], job["item"], job["revision"]): job for job in jobs}
        current_jobs = run.current_jobs()
        expected = {
            (*name, job.revision): ({"asking": "parked"}.get(job.state, job.state), job.value if job.is_final else None)
            for name, job in current_jobs.items()
            if job.is_rerun
        }
        for key, (state, value) in expected.items():
            output = json.loads(found[key]["output"] or "null")
            assert (found[key]["state"], output) == (state, value if state == "succeeded" else None), key
            assert found[key]["holds"] == (state == "running")
        current = {(*name, job.revision) for name, job in current_jobs.items()}
        live = {key for key, job in found.items() if job["state"] in ("waiting", "ready", "running", "parked")}
        assert live <= current
        for key, job in found.items():
            if job["state"] not in ("waiting", "ready", "running", "parked"):
                seen = job["state"], job["output"], job["code"]
                assert self.written.setdefault((number, *key), seen) == seen


def due_at(review: Review) -> datetime:
    return (review.expires_at if review.is_open else review.effective_at) or NEVER


def subject(job: Job) -> Any:
    (value,) = (value for parameter, value in job.used.items() if parameter != "element")
    return value


def normalise_input(value: Any) -> Any:
    """A join's items, as far as the step reads them."""
    if not isinstance(value, tuple):
        return value
    return SimpleNamespace(
        by_key={key: output for key, state, _, output in value if state == "succeeded"},
        failures=[SimpleNamespace(key=key) for key, state, *_ in value if state != "succeeded"],
    )


def describe_outcome(outcome: Outcome) -> tuple[str, Any]:
    if isinstance(outcome, Success):
        return "succeeded", json.loads(outcome.output)
    described = _describe_outcome(outcome)
    return described.kind, described.code


async def rows_of(database: Database) -> tuple[dict[UUID, Any], list[Any]]:
    async with database.connection() as connection:
        runs = await connection.fetch(
            "select id, state::text, revision, open_sinks, final_state::text, ended_at, "
            "array(select e.from_step from retoma.edges e "
            "where e.version = r.version and e.edge_kind = 'end' and e.via = '') as ends from retoma.runs r"
        )
        jobs = await connection.fetch(
            "select run, step, item, revision, state::text, output::text, code, "
            "coalesce(worker, 0) > 0 and state = 'running' as holds from retoma.jobs"
        )
    return {run["id"]: run for run in runs}, jobs


@pytest.fixture
def machine() -> Iterator[type[People]]:
    loop = asyncio.new_event_loop()
    opened = fresh_database()
    People.loop, People.database = loop, loop.run_until_complete(opened.__aenter__())
    yield People
    loop.run_until_complete(opened.__aexit__(None, None, None))
    loop.close()


def test_people_and_workers_see_what_the_model_predicts(machine: type[People]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_long_day_of_people_and_workers_ends_as_the_model_predicts(machine: type[People]) -> None:
    """Chance with weights reaches the late parts of a run more often than a search for small examples does."""
    for seed in range(FIRST_DAY, FIRST_DAY + DAYS):
        chance, day = random.Random(seed), machine()
        try:
            day.open(chance.choice(sorted(REVIEW_PIPELINES)))
            for _ in range(40):
                act = chance.choices(list(ACTIONS), [weight for weight, _ in ACTIONS.values()])[0]
                getattr(day, act)(**ACTIONS[act][1](chance))
                day.compare_with_database()
        except BaseException as error:
            error.add_note(f"on day {seed}")
            raise
        finally:
            day.teardown()


def test_failed_items_that_are_rerun_end_as_the_model_predicts(machine: type[People]) -> None:
    """A history that chance reaches too seldom: what failed succeeds at a later revision."""
    day = machine()
    try:
        day.open("album")
        day.all_of_it_is_done(salt=0, fails=True)
        day.compare_with_database()
        (run,) = day.runs.values()
        assert run.state == "completed_with_errors"
        for step, state in (("label", "completed_with_errors"), ("title", "completed")):
            day.rerun(0, run.graph.names.index(step), "step")
            day.all_of_it_is_done(salt=0, fails=False)
            day.compare_with_database()
            assert run.state == state
    finally:
        day.teardown()


def test_rejected_items_that_are_rerun_end_as_the_model_predicts(machine: type[People]) -> None:
    """A history that chance reaches too seldom: a rejected item is rejected again, and then approved."""
    day = machine()
    try:
        day.open("gallery")
        (run,) = day.runs.values()
        day.much_is_done(4, salt=0, fails=False)
        day.compare_with_database()
        for action, state in (("reject", "completed_with_errors"), ("approve", "completed")):
            day.decide(0, action, 0, 0, 0, newest=True)
            day.much_is_done(1, salt=0, fails=False)
            day.compare_with_database()
            day.all_of_it_is_done(salt=0, fails=False)
            day.compare_with_database()
            assert run.state == state
            day.rerun(0, run.graph.names.index("sharp"), "step")
            day.compare_with_database()
    finally:
        day.teardown()
