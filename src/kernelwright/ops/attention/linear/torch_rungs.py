"""Linear attention in PyTorch: the recurrence, a masked square of scores, chunks."""

from __future__ import annotations

import torch

from . import chunks
from .spec import accumulated


def manual(q, k, v, g, state, want_final, scale):
    """The definition, one token at a time."""
    states, _, (q, k, v), dtype = _recurrence(q, k, v, g, state)
    ys = [(q[:, :, t, None] @ s)[:, :, 0] * scale for t, s in enumerate(states[1:])]
    y = torch.stack(ys, 2) if ys else v[:, :, :0]
    return y.to(dtype), states[-1].clone() if want_final else q.new_empty(0)


def manual_backward(gy, gfinal, q, k, v, g, state, want_final, scale):
    """The recurrence from the last token to the first; the states are saved."""
    types = [t if t is None else t.dtype for t in (q, k, v, g, state)]
    states, decay, (q, k, v), _ = _recurrence(q, k, v, g, state)
    gy = gy.to(q.dtype) * scale
    gs = chunks.initial(gfinal, k, v)
    steps = []
    for t in reversed(range(q.shape[2])):
        gs = gs + q[:, :, t, :, None] * gy[:, :, t, None]
        gq = states[t + 1] @ gy[:, :, t, :, None]
        gk, gv = gs @ v[:, :, t, :, None], k[:, :, t, None] @ gs
        gs = gs * decay[:, :, t]
        gg = (gs * states[t]).sum((-2, -1))
        steps.append((gq[..., 0], gk[..., 0], gv[:, :, 0], gg))
    if steps:
        gq, gk, gv, gg = (torch.stack(x[::-1], 2) for x in zip(*steps, strict=True))
    else:
        gq, gk, gv, gg = q, k, v, q[..., 0]
    return _typed((gq, gk, gv, gg, gs), types)


def quadratic(q, k, v, g, state, want_final, scale):
    """All tokens as one chunk: a square of scores for each head."""
    return _forward(q, k, v, g, state, want_final, scale, q.shape[2])


def quadratic_backward(gy, gfinal, q, k, v, g, state, want_final, scale):
    return _backward(gy, gfinal, q, k, v, g, state, scale, q.shape[2])


def native(q, k, v, g, state, want_final, scale):
    return _forward(q, k, v, g, state, want_final, scale, chunks.CHUNK)


def native_backward(gy, gfinal, q, k, v, g, state, want_final, scale):
    return _backward(gy, gfinal, q, k, v, g, state, scale, chunks.CHUNK)


def _forward(q, k, v, g, state, want_final, scale, size):
    wide = accumulated(q.dtype)
    y, end = chunks.forward(*(t.to(wide) for t in (q, k, v)), g, state, scale, size)
    return y.to(q.dtype), end if want_final else end.new_empty(0)


def _backward(gy, gfinal, q, k, v, g, state, scale, size):
    wide = accumulated(q.dtype)
    gradients = chunks.backward(
        gy.to(wide), gfinal, *(t.to(wide) for t in (q, k, v)), g, state, scale, size
    )
    return _typed(gradients, [t if t is None else t.dtype for t in (q, k, v, g, state)])


def _typed(gradients, types):
    """Gradients in the dtypes of their arguments; empty tensors for absent arguments."""
    pairs = zip(gradients, types, strict=True)
    return tuple(t.new_empty(0, dtype=types[0]) if d is None else t.to(d) for t, d in pairs)


def _recurrence(q, k, v, g, state):
    """(the states before the first token and after each, decay (B, H, L, 1, 1), operands in the
    dtype of the state, their own dtype)."""
    dtype, wide = q.dtype, accumulated(q.dtype)
    q, k, v = (t.to(wide) for t in (q, k, v))
    decay = q.new_ones(q.shape[:3]) if g is None else g.to(wide).exp()
    decay = decay[..., None, None]
    states = [chunks.initial(state, k, v)]
    for t in range(q.shape[2]):
        states.append(states[-1] * decay[:, :, t] + k[:, :, t, :, None] * v[:, :, t, None])
    return states, decay, (q, k, v), dtype
