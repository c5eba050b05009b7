"""The stuck episodes of a run: their causes and how they were resolved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from retoma.client import Client
from retoma.records import Event, Run
from retoma.states import RunState

MAX_EVENTS = 10_000  # events
Resolution = Literal["still", "itself", "watchdog", "person", "not"]


@dataclass(frozen=True)
class StuckEpisode:
    """`resumed` is None while the run is stuck, and if it ended that way: failed, cancelled or past its deadline."""

    stuck: Event
    resumed: Event | None
    resolution: Resolution

    @property
    def data(self) -> dict[str, Any]:
        return self.stuck.data or {}

    @property
    def cause(self) -> str:
        return str(self.data.get("cause", ""))

    @property
    def last_progress(self) -> str:
        """The item of the last result before, or its step."""
        return str(self.data.get("last_item") or self.data.get("last_step") or "")

    @property
    def resumed_by(self) -> str:
        return str((self.resumed.data or {}).get("by", "")) if self.resumed else ""


async def list_stuck_episodes(client: Client, run: Run) -> list[StuckEpisode]:
    """List the stuck episodes of a run, newest first."""
    episodes: list[StuckEpisode] = []
    after: Event | None = None
    is_newest = True
    for event in reversed(await client.runs.list_events(run.id, kinds=("stuck", "resume"), limit=MAX_EVENTS)):
        if event.kind == "resume":
            after = event
            continue
        is_still = is_newest and run.state is RunState.STUCK
        episodes.append(StuckEpisode(event, after, _get_resolution(after, is_still=is_still)))
        after, is_newest = None, False
    return episodes


def find_fatal_episode(episodes: list[StuckEpisode], run: Run) -> StuckEpisode | None:
    """Return the episode that ended a failed run, or None if it failed for another reason."""
    if run.state is not RunState.FAILED or not episodes:
        return None
    last = episodes[0]
    return last if last.resumed is None and last.stuck.revision == run.revision else None


def _get_resolution(resumed: Event | None, *, is_still: bool) -> Resolution:
    if resumed is None:
        return "still" if is_still else "not"
    match (resumed.data or {}).get("by"):
        case "itself":
            return "itself"
        case "watchdog":
            return "watchdog"
        case _:
            return "person"
