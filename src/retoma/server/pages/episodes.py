"""Each time that a run stood still: why, and how it went on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from retoma.client import Client
from retoma.records import Event, Run
from retoma.states import RunState

MOST = 10_000  # events
Way = Literal["still", "itself", "watchdog", "person", "not"]


@dataclass(frozen=True)
class Episode:
    """`resumed` is None while the run stands still, and if it ended so: given up, cancelled or beyond its deadline."""

    stuck: Event
    resumed: Event | None
    way: Way

    @property
    def data(self) -> dict[str, Any]:
        return self.stuck.data or {}

    @property
    def cause(self) -> str:
        return str(self.data.get("cause", ""))

    @property
    def last(self) -> str:
        """The item whose result was the last before; if it has none, the step."""
        return str(self.data.get("last_item") or self.data.get("last_step") or "")

    @property
    def by(self) -> str:
        return str((self.resumed.data or {}).get("by", "")) if self.resumed else ""


async def episodes(client: Client, run: Run) -> list[Episode]:
    """The newest first."""
    made: list[Episode] = []
    after: Event | None = None
    is_newest = True
    for event in reversed(await client.events(run.id, kinds=("stuck", "resume"), limit=MOST)):
        if event.kind == "resume":
            after = event
            continue
        is_still = is_newest and run.state is RunState.STUCK
        made.append(Episode(event, after, _way(after, is_still=is_still)))
        after, is_newest = None, False
    return made


def ended_by(found: list[Episode], run: Run) -> Episode | None:
    """The one in which a failed run has stopped; None if it failed otherwise."""
    if run.state is not RunState.FAILED or not found:
        return None
    last = found[0]
    return last if last.resumed is None and last.stuck.revision == run.revision else None


def _way(resumed: Event | None, *, is_still: bool) -> Way:
    if resumed is None:
        return "still" if is_still else "not"
    match (resumed.data or {}).get("by"):
        case "itself":
            return "itself"
        case "watchdog":
            return "watchdog"
        case _:
            return "person"
