"""The items of a run as a table, filtered by state and text."""

from __future__ import annotations

from typing import Any

from retoma.define.graph import Graph
from retoma.records import Run
from retoma.server.pages.page_context import PageContext
from retoma.server.serializers import list_item_sources
from retoma.states import JobState

PAGE_SIZE = 25
MAX_SEARCH_LENGTH = 500


async def load_items(context: PageContext, run: Run, graph: Graph) -> dict[str, Any]:
    """Return the values for the template; `source` is None if the run has no items."""
    sources, query = list_item_sources(graph), context.query
    source = query["items"] if query.get("items") in sources else next(iter(sources), None)
    if source is None:
        return {"sources": [], "source": None}
    state, search = context.get_query_choice("item_state", JobState), query.get("search", "")[:MAX_SEARCH_LENGTH]
    found = await context.client.runs.list_items(
        run.id,
        source,
        states=[state] if state else None,
        search=search or None,
        after=context.get_query_number("item_from", -1),
        limit=PAGE_SIZE + 1,
    )
    return {
        "sources": sources,
        "source": source,
        "items": found[:PAGE_SIZE],
        "item_counts": (await context.client.runs.get_item_totals(run.id, source)).states,
        "search": search,
        "next_item": found[PAGE_SIZE - 1].position if len(found) > PAGE_SIZE else None,
    }
