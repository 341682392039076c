"""Decoding with a contiguous cache: the new token of each sequence is stored and attends.

The cache holds keys and values of S positions for each sequence b and each of G heads, of which
`lengths[b]` are occupied. The new token's k and v are written to position lengths[b], and its query
attends to all positions up to and including that one:

    y = softmax(scale q k^T) v,    query head h with the cache's head h // (H / G)
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.rounding import U, root_levels

F32, F16, BF16 = FLOATS

# Shapes (B, H, D). `g`: heads of the cache, `s`: its positions; `full`: all but the last are
# occupied.
BENCH = (
    ((1, 12, 64), {"g": 12, "s": 1024}, "GPT-2 124M"),
    ((8, 12, 64), {"g": 12, "s": 1024}, "GPT-2 124M"),
    ((1, 32, 128), {"g": 8, "s": 2048}, "Llama 3 8B"),
    ((16, 32, 128), {"g": 8, "s": 8192}, "Llama 3 8B"),
    ((64, 14, 64), {"g": 2, "s": 2048}, "Qwen2.5 0.5B"),
)
CASES = (
    *(
        c
        for d in (BF16, F16, F32)
        for c in (
            case((3, 4, 64), d, g=2, s=70),
            case((2, 3, 128), d, g=3, s=200),
            case((2, 12, 40), d, g=2, s=33),
            case((1, 2, 8), d, g=2, s=1),
            case((0, 4, 16), d, g=4, s=16),
        )
    ),
    *(case((2, 4, 32), BF16, g=2, s=40, values=v) for v in ("large", "nan", "inf")),
    *(case((2, 4, 32), BF16, g=2, s=40, layout=x) for x in ("sliced", "permuted", "offset")),
    case((1, 20, 256), BF16, g=4, s=300),
    case((2, 2, 33), F32, g=1, s=20),
    *(case(shape, BF16, use="bench", label=label, **more) for shape, more, label in BENCH),
)


def reference(q, k, v, k_cache, v_cache, lengths, scale):
    for new, cache in ((k, k_cache), (v, v_cache)):
        store(new, cache, lengths)
    s = torch.einsum("bgrd,bgsd->bgrs", q.unflatten(1, (k.shape[1], -1)), k_cache)
    seen = visible(k_cache, lengths)
    weights = (s * scale).masked_fill(~seen, -torch.inf).softmax(-1)
    values = v_cache.masked_fill(~seen.mT, 0.0)
    return torch.einsum("bgrs,bgsd->bgrd", weights, values).flatten(1, 2)


def store(new, cache, lengths):
    """Write new keys or values (B, G, D) to position lengths[b] of (B, G, S, D)."""
    at = lengths.view(-1, 1, 1, 1).expand(*new.shape[:2], 1, new.shape[2])
    cache.scatter_(2, at, new.unsqueeze(2))


def visible(cache, lengths):
    """(B, 1, 1, S): the positions to which the new token attends."""
    at = torch.arange(cache.shape[2], device=cache.device)
    return at <= lengths.view(-1, 1, 1, 1)


def inputs(c: Case, device: str):
    b, _, d = c.shape
    g, s = c.param("g"), c.param("s")
    plain = replace(c, shape=(b, g, s, d), values="normal", layout="contiguous")
    k_cache, v_cache = (tensor(plain, name, device) for name in ("k_cache", "v_cache"))
    return {
        "q": tensor(c, "q", device),
        "k": tensor(c, "k", device, shape=(b, g, d)),
        "v": tensor(c, "v", device, shape=(b, g, d)),
        "k_cache": k_cache,
        "v_cache": v_cache,
        "lengths": _lengths(c, b, s, device),
        "scale": d**-0.5,
    }


def _lengths(c: Case, b: int, s: int, device: str):
    """Between 0 and s - 1, where the first is 0 and the last s - 1; s - 1 for bench cases."""
    lengths = torch.empty(b, dtype=torch.int64, device=device)
    if device != "meta" and b:
        draw = generator(c.seed + 17, device)
        lengths.copy_(torch.randint(0, s, (b,), generator=draw, device=device))
        if c.use == "bench":
            lengths.fill_(s - 1)
        elif b > 1:
            lengths[0], lengths[-1] = 0, s - 1
    return lengths


def outputs(q, k, v, k_cache, v_cache, lengths, scale):
    return (TensorSpec.contiguous(q.shape, q.dtype),)


def cost(q, k, v, k_cache, v_cache, lengths, scale):
    """The cost if every sequence is as long as the cache."""
    products = 4 * q.numel() * k_cache.shape[2]
    reads = q.nbytes, k.nbytes, v.nbytes, k_cache.numel() * k.itemsize, v_cache.numel() * v.itemsize
    return Cost(
        (*reads, lengths.nbytes), (q.nbytes, k.nbytes, v.nbytes), products,
        {SHORT[q.dtype]: products},
    )  # fmt: skip


def noise(q, k, v, k_cache, v_cache, lengths, scale):
    """The noise of y: the error of a weight consists of that of its score and, in 16 bits, of its
    rounding. The caches contain exact copies."""
    wide, keys, values = (t.double() for t in (q, k_cache, v_cache))
    for new, cache in ((k, keys), (v, values)):
        store(new.double(), cache, lengths)
    groups, seen = wide.unflatten(1, (k.shape[1], -1)), visible(keys, lengths)
    s = (torch.einsum("bgrd,bgsd->bgrs", groups, keys) * scale).masked_fill(~seen, -torch.inf)
    size = torch.einsum("bgrd,bgsd->bgrs", groups.square(), keys.square()).sqrt() * scale
    u = torch.finfo(q.dtype).eps if q.dtype.itemsize == 2 else 0.0
    each = U * root_levels(q.shape[2]) * size + 2 * U * s.abs() + u + U * root_levels(s.shape[-1])
    erring = (s.softmax(-1) * each).masked_fill(~seen, 0.0).square()
    of_y = torch.einsum("bgrs,bgsd->bgrd", erring, values.masked_fill(~seen.mT, 0.0).square())
    of_y = of_y.sqrt().flatten(1, 2).nan_to_num(0, 0, 0)
    return of_y, torch.zeros_like(keys), torch.zeros_like(values)


OPERATOR = Operator(
    name="attention_with_kv_cache",
    schema="(Tensor q, Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor lengths,"
    " float scale) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="Dao et al., Flash-Decoding, 2023; flash_attn_with_kvcache of FlashAttention",
)
