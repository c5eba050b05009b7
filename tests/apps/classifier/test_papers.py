"""The papers of the acceptance test and the benchmark are what they claim to be."""

from __future__ import annotations

import pytest

from retoma_apps.classifier.reading import Unreadable, read
from retoma_apps.providers.llm import Example, get_trained_model
from tests.apps.classifier.papers import KINDS, Paper, batch, lines_of, papers


def test_no_two_papers_are_alike_and_the_same_seed_gives_the_same() -> None:
    made = list(papers(600, seed=3))
    assert len({paper.data for paper in made}) == len({paper.name for paper in made}) == 600
    assert made == list(papers(600, seed=3))
    assert made != list(papers(600, seed=4))


@pytest.mark.parametrize("label", KINDS)
def test_a_paper_can_be_read_word_by_word(label: str) -> None:
    [paper] = [paper for paper in papers(len(KINDS)) if paper.label == label]
    assert read(paper.data).text.split() == " ".join(lines_of(label, KINDS.index(label))).split()


def test_a_small_model_can_tell_papers_apart() -> None:
    learnt = get_trained_model([Example(read(paper.data).text, paper.label) for paper in papers(30, seed=1)])
    assert all(learnt.guess(read(paper.data).text).label == paper.label for paper in papers(60, seed=2))


@pytest.mark.parametrize("paper", batch(0, corrupt=12), ids=lambda paper: paper.name)
def test_a_corrupt_paper_fails_as_it_says(paper: Paper) -> None:
    with pytest.raises(Unreadable) as failure:
        read(paper.data)
    assert failure.value.code in paper.codes
