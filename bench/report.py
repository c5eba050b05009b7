"""Format the results as tables next to targets and other engines."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench.lines import CONDITIONS, LEAST_OF_EMPTY, LINES, Line

Rows = list[list[str]]

_EXCEPTION = re.compile(r"(?:.* / )?(?:(\w+): )?\w*(?:Error|Exception): (.+)", re.DOTALL)


@dataclass
class Results:
    """All results of one run of the suite."""

    machine: dict[str, str] = field(default_factory=dict)
    ours: dict[str, list[float]] = field(default_factory=dict)
    curves: dict[str, list[list[float]]] = field(default_factory=dict)  # by condition, one of each round
    peers: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)  # by peer, line and mode
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    profile: dict[str, Any] = field(default_factory=dict)

    def add(self, samples: dict[str, list[float]]) -> None:
        for line, values in samples.items():
            if line.startswith("curve@"):
                self.curves.setdefault(line.removeprefix("curve@"), []).append(values)
            else:
                self.ours.setdefault(line, []).extend(values)

    def add_peer(self, peer: str, figure: dict[str, Any]) -> None:
        value = figure["per_second"] if "per_second" in figure else figure["milliseconds"]
        modes = self.peers.setdefault(peer, {}).setdefault(figure["line"], {})
        modes.setdefault(figure["mode"], []).append(value)

    def best(self, peer: str, line: str) -> tuple[str, list[float]] | None:
        """Return the engine's best mode for this line, and its result."""
        modes = self.peers.get(peer, {}).get(line)
        if not modes:
            return None
        choose = min if LINES[line].less_is_better else max
        return choose(modes.items(), key=lambda mode: median(mode[1]))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def sections(results: Results) -> dict[str, str]:
    """Return the sections of the page that this run has results for."""
    parts = {
        "machine": _machine(results),
        "figures": _figures(results),
        "peers": _peers(results),
        "growth": _growth(results),
        "profile": _profile(results),
    }
    return {name: text for name, text in parts.items() if text}


def write(page: Path, parts: dict[str, str]) -> None:
    """Write each section between its markers, and leave the rest of the page unchanged."""
    text = page.read_text()
    for name, part in parts.items():
        between = re.compile(rf"(<!-- bench:{name} -->\n).*?(<!-- /bench:{name} -->)", re.DOTALL)
        text, found = between.subn(partial(_between, part), text)
        if not found:
            raise SystemExit(
                f"{page} has no place for {name}: put <!-- bench:{name} --> and <!-- /bench:{name} --> there"
            )
    page.write_text(text)


def _between(part: str, markers: re.Match[str]) -> str:
    return f"{markers[1]}{part}\n{markers[2]}"


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _spread(values: list[float]) -> str:
    return number(values[0]) if len(values) == 1 else f"{number(min(values))} to {number(max(values))}"


def _machine(results: Results) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in results.machine.items())


def _figures(results: Results) -> str:
    measured = [(line, results.ours[name]) for name, line in LINES.items() if name in results.ours]
    rows = [[line.what, _with_unit(line, values), _spread(values), *_aims(line, values)] for line, values in measured]
    return _table(["what", "median", "range", "target", "beyond"], rows)


def _with_unit(line: Line, values: list[float]) -> str:
    return f"**{number(median(values))}**{line.unit}"


def _aims(line: Line, values: list[float]) -> list[str]:
    return [_aim(line, median(values), aim) for aim in (line.target, line.beyond)]


def _aim(line: Line, figure: float, aim: float | None) -> str:
    if aim is None:
        return ""
    return f"{number(aim)}, {'reached' if line.reaches(figure, aim) else 'not reached'}"


def _peers(results: Results) -> str:
    names = list(results.peers)
    lines = [line for line in LINES if line in results.ours and any(line in results.peers[peer] for peer in names)]
    rows = [
        [LINES[line].what, _with_unit(LINES[line], results.ours[line]), *_comparison_row(results, line)]
        for line in lines
    ]
    if not rows and not results.troubles:
        return ""
    table = _table(["what", "Retoma", *(_peer_title(results, peer) for peer in names)], rows)
    return "\n\n".join(part for part in (table, _modes(results, lines), _troubles(results)) if part)


def _peer_title(results: Results, peer: str) -> str:
    versions = list(results.versions.get(peer, {}).values())
    return f"{peer} {versions[0]}" if versions else peer


def _comparison_row(results: Results, line: str) -> list[str]:
    return [_cell(results, peer, line) for peer in results.peers]


