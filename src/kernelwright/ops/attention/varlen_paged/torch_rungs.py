"""Packed queries and pages in PyTorch: the formula for one sequence after another, or block by
block of keys, so that a query's bits do not depend on what else is computed."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from . import spec

MOST = 2**24  # scores, or gathered elements of keys, in memory at a time
TOGETHER = 64  # keys in a block of sequences with one query, which are computed together
#: Matrices of whole multiples of this many elements begin at multiples of 64 bytes. In others the
#: order of MKL's sums depends on where they begin.
ALIGNED = 16


def native(
    q, k, v, cu_q, table, lengths, sinks, slopes, left, right, capped, split, scale, softcap,
    k_scale, v_scale,
):  # fmt: skip
    """The host waits for the GPU to read the lengths."""
    wide = q.to(spec.accumulated(q.dtype)).unflatten(1, (k.shape[2], -1))
    cap = softcap if capped else None
    queries = _Queries(wide, cu_q, lengths, slopes, left, right, scale * k_scale, cap)
    sums = _Sums(wide, v.shape[3], sinks)
    if split:
        _add_blocks(sums, queries, k, v, table, split, queries.any())
    else:
        _add_blocks(sums, queries, k, v, table, TOGETHER, queries.alone())
        _add_sequences(sums, queries, k, v, table)
    y, lse = sums.results()
    return (y * v_scale).to(q.dtype), lse


class _Queries:
    """Queries (tokens, heads of the cache, heads that share one, head size), their sequences and
    positions."""

    def __init__(self, q, cu_q, lengths, slopes, left, right, scale, softcap):
        self.q, self.left, self.right, self.scale, self.softcap = q, left, right, scale, softcap
        self.slopes = None if slopes is None else slopes.to(q.dtype).view(1, *q.shape[1:3], 1)
        self.starts, self.lengths = cu_q.tolist(), lengths.tolist()
        sequences = torch.arange(lengths.shape[0], device=q.device)
        self.sequence = sequences.repeat_interleave(cu_q.diff().long())
        self.length = lengths.long()[self.sequence]
        row = torch.arange(self.sequence.shape[0], device=q.device)
        self.position = row + (lengths - cu_q[1:]).long()[self.sequence]

    def scores(self, products, col, chosen):
        """(scores, whether they are hidden) of the chosen queries and the keys at `col`, which
        broadcasts, from their products."""
        away = col - self.position[chosen, None]
        hidden = (col >= self.length[chosen, None]).expand_as(away)
        if self.left >= 0:
            hidden = hidden | (away < -self.left)
        if self.right >= 0:
            hidden = hidden | (away > self.right)
        z = products * self.scale
        if self.softcap is not None:
            z = torch.tanh(z / self.softcap) * self.softcap
        if self.slopes is not None:
            z = z - self.slopes * away.abs()[:, None, None]
        return z.masked_fill(hidden[:, None, None], -torch.inf), hidden

    def any(self):
        return torch.ones_like(self.sequence, dtype=torch.bool)

    def alone(self):
        """Whether a query is the only one of its sequence."""
        counts = torch.bincount(self.sequence, minlength=len(self.lengths))
        return (counts == 1)[self.sequence]

    def that_see(self, first: int, end: int):
        """Whether a query sees any of the keys from `first` to `end`."""
        last = self.length
        if self.right >= 0:
            last = torch.minimum(last, self.position + self.right + 1)
        seen = last > first
        if self.left >= 0:
            seen &= self.position - self.left < end
        return seen


class _Sums:
    """Of each query and head: the maximum of the scores so far, the sum of exponentials relative to
    it, and that of the weighted values. Every operation is rounded alone: fused in vectors and not
    in their remainder, bits would depend on the place."""

    def __init__(self, q, dv: int, sinks):
        self.top = q.new_full(q.shape[:3], -torch.inf)
        if sinks is not None:
            self.top[:] = sinks.to(q.dtype).view(q.shape[1:3])
        self.total = (self.top > -torch.inf).to(q.dtype)
        self.values = q.new_zeros(*q.shape[:3], dv)

    def add(self, chosen, z, values, product) -> None:
        """Keys with scores z for the chosen queries; product(weights, values) sums values."""
        top = z.amax(-1)
        e = torch.exp(z - _finite(top).unsqueeze(-1))
        higher = torch.maximum(self.top[chosen], top)
        old, new = (torch.exp(t - _finite(higher)) for t in (self.top[chosen], top))
        summed = product(e, values)[..., : self.values.shape[-1]]
        self.top[chosen] = higher
        self.total[chosen] = self.total[chosen] * old + e.sum(-1) * new
        self.values[chosen] = self.values[chosen] * old[..., None] + summed * new[..., None]

    def results(self):
        """(y, lse)."""
        y = self.values / self.total.masked_fill(self.total == 0, 1.0).unsqueeze(-1)
        return y.flatten(1, 2), (self.top + self.total.log()).flatten(1).t().contiguous()


def _finite(top):
    return top.masked_fill(top == -torch.inf, 0.0)


def _add_sequences(sums, queries, k, v, table) -> None:
    """All keys of a sequence at a time, for sequences with several queries."""
    q, page = queries.q, k.shape[1]
    for b, m in enumerate(queries.lengths):
        first, end = queries.starts[b : b + 2]
        if m == 0 or end - first < 2:
            continue
        at = spec.slots_of(table[b], m, page)
        keys, values = (t[at // page, at % page].transpose(0, 1).to(q.dtype) for t in (k, v))
        col = torch.arange(m, device=q.device)
        step = max(1, MOST // (q.shape[1] * q.shape[2] * m))
        for start in range(first, end, step):
            chosen = slice(start, min(start + step, end))
            z, _ = queries.scores(_shared_product(q[chosen], keys.mT), col, chosen)
            sums.add(chosen, z, values, _shared_product)


def _shared_product(a, b):
    """(n, groups, heads, K) times (groups, K, N): (n, groups, heads, N)."""
    n, _, heads, _ = a.shape
    return (a.transpose(0, 1).flatten(1, 2) @ b).unflatten(1, (n, heads)).transpose(0, 1)


def _add_blocks(sums, queries, k, v, table, split: int, which) -> None:
    """Blocks of `split` keys, in their order, for the queries in the mask `which`."""
    q, page = _padded(queries.q), k.shape[1]
    place = torch.arange(split + -split % ALIGNED, device=q.device)
    step = max(1, MOST // (q.shape[1] * len(place) * max(q.shape[3], v.shape[3])))
    for first in range(0, max(queries.lengths, default=0), split):
        col = (first + place).masked_fill(place >= split, 2**31)
        seen = which & queries.that_see(first, first + split)
        for chosen in seen.nonzero().squeeze(1).split(step):
            stored = col < queries.length[chosen, None]
            at = torch.where(stored, col, 0)
            pages = table[queries.sequence[chosen, None], at // page].long()
            keys, values = (_gathered(t[pages, at % page], q) for t in (k, v))
            z, hidden = queries.scores(_product(q[chosen], keys.mT), col, chosen)
            values = values.masked_fill(hidden[:, None, :, None], 0.0)
            sums.add(chosen, z, values, _product)


def _gathered(t, q):
    """(n, groups, keys, head size), aligned and contiguous also where one of the sizes is 1."""
    return _padded(t.transpose(1, 2).to(q.dtype)).contiguous()


def _padded(t):
    return F.pad(t, (0, -t.shape[-1] % ALIGNED))


def _product(a, b):
    """(n, groups, heads, K) times (n, groups, K, N), each pair of matrices alone: there are two at
    least, because threads share the rows of a single one."""
    pairs = [t.flatten(0, 1) for t in (a, b)]
    if pairs[0].shape[0] == 1:
        pairs = [t.expand(2, -1, -1) for t in pairs]
    return torch.bmm(*pairs)[: a.shape[0] * a.shape[1]].unflatten(0, a.shape[:2])
