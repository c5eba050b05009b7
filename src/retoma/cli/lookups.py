"""Find the run, review or delivery that an argument names."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import typer

from retoma.cli import printing
from retoma.client import Client
from retoma.errors import NotFound
from retoma.records import Review
from retoma.terminal import escape_text

MAX_NAMED = 3  # of several matches


async def find_run(client: Client, text: str) -> UUID:
    """Return the only run whose ID starts with `text`, or else whose title contains it.

    A run that was found by its title is named on stderr, since the command may act on it.
    """
    by_id = await client.runs.find(text, limit=MAX_NAMED + 1)
    found = by_id or await client.runs.find_by_title(text, limit=MAX_NAMED + 1)
    run = _get_only(found, text, "run", "runs", "text")
    if not by_id:
        named = await client.runs.get(run, with_input=False)
        printing.stderr().print(f"run {run}: {escape_text(named.title or '')}", soft_wrap=True)
    return run


async def find_review(client: Client, text: str) -> Review:
    """Return the only review whose ID starts with `text`."""
    found = await client.reviews.find(text, limit=MAX_NAMED + 1)
    return await client.reviews.get(_get_only(found, text, "review", "reviews", "prefix"))


async def find_delivery(client: Client, text: str) -> UUID:
    """Return the only delivery whose ID starts with `text`."""
    found = await client.webhooks.find_delivery(text, limit=MAX_NAMED + 1)
    return _get_only(found, text, "delivery", "deliveries", "prefix")


def _get_only(found: Sequence[UUID], text: str, kind: str, plural: str, argument: str) -> UUID:
    if not found:
        raise NotFound(f"{kind} {escape_text(text)!r} not found")
    if len(found) > 1:
        first = ", ".join(map(str, found[:MAX_NAMED]))
        more = ", ..." if len(found) > MAX_NAMED else ""
        raise typer.BadParameter(f"{text!r} matches several {plural}: {first}{more}; use a longer {argument}")
    return found[0]
