"""Which forks of the CPU code are branches on a GPU. If the sides only compute values, a GPU's
compiler computes both and selects.

The executed basic blocks are the nodes of a graph, and observed successions its edges. The sides of
a fork reach to the first block that all paths from it lead to (its immediate postdominator). A fork
counts as a branch if a side accesses memory, waits for other lanes, or loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EXIT = 0


@dataclass(frozen=True)
class Node:
    """A basic block: its successors, and whether it accesses memory or waits."""

    ways: tuple[int, ...]
    works: bool


def counted(nodes: Mapping[int, Node]) -> tuple[set[int], set[int]]:
    """(forks that count as branches, blocks on the sides of the other forks)."""
    joins = _joins(nodes)
    forks: set[int] = set()
    sides: set[int] = set()
    for at, node in nodes.items():
        if len(node.ways) < 2:
            continue
        side = _side(nodes, node.ways, joins[at])
        if at in side or _loops(nodes, side) or any(nodes[b].works for b in side):
            forks.add(at)
        else:
            sides |= side
    return forks, sides


def _side(nodes: Mapping[int, Node], ways: Sequence[int], join: int) -> set[int]:
    found: set[int] = set()
    todo = list(ways)
    while todo:
        b = todo.pop()
        if b in (join, EXIT) or b in found:
            continue
        found.add(b)
        todo += nodes[b].ways
    return found


def _loops(nodes: Mapping[int, Node], side: set[int]) -> bool:
    """Whether a side contains a loop."""
    left = dict.fromkeys(side)
    while True:
        ends = [b for b in left if not any(w in left for w in nodes[b].ways)]
        if not ends:
            return bool(left)
        for b in ends:
            del left[b]


def _joins(nodes: Mapping[int, Node]) -> dict[int, int]:
    """The immediate postdominator of each block."""
    everything = {*nodes, EXIT}
    after: dict[int, set[int]] = {b: set(everything) for b in nodes}
    after[EXIT] = {EXIT}
    changed = True
    while changed:
        changed = False
        for b in sorted(nodes, reverse=True):
            ways = nodes[b].ways or (EXIT,)
            new = {b} | set.intersection(*(after[w] for w in ways))
            if new != after[b]:
                after[b], changed = new, True
    # the nearest one is the one that all others of the set follow
    return {b: max(after[b] - {b}, key=lambda p: len(after[p]), default=EXIT) for b in nodes}
