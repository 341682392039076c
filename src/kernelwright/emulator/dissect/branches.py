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

    successors: tuple[int, ...]
    has_effects: bool


def find_branches(nodes: Mapping[int, Node]) -> tuple[set[int], set[int]]:
    """(forks that count as branches, blocks on the sides of the other forks)."""
    joins = _joins(nodes)
    branches: set[int] = set()
    sides: set[int] = set()
    for at, node in nodes.items():
        if len(node.successors) < 2:
            continue
        side = _side(nodes, node.successors, joins[at])
        if at in side or _loops(nodes, side) or any(nodes[b].has_effects for b in side):
            branches.add(at)
        else:
            sides |= side
    return branches, sides


def _side(nodes: Mapping[int, Node], successors: Sequence[int], join: int) -> set[int]:
    blocks: set[int] = set()
    todo = list(successors)
    while todo:
        b = todo.pop()
        if b in (join, EXIT) or b in blocks:
            continue
        blocks.add(b)
        todo += nodes[b].successors
    return blocks


def _loops(nodes: Mapping[int, Node], side: set[int]) -> bool:
    """Whether a side contains a loop."""
    left = dict.fromkeys(side)
    while True:
        ends = [b for b in left if not any(w in left for w in nodes[b].successors)]
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
            successors = nodes[b].successors or (EXIT,)
            new = {b} | set.intersection(*(after[w] for w in successors))
            if new != after[b]:
                after[b], changed = new, True
    # the nearest one is the one that all others of the set follow
    return {b: max(after[b] - {b}, key=lambda p: len(after[p]), default=EXIT) for b in nodes}
