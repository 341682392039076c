"""Error analysis of linear attention: how much the results of correct rungs may differ.

A term a_i b_j c_j of a result has rounding errors of float32 in the sum over the head size, in the
sum over tokens, and in its decay, where rounding of the log contributes |d| exp(d) <= exp(d / 2).
If products have 16-bit operands, weights within a chunk, decayed rows of k and states are rounded
to 16 bits. All these errors are independent, so the error of a sum is the root of the sum of
squares.
"""

from __future__ import annotations

from kernelwright.contract.rounding import U, root_levels
from kernelwright.ops.attention.sdpa.spec import rounding

from . import chunks


def of_results(dtype, a, b, c, g, state):
    """Errors of y and of the final state of linear attention for a, b, c in float64."""
    (y, end), (y16, end16) = (_squares(a, b, c, g, state, power) for power in (1, 2))
    u, r = _units(dtype, a)
    return tuple((u * u * x + r * r * x16).sqrt() for x, x16 in ((y, y16), (end, end16)))


def of_decay(dtype, gy, gfinal, q, k, v, g, state):
    """Errors of the gradient of log decay, (B, H, L)."""
    u, r = _units(dtype, q)
    squares = (_decay_squares(gy, gfinal, q, k, v, g, state, power) for power in (1, 2))
    return sum(unit * unit * x for unit, x in zip((u, r), squares, strict=True)).sqrt()


def _units(dtype, a) -> tuple[float, float]:
    """Relative errors of a term: from float32 arithmetic, and from 16-bit operands."""
    levels = root_levels(a.shape[-1]) + root_levels(a.shape[2])
    return U * (6 + levels), 4 * rounding(dtype)


def _squares(a, b, c, g, state, power):
    """Sums of squares of the terms of y and of the final state; of decay, its `power`."""
    sums = chunks.summed(g, a, chunks.CHUNK)
    length = a.shape[2]
    a, b, c = (chunks.pieces(t, chunks.CHUNK) for t in (a, b, c))
    before, end = _states(sums[..., -1], sums[..., -1:] - sums, b, c, state, power)
    past = (a.square() * _decay(power * sums)) @ before
    y = chunks.down(chunks.within(power * sums, _both(a, b)), c.square()) + past
    return chunks.whole(y, length).nan_to_num(0, 0, 0), end.nan_to_num(0, 0, 0)


def _decay_squares(gy, gfinal, q, k, v, g, state, power):
    """The same for the gradient of log decay, computed as in `chunks.backward`."""
    sums = chunks.summed(g, q, chunks.CHUNK)
    length = q.shape[2]
    gy, q, k, v = (chunks.pieces(t, chunks.CHUNK) for t in (gy, q, k, v))
    last, rest = sums[..., -1], sums[..., -1:] - sums
    before, _ = _states(last, rest, k, v, state, power)
    turned = (t.flip(2) for t in (last, sums, q, gy))
    after = _states(*turned, gfinal, power)[0].flip(2)
    inside = chunks.within(power * sums, _both(q, k) * _both(gy, v)).tril(-1)
    past_q = (q.square() * _decay(power * sums) * (gy.square() @ before.mT)).sum(-1)
    past_k = (k.square() * _decay(power * rest) * (v.square() @ after.mT)).sum(-1)
    through_keys = chunks.crossed(inside) + chunks.before_each(past_k)
    through_keys = through_keys + past_q.flip(-1).cumsum(-1).flip(-1)
    through = (power * last).exp() * (before * after).sum((-2, -1))
    return (through_keys + through.unsqueeze(-1)).flatten(2)[..., :length].nan_to_num(0, 0, 0)


def _states(last, logs, a, b, first, power):
    """Squares of the states before each chunk and after the last: of their elements, and of the
    terms of each. `logs`: log decay of each token's term."""
    h, end = chunks.carried(last, (a * _decay(logs)).mT @ b, chunks.initial(first, a, b))
    squares = (a.square() * _decay(power * logs)).mT @ b.square()
    more, of_end = chunks.carried(power * last, squares, chunks.initial(first, a, b).square())
    return h.square() + more, end.square() * (power == 1) + of_end


def _both(a, b):
    """Squares of products of rows, and the sums of squares of their terms."""
    return (a @ b.mT).square() + a.square() @ b.square().mT


def _decay(logs):
    return logs.exp().unsqueeze(-1)
