"""The child runs of a run on its page: how many there are in each state, and the most urgent ones."""

from __future__ import annotations

from typing import Any

from retoma.records import Run
from retoma.server.pages.page_context import PageContext
from retoma.states import RunState

MAX_CHILDREN = 50
URGENT_STATES = (
    RunState.FAILED,
    RunState.STUCK,
    RunState.NEEDS_REVIEW,
    RunState.PAUSED,
    RunState.REJECTED,
    RunState.COMPLETED_WITH_ERRORS,
)


async def load_child_runs(context: PageContext, run: Run) -> dict[str, Any]:
    """Return the values for the template; `children` is empty if the run has none."""
    counts = await context.client.runs.count_children(run.id)
    urgent = [state for state in URGENT_STATES if state in counts]
    others = [state for state in counts if state not in URGENT_STATES]
    return {
        "children": {state: counts[state] for state in (*urgent, *others)},
        "child_runs": await _list_most_urgent(context, run, [*([state] for state in urgent), others]),
    }


async def _list_most_urgent(context: PageContext, run: Run, groups: list[list[RunState]]) -> list[Run]:
    """Return the first runs in the order of these groups of states, in each the newest first."""
    found: list[Run] = []
    for states in filter(None, groups):
        if len(found) < MAX_CHILDREN:
            found += await context.client.runs.list(
                parent=run.id, states=states, limit=MAX_CHILDREN - len(found), with_input=False
            )
    return found
