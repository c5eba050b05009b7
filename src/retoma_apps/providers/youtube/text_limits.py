"""Cut texts to YouTube's limits. A long text must not stop a finished video; its owner can fix a cut one on YouTube."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from unicodedata import category

from retoma_apps.providers.youtube.port import LocalizedTexts, VideoToPublish

LONGEST_TITLE = 100  # characters
LONGEST_DESCRIPTION = 5_000  # bytes
LONGEST_TAGS = 500  # characters of all, including the quotes and commas that YouTube adds
UNTITLED = "Vídeo"
# YouTube rejects angle brackets; these look similar and mean nothing to a browser.
_BRACKETS = str.maketrans("<>", "\u2039\u203a")


def fit_texts(video: VideoToPublish) -> VideoToPublish:
    """Return the video with texts within the limits. The mark is the first tag, so it is never cut off."""
    return replace(
        video,
        title=_fit_title(video.title),
        description=_fit_description(video.description, video.credits),
        credits=(),
        tags=tuple(_fit_tags((video.mark, *video.tags))),
        localizations={
            language: LocalizedTexts(_fit_title(each.title), _fit_description(each.description, video.credits))
            for language, each in video.localizations.items()
        },
    )


def _fit_title(title: str) -> str:
    return _single_line(title)[:LONGEST_TITLE].rstrip() or UNTITLED


def _fit_description(description: str, lines: Iterable[str]) -> str:
    """Cut the text to leave room for the credits below it; credits that are too long alone lose whole lines."""
    below = _fit_credits(lines)
    room = LONGEST_DESCRIPTION - len(below.encode())
    return f"{_printable(description).encode()[:room].decode(errors='ignore')}{below}".lstrip("\n")


def _fit_credits(lines: Iterable[str]) -> str:
    taken = ""
    for line in map(_single_line, lines):
        longer = f"{taken}\n{line}" if taken else f"\n\n{line}"
        if line and len(longer.encode()) <= LONGEST_DESCRIPTION:
            taken = longer
    return taken


def _fit_tags(tags: Iterable[str]) -> list[str]:
    taken: dict[str, None] = {}
    left = LONGEST_TAGS
    for tag in (_single_line(each.replace(",", " ").replace('"', " ")) for each in tags):
        # YouTube counts quotation marks around a tag that has a space, and a comma before each.
        cost = len(tag) + 2 * (" " in tag) + (1 if taken else 0)
        if tag and tag not in taken and cost <= left:
            taken[tag] = None
            left -= cost
    return list(taken)


def _single_line(text: str) -> str:
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    """Return the text without control characters and lone surrogates."""
    return "".join(each for each in text.translate(_BRACKETS) if each in "\n\t" or category(each) not in ("Cc", "Cs"))
