"""The papers of the acceptance test and the benchmark are what they claim to be."""

from __future__ import annotations

import pytest

from retoma_apps.classifier.steps.reading import Unreadable, read
from retoma_apps.providers.llm import Example
from retoma_apps.providers.llm.offline import get_trained_model
from tests.apps.classifier.papers import KINDS, Paper, batch, lines_of, papers


def test_papers_differ_and_the_same_seed_returns_the_same_papers() -> None:
    made = list(papers(600, seed=3))
    assert len({paper.data for paper in made}) == len({paper.name for paper in made}) == 600
    assert made == list(papers(600, seed=3))
    assert made != list(papers(600, seed=4))


@pytest.mark.parametrize("label", KINDS)
def test_a_paper_can_be_read_word_by_word(label: str) -> None:
    [paper] = [paper for paper in papers(len(KINDS)) if paper.label == label]
    assert read(paper.data).text.split() == " ".join(lines_of(label, KINDS.index(label))).split()


def test_a_small_model_can_distinguish_papers() -> None:
    learnt = get_trained_model([Example(read(paper.data).text, paper.label) for paper in papers(30, seed=1)])
    assert all(learnt.guess(read(paper.data).text).label == paper.label for paper in papers(60, seed=2))


@pytest.mark.parametrize("paper", batch(0, corrupt=12), ids=lambda paper: paper.name)
def test_a_corrupt_paper_fails_with_its_declared_error(paper: Paper) -> None:
    with pytest.raises(Unreadable) as failure:
        read(paper.data)
    assert failure.value.code in paper.codes
