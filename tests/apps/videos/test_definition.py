"""The workflow as specified: its steps, reviews, retries and stages."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest

from retoma.states import RunState
from retoma_apps.videos.models import Fact, Research, Scene, Script, Source
from retoma_apps.videos.pipeline import longform, reuse_rate
from retoma_apps.videos.states import STAGE_BY_RUN_STATE, Stage, stage_of

STEPS = [
    "knowledge_query",
    "research",
    "script_generation",
    "script_review",
    "audio_generation",
    "audio_review",
    "broll_search",
    "broll_review",
    "video_assembly",
    "subtitle_gen",
    "thumbnail_gen",
    "final_review",
    "upload",
    "knowledge_store",
    "analytics_init",
]
REVIEWS = {"script_review", "audio_review", "broll_review", "final_review"}
MIDDLE = 0.5  # of the jitter
MARKS = {
    "knowledge_query": Stage.RESEARCHING,
    "script_generation": Stage.SCRIPTED,
    "script_review": Stage.PRODUCING,
    "broll_review": Stage.ASSEMBLING,
    "thumbnail_gen": Stage.READY,
    "upload": Stage.UPLOADED,
    "publication": Stage.PUBLISHED,
}
OPEN = (RunState.PENDING, RunState.RUNNING, RunState.PAUSED, RunState.NEEDS_REVIEW, RunState.STUCK)
STAGE_FROM_STEPS = (*OPEN, RunState.COMPLETED_WITH_ERRORS)
ENDS = {
    RunState.FAILED: Stage.FAILED,
    RunState.REJECTED: Stage.REJECTED,
    RunState.CANCELLING: Stage.CANCELLED,
    RunState.CANCELLED: Stage.CANCELLED,
    RunState.COMPLETED: Stage.PUBLISHED,
}


def test_the_pipeline_has_fifteen_ordered_steps_and_a_publication_check() -> None:
    assert list(longform.steps) == [*STEPS, "publication"]


def test_four_steps_are_reviews() -> None:
    assert {name for name, step in longform.steps.items() if step.review} == REVIEWS


@pytest.mark.parametrize(
    ("step", "delays"),
    [
        ("knowledge_query", [2, 4, 8]),
        ("research", [5, 10, 20]),
        ("script_generation", [10, 10]),
        ("audio_generation", [5, 10, 20]),
        ("broll_search", [5, 10, 20]),
        ("video_assembly", [30]),
        ("thumbnail_gen", [5, 5]),
        ("upload", [60, 120, 240, 480, 960]),
        ("subtitle_gen", [5, 5]),
        ("knowledge_store", [5, 5]),
        ("analytics_init", [5, 5]),
    ],
)
def test_a_step_is_retried_as_often_and_as_late_as_specified(step: str, delays: list[int]) -> None:
    retry = longform.steps[step].policy.retry
    waits = [retry.delay(number, MIDDLE).total_seconds() for number in range(1, retry.retries + 1)]
    assert waits == pytest.approx(delays)


@pytest.mark.parametrize(
    ("review", "targets"),
    [
        ("script_review", {"script_generation", "research"}),
        ("audio_review", {"audio_generation"}),
        ("broll_review", {"broll_search"}),
        (
            "final_review",
            {"video_assembly", "thumbnail_gen", "broll_search", "audio_generation", "script_generation"},
        ),
    ],
)
def test_a_review_may_send_back_to_the_documented_steps(review: str, targets: set[str]) -> None:
    policy = longform.steps[review].review
    assert policy is not None
    assert set(policy.back_to) == targets
    assert policy.due is not None


def test_a_video_shows_the_stage_of_its_last_finished_step() -> None:
    shown = [stage_of(RunState.RUNNING, STEPS[:count]) for count in range(len(STEPS) + 1)]
    assert shown == [
        Stage.DRAFT,
        *[Stage.RESEARCHING] * 2,
        Stage.SCRIPTED,
        *[Stage.PRODUCING] * 4,
        *[Stage.ASSEMBLING] * 3,
        *[Stage.READY] * 2,
        *[Stage.UPLOADED] * 3,
    ]


def test_a_video_is_researching_from_its_first_attempt() -> None:
    assert stage_of(RunState.RUNNING, [], started=True) is Stage.RESEARCHING


def test_every_run_state_has_a_stage_or_takes_it_from_the_steps() -> None:
    assert dict(STAGE_BY_RUN_STATE) == ENDS | dict.fromkeys(STAGE_FROM_STEPS)
    assert set(STAGE_BY_RUN_STATE) == set(RunState), "map the others in videos/states.py"


def test_every_combination_of_state_and_finished_steps_is_one_stage() -> None:
    """The stage of its final state, or else of the last step done that has one."""
    parts = chain.from_iterable(combinations(MARKS, count) for count in range(len(MARKS) + 1))
    for state, done in product(RunState, parts):
        last = [Stage.DRAFT, *map(MARKS.__getitem__, done)][-1]
        expected = last if state in STAGE_FROM_STEPS else ENDS[state]
        assert stage_of(state, done) is expected, (state, done)


@pytest.mark.parametrize(("state", "stage"), ENDS.items())
def test_an_ended_video_shows_its_final_state_however_far_it_got(state: RunState, stage: Stage) -> None:
    assert {stage_of(state, STEPS[:count]) for count in range(len(STEPS) + 1)} == {stage}


def test_an_edited_script_recounts_its_words() -> None:
    script = Script(title="x", scenes=[Scene(text="Bom dia.", visual="x")])
    edited = script.model_dump() | {"scenes": [{"text": "Bom dia a todos.", "visual": "x"}]}
    assert (script.word_count, Script.model_validate(edited).word_count) == (2, 4)


def test_the_reuse_rate_is_the_share_of_known_facts_among_the_facts_of_the_script() -> None:
    facts = [Fact(text=text, source=Source(name="Livro")) for text in ("a", "b", "c", "d")]
    script = Script(title="x", scenes=[Scene(text="x", visual="x")], facts=["a", "c"])
    assert reuse_rate(script, Research(facts=facts, reused=2)) == 0.5
    assert reuse_rate(script, Research(facts=facts, reused=4)) == 1.0
    assert reuse_rate(script.model_copy(update={"facts": []}), Research(facts=facts, reused=2)) == 0.0
