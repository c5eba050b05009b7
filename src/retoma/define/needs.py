"""Which needs of a step are counted: those that no other need implies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from retoma.define.graph import Edge

Names = frozenset[str]


def count_needs(edges: Sequence[Edge], order: Iterable[str], sources: Mapping[str, str]) -> tuple[Edge, ...]:
    """The edges with `counted` set. `order` has every step after its needs; `sources` is by each step."""
    needs = _needs_by_step(edges)
    ended = _Ended(needs, sources)
    for name in order:
        ended.add(name)
    return tuple(
        replace(edge, counted=edge.kind != "expand" and not ended.implied(edge, needs[edge.to_step])) for edge in edges
    )


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