def _cell(results: Results, peer: str, line: str) -> str:
    best = results.best(peer, line)
    if best is None:
        return ""
    theirs, ours = median(best[1]), median(results.ours[line])
    times = theirs / ours if LINES[line].less_is_better else ours / theirs
    return f"{number(theirs)} ({number(times)} x)"


def _modes(results: Results, lines: list[str]) -> str:
    """Describe which mode of each engine the table shows, by the command-line names of the lines."""
    said = [f"- {peer}: {'; '.join(modes)}." for peer in results.peers if (modes := _modes_of(results, peer, lines))]
    return "\n".join(["Best modes:", "", *said]) if said else ""


def _modes_of(results: Results, peer: str, lines: list[str]) -> list[str]:
    by_mode: dict[str, list[str]] = {}
    for line in lines:
        best = results.best(peer, line)
        if best is not None and best[0]:
            by_mode.setdefault(best[0], []).append(f"`{line}`")
    return [f"{mode} ({', '.join(names)})" for mode, names in by_mode.items()]


def _troubles(results: Results) -> str:
    """List what was not measured: one line for all rounds in which the same thing failed."""
    rounds: dict[str, list[str]] = {}
    for name, why in results.troubles.items():
        engine, _, number = name.partition(", round ")
        rounds.setdefault(_describe_trouble(results, engine, why), []).append(number)
    lines = [f"- {trouble}{_list_rounds(numbers)}." for trouble, numbers in rounds.items()]
    return "\n".join(["Not measured:", "", *lines]) if lines else ""


def _describe_trouble(results: Results, engine: str, why: str) -> str:
    """Return `dbos, a mode of fan: not done after 120 s`. `why` may be the end of a traceback."""
    found = _EXCEPTION.fullmatch(why)
    if found is None:
        return f"{engine}: {why}"
    line, message = found.groups()
    if line is None or engine not in results.peers:
        return f"{engine}: {message}"
    return f"{engine}, {'a mode of ' if line in results.peers[engine] else ''}`{line}`: {message}"


def _list_rounds(numbers: list[str]) -> str:
    if not numbers[0]:
        return ""
    return f" (round{'s' if len(numbers) > 1 else ''} {', '.join(numbers)})"


def _growth(results: Results) -> str:
    rows = [_condition(results, name, what) for name, what in CONDITIONS.items() if f"drain@{name}" in results.ours]
    curves = [
        [what, *(number(median(tenth)) for tenth in zip(*results.curves[name], strict=True))]
        for name, what in CONDITIONS.items()
        if name in results.curves
    ]
    if not rows:
        return ""
    slices = [f"{tenth}0 %" for tenth in range(1, len(curves[0]))]
    head = ["tables", "chain, steps/s", "of empty", "drain, jobs/s", "of empty"]
    return "\n\n".join(
        [_table(head, rows), "Jobs per second in each tenth of the drain:", _table(["tables", *slices], curves)]
    )


def _condition(results: Results, name: str, what: str) -> list[str]:
    return [what, *_against_empty(results, "chain", name), *_against_empty(results, "drain", name)]


def _against_empty(results: Results, work: str, name: str) -> list[str]:
    figure = median(results.ours[f"{work}@{name}"])
    empty = results.ours.get(f"{work}@empty")
    if empty is None or name == "empty":
        return [number(figure), ""]
    share = figure / median(empty)
    short = name in ("finished", "scheduled") and share < LEAST_OF_EMPTY
    return [number(figure), f"{share:.0%}{', not reached' if short else ''}"]


def _profile(results: Results) -> str:
    if not results.profile:
        return ""
    figures = results.profile["figures"]
    head = ["microseconds per job", *figures]
    names = dict.fromkeys(name for one in figures.values() for name in one)
    rows = [[name, *(number(one[name]) if name in one else "" for one in figures.values())] for name in names]
    return "\n\n".join([_table(head, rows), *_statements(results.profile.get("statements", {}))])


def _statements(statements: dict[str, Any]) -> list[str]:
    parts = []
    for work, found in statements.items():
        if isinstance(found, str):
            parts.append(f"Statements of {work}: {found}.")
            continue
        rows = [[f"`{one['statement']}`", number(one["microseconds"]), f"{one['calls']:,}"] for one in found]
        parts.append(_table([f"statements of {work}", "microseconds per job", "calls"], rows))
    return parts


def _table(head: list[str], rows: Rows) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
