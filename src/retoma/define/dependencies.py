"""Which dependencies of a step are counted: those whose end and whose failure no other dependency implies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from retoma.define.graph import Edge

Names = frozenset[str]


def mark_counted_edges(edges: Sequence[Edge], order: Iterable[str], sources: Mapping[str, str]) -> tuple[Edge, ...]:
    """Return the edges with `counted` set. `order` has each step after its dependencies; `sources` is by each step."""
    dependencies = _group_by_step(edges)
    ends, failures = _ImpliedEnds(dependencies, sources), _ImpliedFailures(dependencies, sources)
    for name in order:
        ends.add(name)
        failures.add(name)

    def is_counted(edge: Edge) -> bool:
        others = dependencies.get(edge.to_step, [])
        return edge.kind != "expand" and not (ends.is_implied(edge, others) and failures.is_implied(edge, others))

    return tuple(replace(edge, counted=is_counted(edge)) for edge in edges)


def _group_by_step(edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    dependencies: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.kind != "expand":
            dependencies.setdefault(edge.to_step, []).append(edge)
    return dependencies


class _ImpliedEnds:
    """The steps that have certainly ended once a step has ended as a whole, or once one item of an each step has."""

    def __init__(self, dependencies: Mapping[str, Sequence[Edge]], sources: Mapping[str, str]) -> None:
        self._dependencies = dependencies
        self._sources = sources
        self._with_whole: dict[str, Names] = {}
        self._with_item: dict[str, Names] = {}

    def add(self, name: str) -> None:
        edges = self._dependencies.get(name, ())
        with_edges = Names().union(*({edge.from_step} | self._get_ended_with(edge) for edge in edges))
        if name not in self._sources:
            self._with_whole[name] = with_edges
            return
        # An each step may have no items, so as a whole it only proves the end of its source.
        source = self._sources[name]
        self._with_whole[name] = Names({source}) | self._with_whole[source]
        self._with_item[name] = self._with_whole[name] | with_edges

    def is_implied(self, dependency: Edge, dependencies: Iterable[Edge]) -> bool:
        if dependency.kind == "shared" and dependency.from_step in self._with_whole[dependency.to_step]:
            return True
        return any(
            dependency.from_step in self._get_ended_with(other)
            for other in dependencies
            if _can_imply(other, dependency)
        )

    def _get_ended_with(self, dependency: Edge) -> Names:
        ended = self._with_item if dependency.kind == "item" else self._with_whole
        return ended[dependency.from_step]


def _can_imply(other: Edge, dependency: Edge) -> bool:
    return other is not dependency and (dependency.kind != "item" or other.kind == "item")


class _ImpliedFailures:
    """The steps whose missing result leaves a step, or an item of an each step, without a result too."""

    def __init__(self, dependencies: Mapping[str, Sequence[Edge]], sources: Mapping[str, str]) -> None:
        self._dependencies = dependencies
        self._sources = sources
        self._without: dict[str, Names] = {}

    def add(self, name: str) -> None:
        required = [edge for edge in self._dependencies.get(name, ()) if _is_required(edge)]
        self._without[name] = self._get_source_failures(name).union(*map(self._get_failures, required))

    def is_implied(self, dependency: Edge, dependencies: Iterable[Edge]) -> bool:
        """Return whether the other dependencies imply this one's failure. A failure that does not matter is implied."""
        if not _is_required(dependency):
            return True
        subject = self._sources[dependency.from_step] if dependency.kind == "join" else dependency.from_step
        others = [other for other in dependencies if other is not dependency and _is_required(other)]
        return subject in self._get_source_failures(dependency.to_step).union(*map(self._get_failures, others))

    def _get_failures(self, dependency: Edge) -> Names:
        """A join has no items only if their source has no result: a single failed item does not stop it."""
        if dependency.kind == "join":
            return self._get_source_failures(dependency.from_step)
        return Names({dependency.from_step}) | self._without[dependency.from_step]

    def _get_source_failures(self, name: str) -> Names:
        source = self._sources.get(name)
        return Names() if source is None else Names({source}) | self._without[source]


def _is_required(dependency: Edge) -> bool:
    """Return whether the dependent is skipped if this dependency has no result; `after=` only orders."""
    return dependency.parameter is not None and not dependency.optional
