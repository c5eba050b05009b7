"""What changed in an article since the revision that reviewers saw before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from retoma import Client
from retoma.records import Run
from retoma.server import Piece, align_entries, compare_texts
from retoma.states import JobState
from retoma_apps.autowriter.models import Image
from retoma_apps.autowriter.operations.revisions import PARTS, ArticleRevision, Part, get_revision


@dataclass(frozen=True)
class ChangedLine:
    """A paragraph, heading or other line that differs from its previous version, or stands elsewhere."""

    pieces: tuple[Piece, ...]
    is_moved: bool


@dataclass(frozen=True)
class ArticleChanges:
    """The changed lines of each part that changed, and the images of each type that changed: before and now."""

    since: int
    parts: dict[Part, list[ChangedLine]]
    images: dict[str, tuple[Image | None, Image | None]]


async def find_changes(client: Client, run: Run, step: str, revision: int) -> ArticleChanges | None:
    """Compare the article with the last revision at which this step succeeded; None if there is none before."""
    history = await client.runs.get_step_history(run.id, step)
    since = next(
        (each.revision for each in history if each.revision < revision and each.state is JobState.SUCCEEDED), None
    )
    if since is None:
        return None
    old, new = [await get_revision(client, run, number) for number in (since, revision)]
    return await asyncio.to_thread(_compare, old, new)


def _compare(old: ArticleRevision, new: ArticleRevision) -> ArticleChanges:
    parts = {part: list(_compare_lines(old.texts[part], new.texts[part])) for part in PARTS}
    images = {kind: (old.images.get(kind), new.images.get(kind)) for kind in sorted({*old.images, *new.images})}
    return ArticleChanges(
        old.number,
        {part: lines for part, lines in parts.items() if lines},
        {kind: pair for kind, pair in images.items() if _get_digest(pair[0]) != _get_digest(pair[1])},
    )


def _compare_lines(old: str, new: str) -> Iterator[ChangedLine]:
    before, now = old.splitlines(), new.splitlines()
    for pair in align_entries(before, now):
        texts = (before[pair.before] if pair.before is not None else "", now[pair.now] if pair.now is not None else "")
        if texts[0] != texts[1] or pair.is_moved:
            yield ChangedLine(compare_texts(*texts), pair.is_moved)


def _get_digest(image: Image | None) -> str | None:
    return None if image is None else image.file.file
