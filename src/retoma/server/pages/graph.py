"""Draw a run's graph: in phases that a review closes, or else in columns by dependencies, with lines between. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from retoma.define.graph import Graph
from retoma.records import StepProgress
from retoma.states import JobState, RunState

WIDTH, HEIGHT = 200, 46
COLUMN_GAP, ROW_GAP = 66, 18
MARGIN = 20  # room for the lines beside the last column


@dataclass(frozen=True)
class Node:
    step: str
    state: str
    done: int
    total: int
    failed: int
    each: bool
    x: int
    y: int


@dataclass(frozen=True)
class Line:
    path: str
    is_done: bool


@dataclass(frozen=True)
class Drawing:
    nodes: list[Node]
    lines: list[Line]
    width: int
    height: int


def draw_graph(graph: Graph, progress: Mapping[str, StepProgress], states: Mapping[str, str]) -> Drawing:
    """Draw the steps that the user wrote; lines pass through internal steps. `states` has their display states."""
    edges = _leave_direct(list_visible_edges(graph))
    steps = [step.name for step in graph.steps if not step.internal]
    phases = _assign_phases(steps, edges, {step.name for step in graph.steps if step.review})
    places = (
        _assign_positions(phases, top=True) if len(phases) > 1 else _assign_positions(_assign_columns(steps, edges))
    )
    each = {step.name: step.each for step in graph.steps}
    nodes = [_make_node(step, each[step], progress.get(step), states[step], *places[step]) for step in places]
    done = {node.step for node in nodes if node.state == JobState.SUCCEEDED}
    lines = [Line(_draw_path(places[first], places[last]), first in done) for first, last in edges]
    return Drawing(nodes, lines, _get_extent(places, 0, WIDTH), _get_extent(places, 1, HEIGHT))


def list_dependencies(graph: Graph) -> dict[str, list[str]]:
    """Return the steps that must end before a step's first job is ready; items of one list are independent."""
    each = {step.name for step in graph.steps if step.each}
    found: dict[str, list[str]] = {}
    for first, last in list_visible_edges(graph):
        if first not in each or last not in each:
            found.setdefault(last, []).append(first)
    return found


def summarize_state(step: StepProgress | None) -> JobState | None:
    """Return the most important state of a step's jobs, or None if it has no jobs yet."""
    order = (
        JobState.FAILED,
        JobState.QUARANTINED,
        JobState.RUNNING,
        JobState.PARKED,
        JobState.READY,
        JobState.WAITING,
        JobState.CANCELLED,
        JobState.SUCCEEDED,
        JobState.SKIPPED,
    )
    return None if step is None else next((state for state in order if step.jobs.get(state)), None)


def get_display_state(state: JobState, parked_as: str | None) -> str:
    """Return the state as people should read it: `parked_as` says what a parked job waits for, if not a provider."""
    return parked_as if parked_as is not None and state is JobState.PARKED else state


def get_step_display_state(step: StepProgress, run_state: RunState, parked_as: str | None = None) -> str:
    """Return the state of a step as people should read it; `waiting` if it has no jobs yet."""
    state = summarize_state(step) or JobState.WAITING
    return step.explain_absence(run_state) or get_display_state(state, parked_as)


def list_final_steps(graph: Graph) -> list[str]:
    """Return the steps that no other depends on."""
    needed = {first for first, _ in list_visible_edges(graph)}
    return [step.name for step in graph.steps if not step.internal and step.name not in needed]


def list_visible_edges(graph: Graph) -> list[tuple[str, str]]:
    hidden = {step.name for step in graph.steps if step.internal}
    needs: dict[str, list[str]] = {}
    for edge in graph.edges:
        needs.setdefault(edge.to_step, []).append(edge.from_step)

    def sources(step: str) -> list[str]:
        direct = needs.get(step, [])
        return [name for need in direct for name in (sources(need) if need in hidden else [need])]

    visible = [step.name for step in graph.steps if not step.internal]
    return list(dict.fromkeys((source, step) for step in visible for source in sources(step)))


def _leave_direct(edges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out lines that others imply: one from the first to the last of three steps in a row."""
    following: dict[str, set[str]] = {}
    for first, last in edges:
        following.setdefault(first, set()).add(last)

    @cache
    def reach(step: str) -> frozenset[str]:
        direct = following.get(step, set())
        return frozenset(direct.union(*map(reach, direct)))

    return [
        (first, last) for first, last in edges if not any(last in reach(other) for other in following[first] - {last})
    ]


def _assign_columns(steps: list[str], edges: list[tuple[str, str]]) -> list[list[str]]:
    """Each step one column right of the last of its needs. Steps come after their needs."""
    depth = dict.fromkeys(steps, 0)
    for step in steps:
        depth[step] = max((depth[first] + 1 for first, last in edges if last == step), default=0)
    return [[step for step in steps if depth[step] == column] for column in range(max(depth.values(), default=0) + 1)]


def _assign_phases(steps: list[str], edges: list[tuple[str, str]], reviews: set[str]) -> list[list[str]]:
    """Each step below those of its phase, which ends with the review after which it may start."""
    phase = dict.fromkeys(steps, 0)
    for step in steps:
        phase[step] = max((phase[first] + (first in reviews) for first, last in edges if last == step), default=0)
    return [[step for step in steps if phase[step] == number] for number in range(max(phase.values(), default=0) + 1)]


def _assign_positions(columns: list[list[str]], *, top: bool = False) -> dict[str, tuple[int, int]]:
    tallest = max((len(column) for column in columns), default=0)
    return {
        step: (
            MARGIN + number * (WIDTH + COLUMN_GAP),
            MARGIN + row * (HEIGHT + ROW_GAP) + (0 if top else (tallest - len(column)) * (HEIGHT + ROW_GAP) // 2),
        )
        for number, column in enumerate(columns)
        for row, step in enumerate(column)
    }


def _make_node(step: str, each: bool, progress: StepProgress | None, state: str, x: int, y: int) -> Node:
    jobs = {} if progress is None else progress.jobs
    failed = jobs.get(JobState.FAILED, 0) + jobs.get(JobState.QUARANTINED, 0)
    return Node(step, state, jobs.get(JobState.SUCCEEDED, 0), sum(jobs.values()), failed, each, x, y)


def _draw_path(first: tuple[int, int], last: tuple[int, int]) -> str:
    if first[0] == last[0]:
        return _draw_path_down(first, last)
    x1, y1 = first[0] + WIDTH, first[1] + HEIGHT // 2
    x2, y2 = last[0], last[1] + HEIGHT // 2
    bend = COLUMN_GAP // 2
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _draw_path_down(first: tuple[int, int], last: tuple[int, int]) -> str:
    """Return a line to a step below: straight to the next one, around those between to others."""
    (x, y1), (_, y2) = first, last
    if y2 - y1 == HEIGHT + ROW_GAP:
        return f"M{x + WIDTH // 2} {y1 + HEIGHT}V{y2}"
    x1, x2, y1, y2 = x + WIDTH, x + WIDTH + MARGIN, y1 + HEIGHT // 2, y2 + HEIGHT // 2
    return f"M{x1} {y1}C{x2} {y1} {x2} {y2} {x1} {y2}"


def _get_extent(positions: Mapping[str, tuple[int, int]], axis: int, size: int) -> int:
    return max((place[axis] for place in positions.values()), default=0) + size + MARGIN
