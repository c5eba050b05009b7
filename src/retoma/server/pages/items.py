"""The items of a run as a table: a page of them, by state and by text."""

from __future__ import annotations

from typing import Any

from retoma.define.graph import Graph
from retoma.records import Run
from retoma.server.pages.visit import Visit
from retoma.server.views import sources
from retoma.states import JobState

SIZE = 25
LONGEST_SEARCH = 500


async def shown(visit: Visit, run: Run, graph: Graph) -> dict[str, Any]:
    """What the template needs; `source` is None where the run has no items."""
    given, asked = sources(graph), visit.asked
    source = asked["items"] if asked.get("items") in given else next(iter(given), None)
    if source is None:
        return {"sources": [], "source": None}
    state, search = visit.choice("item_state", JobState), asked.get("search", "")[:LONGEST_SEARCH]
    found = await visit.client.items(
        run.id,
        source,
        states=[state] if state else None,
        search=search or None,
        after=number(asked.get("item_from", ""), -1),
        limit=SIZE + 1,
    )
    return {
        "sources": given,
        "source": source,
        "items": found[:SIZE],
        "item_counts": (await visit.client.item_totals(run.id, source)).states,
        "search": search,
        "next_item": found[SIZE - 1].position if len(found) > SIZE else None,
    }


def number(given: str, otherwise: int) -> int:
    return int(given) if given.isascii() and given.isdigit() and len(given) < 10 else otherwise
