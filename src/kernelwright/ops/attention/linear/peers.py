"""Peers of linear attention: chunks in PyTorch, compiled, with both usual sizes; and
flash-linear-attention.

The peers in PyTorch compute products in the inputs' dtype, which is faster, and do not treat
non-finite values specially.
"""

from __future__ import annotations

from functools import partial

import torch

from kernelwright.contract import Peer

from . import chunks


def _compiled(size: int):
    def make(q, k, v, g, state, want_final, scale):
        call = torch.compile(partial(_chunked, size=size), dynamic=False)
        return partial(call, q, k, v, g, state, want_final, scale)

    return make


def _gradients(size: int):
    def make(gy, gfinal, q, k, v, g, state, want_final, scale):
        leaves = [t if t is None else t.detach().requires_grad_() for t in (q, k, v, g, state)]
        y, final = torch.compile(partial(_chunked, size=size), dynamic=False)(
            *leaves, want_final, scale
        )
        results = (y,) if gfinal is None else (y, final)
        given = (gy,) if gfinal is None else (gy, gfinal)
        wanted = [t for t in leaves if t is not None]

        def call():
            gradients = iter(torch.autograd.grad(results, wanted, given, retain_graph=True))
            return tuple(q.new_empty(0) if t is None else next(gradients) for t in leaves)

        return call

    return make


def _chunked(q, k, v, g, state, want_final, scale, size):
    """`chunks.forward` with products in the dtype of q and states in float32."""
    dtype, length = q.dtype, q.shape[2]
    sums = chunks.summed(g, q, size)
    q, k, v = (chunks.pieces(t, size) for t in (q, k, v))
    wide = torch.promote_types(dtype, torch.float32)
    until = chunks.to_end(sums, wide)
    added = ((k * until).to(dtype).mT @ v).to(wide)
    before, end = chunks.carried(sums[..., -1], added, chunks.initial(state, added.mT, added))
    weights = chunks.within(sums, (q @ k.mT).to(wide)).to(dtype)
    y = weights @ v + chunks.to_start(sums, wide) * (q @ before.to(dtype))
    y = (y * scale).to(dtype).flatten(2, 3)[:, :, :length]
    return y, end if want_final else end.new_empty(0)


def _fla(q, k, v, g, state, want_final, scale):
    from fla.ops.simple_gla import chunk_simple_gla

    heads_last = [t.transpose(1, 2) for t in (q, k, v)]
    decay = None if g is None else g.transpose(1, 2)

    def call():
        y, final = chunk_simple_gla(
            *heads_last, decay, scale=scale, initial_state=state, output_final_state=want_final
        )
        return y.transpose(1, 2), final if want_final else q.new_empty(0, dtype=torch.float32)

    return call


PEERS = (
    *(
        peer
        for size in (64, 128)
        for peer in (
            Peer(f"compiled_{size}", "linear_attention", _compiled(size), "torch"),
            Peer(f"compiled_{size}", "linear_attention.backward", _gradients(size), "torch"),
        )
    ),
    Peer("fla", "linear_attention", _fla, "fla"),
)
