"""Which needs of a step are counted: those whose end and whose lack of a result no other need implies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from retoma.define.graph import Edge

Names = frozenset[str]


def count_needs(edges: Sequence[Edge], order: Iterable[str], sources: Mapping[str, str]) -> tuple[Edge, ...]:
    """The edges with `counted` set. `order` has every step after its needs; `sources` is by each step."""
    needs = _needs_by_step(edges)
    ended, lacking = _Ended(needs, sources), _Lacking(needs, sources)
    for name in order:
        ended.add(name)
        lacking.add(name)

    def counted(edge: Edge) -> bool:
        others = needs.get(edge.to_step, [])
        return edge.kind != "expand" and not (ended.implied(edge, others) and lacking.implied(edge, others))

    return tuple(replace(edge, counted=counted(edge)) for edge in edges)


def _needs_by_step(edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    needs: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.kind != "expand":
            needs.setdefault(edge.to_step, []).append(edge)
    return needs


class _Ended:
    """What has certainly ended when a step has ended as a whole, and when one item of an each step has."""

    def __init__(self, needs: Mapping[str, Sequence[Edge]], sources: Mapping[str, str]) -> None:
        self._needs = needs
        self._sources = sources
        self._with_whole: dict[str, Names] = {}
        self._with_item: dict[str, Names] = {}

    def add(self, name: str) -> None:
        needs = self._needs.get(name, ())
        with_needs = Names().union(*({need.from_step} | self._with(need) for need in needs))
        if name not in self._sources:
            self._with_whole[name] = with_needs
            return
        # An each step may have no items, so that as a whole it proves nothing but the end of its source.
        source = self._sources[name]
        self._with_whole[name] = Names({source}) | self._with_whole[source]
        self._with_item[name] = self._with_whole[name] | with_needs

    def implied(self, need: Edge, needs: Iterable[Edge]) -> bool:
        if need.kind == "shared" and need.from_step in self._with_whole[need.to_step]:
            return True
        return any(need.from_step in self._with(other) for other in needs if _can_imply(other, need))

    def _with(self, need: Edge) -> Names:
        ended = self._with_item if need.kind == "item" else self._with_whole
        return ended[need.from_step]


def _can_imply(other: Edge, need: Edge) -> bool:
    return other is not need and (need.kind != "item" or other.kind == "item")


class _Lacking:
    """Which steps' lack of a result leaves a step, or an item of an each step, without one too."""

    def __init__(self, needs: Mapping[str, Sequence[Edge]], sources: Mapping[str, str]) -> None:
        self._needs = needs
        self._sources = sources
        self._without: dict[str, Names] = {}

    def add(self, name: str) -> None:
        required = [need for need in self._needs.get(name, ()) if _is_required(need)]
        self._without[name] = self._of_source(name).union(*map(self._of, required))

    def implied(self, need: Edge, needs: Iterable[Edge]) -> bool:
        """A lack that does not matter is implied by anything."""
        if not _is_required(need):
            return True
        subject = self._sources[need.from_step] if need.kind == "join" else need.from_step
        others = [other for other in needs if other is not need and _is_required(other)]
        return subject in self._of_source(need.to_step).union(*map(self._of, others))

    def _of(self, need: Edge) -> Names:
        """A join lacks its items only if their source has no result: an item's own lack does not stop it."""
        if need.kind == "join":
            return self._of_source(need.from_step)
        return Names({need.from_step}) | self._without[need.from_step]

    def _of_source(self, name: str) -> Names:
        source = self._sources.get(name)
        return Names() if source is None else Names({source}) | self._without[source]


def _is_required(need: Edge) -> bool:
    """Whether the dependent is skipped when this need has no result; `after=` only orders."""
    return need.parameter is not None and not need.optional
