"""The transcripts in the READMEs are what `make run` prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from retoma.translations import CATALOGUES, Translator
from retoma_apps import autowriter, classifier, gpu, samples, stories, videos
from retoma_apps.autowriter import demo as autowriter_demo
from retoma_apps.autowriter.pages.messages import STEP_LABELS as ARTICLE_LABELS
from retoma_apps.classifier import demo as classifier_demo
from retoma_apps.gpu import demo as gpu_demo
from retoma_apps.samples import demo as samples_demo
from retoma_apps.stories import demo as stories_demo
from retoma_apps.videos import demo as videos_demo
from retoma_apps.videos.pages.messages import STEP_LABELS

ROOT = Path(__file__).parents[2]


def read_transcript(page: str, block: int) -> list[str]:
    """Return the lines of a block, without the times of a run."""
    text = re.findall(r"```text\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[block]
    return [re.sub(r"^ *[\d.,]+ s  ", "", line) for line in text.splitlines() if line]


def build_patterns(language: str) -> list[str]:
    """Return a pattern for each line, in which any text may stand for a value."""
    retoma = Translator(language, [CATALOGUES])
    of_videos, of_articles, of_classifier, of_gpu, of_stories, of_samples = (
        Translator(language, [Path(str(app.__file__)).parent / "locale", CATALOGUES])
        for app in (videos, autowriter, classifier, gpu, stories, samples)
    )
    titles = of_videos.gettext("Videos"), of_classifier.gettext("Classifier"), of_gpu.gettext("GPU")
    review = retoma.gettext("%(step)s of “%(about)s” is waiting for you: %(address)s")
    messages = [
        titles[0],
        of_videos.gettext(videos_demo._ORDERED),
        of_videos.gettext(videos_demo._OFFLINE),
        "AutoWriter",
        of_articles.gettext(autowriter_demo._STARTED),
        titles[1],
        of_classifier.gettext(classifier_demo._STARTED),
        titles[2],
        of_gpu.gettext(gpu_demo._STARTED),
        of_stories.gettext("Stories"),
        of_stories.gettext(stories_demo._ORDERED),
        of_samples.gettext("Sample data"),
        of_samples.gettext(samples_demo._STARTED),
        review.replace("%(step)s", of_videos.gettext(STEP_LABELS["script_review"])),
        f"AutoWriter: {of_articles.gettext(autowriter_demo._DRAFT)}",
        review.replace("%(step)s", of_articles.gettext(ARTICLE_LABELS["quality_gate_passed"])),
        f"{titles[1]}: {of_classifier.gettext(classifier_demo._DONE)}",
        f"{titles[2]}: {of_gpu.gettext(gpu_demo._RECEIVED)}",
    ]
    return [build_pattern(line) + r"([?&]token=.*)?" for message in messages for line in message.splitlines()]


def build_pattern(message: str) -> str:
    return re.sub(r"%\\\(\w+\\\)s", ".+", re.escape(message))


@pytest.mark.parametrize(("page", "language"), [("README.md", "en"), ("README.pt-BR.md", "pt")])
def test_the_readme_shows_what_the_demos_print(page: str, language: str) -> None:
    lines, patterns = read_transcript(page, 0), build_patterns(language)
    assert [re.fullmatch(pattern, line) is not None for pattern, line in zip(patterns, lines, strict=False)] == [
        True
    ] * len(patterns)
    assert len(lines) == len(patterns)


KILL_MESSAGES = (
    "run %(run)s is started and stored",
    "worker 1 (process %(pid)s) is running jobs",
    "kill -9 %(pid)s: worker 1 died while it was running %(jobs)s jobs",
    "%(jobs)s jobs had finished; their results stay in the database",
    "worker 2 (process %(pid)s) started %(after)s s later and runs the jobs that are ready",
    "recovered %(after)s s after the kill: the jobs of worker 1 rerun, one by one",
    "the film is ready, %(after)s s after the start",
)


@pytest.mark.parametrize(("page", "language"), [("README.md", "en"), ("README.pt-BR.md", "pt")])
def test_the_readme_shows_what_the_demo_of_a_kill_prints(page: str, language: str) -> None:
    printed = Translator(language, [CATALOGUES]).gettext
    heading, rows = (
        ("What the kill cost", "jobs", "executions"),
        (
            ("finished before the kill", "none was run again"),
            ("running when the worker died", "each was run again"),
            ("not started at the kill", "each was run once"),
        ),
    )
    patterns = [
        *(build_pattern(printed(message)) for message in KILL_MESSAGES),
        r"\s+".join(re.escape(printed(word)) for word in heading),
        *(rf"{re.escape(printed(what))}\s+\d+\s+\d+\s+{re.escape(printed(outcome))}" for what, outcome in rows),
    ]
    lines = read_transcript(page, 1)
    assert [line for line, pattern in zip(lines, patterns, strict=True) if not re.fullmatch(pattern, line)] == []
