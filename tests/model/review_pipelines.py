"""Small pipelines in which people are asked. What each step gives is said by its inputs and by `LOT`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from retoma import GiveUp, Items, Pipeline, Retry, hours


@dataclass
class StepBehaviour:
    """The randomly chosen behaviour of the next attempts."""

    salt: int = 0
    fails: bool = False
    words: list[str] = field(default_factory=lambda: ["a", "b"])
    called: list[tuple[str, str]] = field(default_factory=list)


BEHAVIOUR = StepBehaviour()
NO_RETRY = Retry(0)
CAN_FAIL = {"picture", "label", "title", "photo"}
DOUBTFUL = "1"  # a label or a print that ends so is shown to a person


class Brief(BaseModel):
    topic: str = "tea"
    tone: str = "calm"


def make_text(step: str, *inputs: Any, item: str = "") -> str:
    BEHAVIOUR.called.append((step, item))
    if BEHAVIOUR.fails and step in CAN_FAIL:
        raise GiveUp(f"no {step}", code="BROKEN")
    return text_of(step, BEHAVIOUR.salt, *inputs)


def text_of(step: str, salt: int, *inputs: Any) -> str:
    """Short, as they are nested: other inputs must only produce another text."""
    return f"{step}-{abs(hash_of(repr(inputs))) % 9973}-{salt}"


def hash_of(text: str) -> int:
    return sum((place + 1) * ord(letter) for place, letter in enumerate(text))


article = Pipeline("article", Brief, retry=NO_RETRY)


@article.step
def facts(topic: str) -> str:
    return make_text("facts", topic)


@article.step
def outline(facts: str) -> str:
    return make_text("outline", facts)


article.review(
    "approved",
    of=outline,
    send_back_to=[outline, facts],
    remind=hours(1),
    expires=hours(4),
    on_expiry="approved",
    max_revisions=2,
)


@article.step(on_failure="review")
def picture(facts: str, tone: str) -> str:
    return make_text("picture", facts, tone)


@article.step
def page(approved: str, picture: str = "none") -> str:
    return make_text("page", approved, picture)


@article.step(publishes=True)
def post(page: str) -> str:
    return make_text("post", page)


@article.step(after=[page])
def epilogue(facts: str) -> str:
    return make_text("epilogue", facts)


album = Pipeline("album", Brief, retry=NO_RETRY)


@album.step
def words(topic: str) -> list[str]:
    BEHAVIOUR.called.append(("words", ""))
    return list(BEHAVIOUR.words)


@album.step
def style(tone: str) -> str:
    return make_text("style", tone)


@album.each(words)
def label(word: str, style: str) -> str:
    return make_text("label", word, style, item=word)


album.review("sure", of=label, when=lambda label: label.endswith(DOUBTFUL))


@album.each(words)
def framed(sure: str) -> str:
    return make_text("framed", sure)


@album.step(on_failure="continue")
def title(words: list[str]) -> str:
    return make_text("title", words)


@album.step
def report(sure: Items[str], title: str = "none") -> str:
    return make_text("report", list(sure.by_key.items()), [one.key for one in sure.failures], title)


gallery = Pipeline("gallery", Brief, retry=NO_RETRY)


@gallery.step
def spots(topic: str) -> list[str]:
    BEHAVIOUR.called.append(("spots", ""))
    return list(BEHAVIOUR.words)


@gallery.step
def light(tone: str) -> str:
    return make_text("light", tone)


@gallery.each(spots, on_failure="review")
def photo(word: str, light: str) -> str:
    return make_text("photo", word, light, item=word)


gallery.review("sharp", of=photo, expires=hours(4))


@gallery.each(spots)
def print_out(sharp: str) -> str:
    return make_text("print_out", sharp)


gallery.review("printed", of=print_out, when=lambda print_out: print_out.endswith(DOUBTFUL), rejection_ends_run=True)


@gallery.step
def wall(printed: Items[str]) -> str:
    return make_text("wall", list(printed.by_key.items()), [one.key for one in printed.failures])


REVIEWED = {"approved": ("outline", "facts"), "sure": ("label",), "sharp": ("photo",), "printed": ("print_out",)}
ON_EXPIRY = {"approved": "approved", "sharp": "rejected"}
REJECTION_ENDS_RUN = {"printed"}
REVIEW_PIPELINES = {"article": article, "album": album, "gallery": gallery}
