"""Microseconds that a config needs for a product: feeding or multiplying, in waves of tiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .candidates import allowed
from .configs import CLUSTERS, Config, K, Pingpong, Split, StreamK, cdiv

SHARP = 6  # how sharply the slower of feeding and multiplying wins
L2 = 30e6  # bytes of operands that stay in L2
SHORT = 17.5e9  # multiplications, about 50 us: where the power limit begins to tell


@dataclass(frozen=True)
class Constants:
    """Of an H200, fitted to records.jsonl (fit.py). Not pinned down one by one: fits from other
    starts gave `slow` 1.35 to 1.49 and `port` 145 to 162 with the same loss."""

    start: float = 2.89  # us: launch, first loads, last stores
    fast: float = 1.66  # GHz that the tensor cores keep up for a moment
    slow: float = 1.44  # and against the power limit
    port: float = 147.0  # bytes a ns that come into an SM, its own loads and its neighbours'
    busy: float = 100.0  # and for long
    feed: float = 153.0  # bytes a ns that its own loads bring, rows at multiples of 128 bytes
    slanted: float = 62.1  # and where they do not lie so
    shared: float = 1.07  # slabs loaded for each other: blocks wait for the slowest
    shared_slanted: float = 1.05
    out: float = 2.01  # us for 128 x 256 results to leave
    hidden: float = 0.336  # of that, what ping-pong still waits for
    together: float = 1.03  # two groups on one tile: both idle between tiles, both wait for a slab
    hand: float = 9.47  # us to hand over and take 128 x 256 sums through the workspace
    parcel: float = 3.31  # and through the cluster
    miss: float = 36.7  # bytes a ns of operands that do not stay in L2, blocks being apart in k


FITTED = Constants()


def choose(m: int, n: int, k: int, layout: str) -> Config:
    """The config for C (m x n) = A B; see `us` for the layout."""
    return ranked(m, n, k, layout)[0]


def ranked(m: int, n: int, k: int, layout: str) -> list[Config]:
    return sorted(allowed(k), key=lambda c: us(c, m, n, k, layout))


def us(c: Config, m: int, n: int, k: int, layout: str, of: Constants = FITTED) -> float:
    """Layout: "NT" is A as m rows of k and B as n rows of k, as a linear layer has them; "N" for B
    is k rows of n, "T" for A is k rows of m."""
    tiles = cdiv(cdiv(m, c.bm), c.rows) * cdiv(cdiv(n, c.bn), c.cols)
    at_once = CLUSTERS[c.blocks]
    part = c.bm * c.bn / (128 * 256)
    slabs, slab = cdiv(k, K), _slab(c, m, n, k, layout, tiles, of)
    waves, out = cdiv(tiles, at_once), of.out * part
    if isinstance(c, Split):
        if tiles > at_once:  # it does not overlap tiles
            return math.inf
        return of.start + cdiv(slabs, c.split) * slab + out + of.parcel * part
    if isinstance(c, Pingpong):
        return of.start + waves * (slabs * slab + of.hidden * out) + out
    if isinstance(c, StreamK):
        hand = of.hand * part * max(1.0, at_once / tiles) if tiles % at_once else 0.0
        turns = max(tiles / at_once, 4 / slabs)
        return of.start + turns * slabs * slab + max(1, tiles // at_once) * out + hand
    return of.start + waves * (slabs * slab + out)


def _slab(c: Config, m: int, n: int, k: int, layout: str, tiles: int, of: Constants) -> float:
    """Microseconds of a tile's 64 of k."""
    short = 1 / (1 + (m * n * k / SHORT) ** 2)
    tensor = c.bm * c.bn / 32 / (of.slow + (of.fast - of.slow) * short)
    b_k = layout[1] == "T"
    width = c.bn if b_k else cdiv(c.bn, 64) * 64
    a_aligned, b_aligned = aligned(m, n, k, layout)
    own_a, own_b = c.bm * 128 / c.cols, width * 128 / c.rows
    feed = sum(
        own / (of.feed if straight else of.slanted)
        for own, straight in ((own_a, a_aligned), (own_b, b_aligned))
    )
    port = (c.bm + width) * 128 / (of.busy + (of.port - of.busy) * short)
    parts = [tensor, feed, port]
    if isinstance(c, StreamK) and tiles % CLUSTERS[c.blocks]:
        outside = max(0.0, 1 - L2 / (2.0 * (m + n) * k))
        parts.append((own_a + own_b) * outside / of.miss)
    ns = sum(p**SHARP for p in parts) ** (1 / SHARP)
    if c.rows * c.cols > 1:
        ns *= of.shared if a_aligned and b_aligned else of.shared_slanted
    if c.bm > 64 and not isinstance(c, Pingpong):
        ns *= of.together
    return ns / 1000


def aligned(m: int, n: int, k: int, layout: str) -> tuple[bool, bool]:
    """Whether the rows of A and of B begin at multiples of 128 bytes."""
    return (k if layout[0] == "N" else m) % 64 == 0, (n if layout[1] == "N" else k) % 64 == 0
