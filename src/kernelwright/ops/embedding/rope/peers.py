"""Peers of rope; imported only for timing."""

from __future__ import annotations

from kernelwright.contract import Peer


def _liger(q, k, cos, sin, positions, base, rotary_dim, interleaved):
    from liger_kernel.ops.rope import rope_forward

    return _in_place(rope_forward, q, k, cos, sin, positions, rotary_dim, interleaved)


def _liger_backward(gyq, gyk, cos, sin, positions, base, rotary_dim, interleaved):
    from liger_kernel.ops.rope import rope_backward

    return _in_place(rope_backward, gyq, gyk, cos, sin, positions, rotary_dim, interleaved)


def _in_place(fn, q, k, cos, sin, positions, rotary_dim, interleaved):
    """It rotates (B, T, H, D) in place: on a copy, which each call rotates further."""
    _halves(positions, interleaved)
    q, k, cos, sin = q.clone(), k.clone(), _once(cos), _once(sin)
    return lambda: fn(q, k, cos, sin, rotary_dim=rotary_dim)[:2]


def _transformers(q, k, cos, sin, positions, base, rotary_dim, interleaved):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    _halves(positions, interleaved, rotary_dim == q.shape[-1])
    # in the dtype of the model, with each value twice, as a model's rotary embedding creates them
    cos, sin = (_once(f).repeat(1, 1, 2).to(q.dtype) for f in (cos, sin))
    return lambda: apply_rotary_pos_emb(q, k, cos, sin)


def _once(table):
    """The one row that all batches share."""
    return table[:1] if table.stride(0) == 0 else table


def _halves(positions, interleaved, whole=True):
    if positions is not None or interleaved or not whole:
        raise NotImplementedError("rotates halves by tables only")


PEERS = (
    Peer("liger", "rope", _liger, "liger_kernel"),
    Peer("liger", "rope.backward", _liger_backward, "liger_kernel"),
    Peer("transformers", "rope", _transformers, "transformers"),
)
