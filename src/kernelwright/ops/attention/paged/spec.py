"""Decoding: the mathematics of attention with a paged cache of keys and values.

A cache is (pages, page size, heads, head size), one for keys and one for values. Token t of a
sequence is in slot t % page of the page in column t // page of the sequence's row of the table. One
query per sequence attends to the `length` tokens that the sequence has so far:

    y = softmax(scale q (k_scale k)^T) (v_scale v),    lse = log(sum(exp(s)))

For a sequence without tokens y = 0 and lse = -inf. `cache_update` writes new tokens to slots, which
are numbered across the pages; a token with a negative slot is skipped. 8-bit caches store x /
scale, rounded.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.rounding import U, root_levels

F32, F16, BF16 = FLOATS
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
CACHES = {"e4m3": E4M3, "e5m2": E5M2, "int8": torch.int8}
SCALE_8 = {"e4m3": 0.01, "e5m2": 0.01, "int8": 0.03}  # scales of the 8-bit caches in cases

# Shapes (B, H, D). `hk`: heads of the cache, `page`: its page size, `s`: longest sequence.
BENCH = (
    ((16, 32, 128), {"hk": 8, "page": 16, "s": 8192}),
    ((16, 32, 128), {"hk": 8, "page": 64, "s": 8192}),
    ((16, 32, 128), {"hk": 8, "page": 8192, "s": 8192}),
    ((16, 32, 128), {"hk": 8, "page": 64, "s": 8192, "cache": "e4m3"}),
    ((16, 32, 128), {"hk": 8, "page": 64, "s": 8192, "cache": "int8"}),
    ((1, 32, 128), {"hk": 8, "page": 64, "s": 8192}),
    ((64, 32, 128), {"hk": 8, "page": 64, "s": 8192}),
    ((64, 16, 64), {"hk": 16, "page": 16, "s": 2048}),
    ((32, 64, 128), {"hk": 1, "page": 64, "s": 8192}),
)
CASES = (
    *(
        c
        for d in (BF16, F16, F32)
        for c in (
            case((3, 4, 64), d, hk=2, page=16, s=70),
            case((2, 8, 128), d, hk=8, page=64, s=200),
            case((2, 6, 40), d, hk=1, page=16, s=33),
            case((2, 2, 32), d, hk=2, page=5, s=19),
            case((1, 4, 16), d, hk=4, page=256, s=256),
            case((0, 4, 16), d, hk=4, page=16, s=16),
        )
    ),
    *(case((3, 8, 64), BF16, hk=2, page=16, s=90, cache=x) for x in CACHES),
    *(case((2, 4, 32), F16, hk=4, page=16, s=40, cache=x) for x in CACHES),
    *(case((2, 4, 32), BF16, hk=2, page=16, s=40, values=v) for v in ("large", "nan", "inf")),
    *(
        case((2, 4, 32), BF16, hk=2, page=16, s=40, layout=x)
        for x in ("sliced", "permuted", "offset")
    ),
    case((2, 40, 64), BF16, hk=1, page=16, s=40),
    case((3, 8, 128), BF16, hk=2, page=16, s=1500),
    *(case(shape, BF16, use="bench", **more) for shape, more in BENCH),
)


def reference(q, k, v, table, lengths, scale, k_scale, v_scale):
    keys, values = (_tokens(t, table, q) for t in (k, v))
    seen = torch.arange(keys.shape[2], device=q.device) < lengths.view(-1, 1, 1)
    s = torch.einsum("bhgd,bhsd->bhgs", q.unflatten(1, (k.shape[2], -1)), keys)
    s = (s.flatten(1, 2) * (scale * k_scale)).masked_fill(~seen, -torch.inf)
    top = s.amax(-1, keepdim=True)
    e = torch.exp(s - top.masked_fill(top == -torch.inf, 0.0))
    total = e.sum(-1, keepdim=True)
    weights = (e / total.masked_fill(total == 0, 1.0)).unflatten(1, (k.shape[2], -1))
    y = torch.einsum("bhgs,bhsd->bhgd", weights, values.masked_fill(~seen.unsqueeze(-1), 0.0))
    return y.flatten(1, 2) * v_scale, (top + total.log()).squeeze(-1)


def _tokens(cache, table, q):
    """(B, heads, tokens, head size) of each sequence, in q's dtype. Kernels do not read table
    entries after a sequence's last page, so these may have any value."""
    pages = cache[table.long().clamp(0, max(cache.shape[0] - 1, 0))]
    return pages.flatten(1, 2).transpose(1, 2).to(q.dtype)


def inputs(c: Case, device: str):
    b, _, d = c.shape
    hk, page, s = c.param("hk"), c.param("page"), c.param("s")
    each = -(-s // page)
    kind = c.param("cache")
    shape = (b * each + 1, page, hk, d)
    k, v = (_cache(c, name, shape, kind, device) for name in ("k", "v"))
    table, lengths = _places(c, b, each, s, device)
    of_8 = SCALE_8.get(kind, 1.0)
    return {
        "q": tensor(c, "q", device),
        "k": k,
        "v": v,
        "table": table,
        "lengths": lengths,
        "scale": d**-0.5,
        "k_scale": of_8,
        "v_scale": of_8,
    }


def _cache(c: Case, name: str, shape, kind: str | None, device: str):
    plain = replace(c, shape=shape, values="normal", layout="contiguous")
    t = tensor(plain, name, device)
    return t if kind is None else quantized(t, SCALE_8[kind], CACHES[kind])


def quantized(t, scale: float, dtype: torch.dtype):
    """t / scale in an 8-bit type, clamped to its largest number."""
    info = torch.iinfo(dtype) if dtype == torch.int8 else torch.finfo(dtype)
    x = t.to(torch.promote_types(t.dtype, torch.float32)) / scale
    x = x.round() if dtype == torch.int8 else x
    return x.clamp(info.min, info.max).to(dtype)


def _places(c: Case, b: int, each: int, s: int, device: str):
    """Pages in random order, and lengths up to s; the length of the first sequence is 0."""
    table = torch.empty((b, each), dtype=torch.int32, device=device)
    lengths = torch.empty(b, dtype=torch.int32, device=device)
    if device != "meta" and b:
        draw = generator(c.seed + 17, device)
        table.copy_(torch.randperm(b * each, generator=draw, device=device).view(b, each))
        lengths.copy_(torch.randint(1, s + 1, (b,), generator=draw, device=device))
        if c.use == "bench":
            lengths.fill_(s)
        elif b > 1:
            lengths[0] = 0
    return table, lengths


def outputs(q, k, v, table, lengths, scale, k_scale, v_scale):
    wide = torch.promote_types(q.dtype, torch.float32)
    return (
        TensorSpec.contiguous((*q.shape[:2], v.shape[3]), q.dtype),
        TensorSpec.contiguous(q.shape[:2], wide),
    )


def cost(q, k, v, table, lengths, scale, k_scale, v_scale):
    """The cost if every sequence fills its row of the table."""
    tokens = table.numel() * k.shape[1]
    of_cache = [tokens * t.shape[2] * t.shape[3] * t.dtype.itemsize for t in (k, v)]
    products = 2 * tokens * q.shape[1] * (k.shape[3] + v.shape[3])
    y, lse = outputs(q, k, v, table, lengths, scale, k_scale, v_scale)
    return Cost(
        (*of_cache, q.nbytes, table.nbytes), (y.nbytes, lse.nbytes), products,
        {SHORT[q.dtype]: products},
    )  # fmt: skip


def noise(q, k, v, table, lengths, scale, k_scale, v_scale):
    """As in attention: the error of a weight is that of its score and, in 16 bits, its rounding."""
    wide = q.double()
    keys, values = (_tokens(t, table, wide) for t in (k, v))
    _, lse = reference(wide, k, v, table, lengths, scale, k_scale, v_scale)
    groups = wide.unflatten(1, (k.shape[2], -1))
    s = torch.einsum("bhgd,bhsd->bhgs", groups, keys) * (scale * k_scale)
    size = torch.einsum("bhgd,bhsd->bhgs", groups.square(), keys.square()).sqrt()
    seen = torch.arange(keys.shape[2], device=q.device) < lengths.view(-1, 1, 1, 1)
    total = lse.masked_fill(lse == -torch.inf, 0.0).unflatten(1, (k.shape[2], -1)).unsqueeze(-1)
    weights = torch.exp(s - total).masked_fill(~seen, 0.0)
    u = torch.finfo(q.dtype).eps if q.dtype.itemsize == 2 else 0.0
    each = U * root_levels(q.shape[2]) * size * scale * k_scale + 2 * U * s.abs() + u
    each = each + U * root_levels(s.shape[-1])
    squares = torch.einsum("bhgs,bhsd->bhgd", (weights * each).square(), values.square())
    of_lse = (weights * each).square().sum(-1).sqrt().flatten(1, 2) + 2 * U * lse.abs()
    of_y = squares.sqrt().flatten(1, 2) * v_scale
    return of_y.nan_to_num(0, 0, 0), of_lse.nan_to_num(0, 0, 0)


def sharding(args, results):
    """Over sequences; over heads if each head of q has its own head in the cache."""
    if args["q"].shape[0] > 1:
        yield {"q": 0, "k": None, "v": None, "table": 0, "lengths": 0, "y": 0, "lse": 0}
    if args["q"].shape[1] == args["k"].shape[2] > 1:
        yield {"q": 1, "k": 2, "v": 2, "table": None, "lengths": None, "y": 1, "lse": 1}


OPERATOR = Operator(
    name="paged_attention",
    schema="(Tensor q, Tensor k, Tensor v, Tensor table, Tensor lengths, float scale,"
    " float k_scale, float v_scale) -> (Tensor y, Tensor lse)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    sharding=sharding,
    source="Kwon et al., PagedAttention, arXiv:2309.06180; Dao et al., Flash-Decoding, 2023",
)

# writing

# Shapes (tokens, heads, head size).
UPDATE_CASES = (
    *(case((9, 2, 64), d, page=16) for d in (BF16, F16, F32)),
    *(case((9, 3, 40), d, page=5) for d in (BF16, F32)),
    *(case((7, 2, 32), BF16, page=16, cache=x) for x in CACHES),
    *(case((7, 2, 32), F32, page=16, cache=x) for x in CACHES),
    *(case((7, 2, 32), F16, page=16, layout=x) for x in ("sliced", "permuted", "offset")),
    *(case((7, 2, 32), BF16, page=16, values=v) for v in ("large", "nan", "inf")),
    case((0, 2, 32), BF16, page=16),
    case((16, 8, 128), BF16, use="bench", page=64, label="a decoding step"),
    case((8192, 8, 128), BF16, use="bench", page=64, label="a prompt"),
    case((8192, 8, 128), BF16, use="bench", page=64, cache="e4m3", label="a prompt"),
)


def update_reference(keys, values, k, v, slots, kind, k_scale, v_scale):
    kept = slots >= 0
    page, slot = slots[kept] // k.shape[1], slots[kept] % k.shape[1]
    k[page, slot] = stored(keys[kept], k, kind, k_scale)
    v[page, slot] = stored(values[kept], v, kind, v_scale)


def stored(t, cache, kind: str, scale: float):
    """New tokens in the dtype of the cache; for float8 types, their bits."""
    return quantized(t, scale, CACHES[kind]).view(cache.dtype) if kind else t.to(cache.dtype)


def update_inputs(c: Case, device: str):
    n, h, d = c.shape
    page, kind = c.param("page"), c.param("cache")
    pages = -(-(n + 3) // page) + 1
    slots = torch.empty(n, dtype=torch.int64, device=device)
    if device != "meta" and n:
        draw = generator(c.seed + 3, device)
        slots.copy_(torch.randperm(pages * page, generator=draw, device=device)[:n])
        if c.use != "bench":
            slots[n // 2] = -1
    k, v = (_cache(c, name, (pages, page, h, d), kind, device) for name in ("k", "v"))
    return {
        "keys": tensor(c, "keys", device),
        "values": tensor(c, "values", device),
        "k": bits(k),
        "v": bits(v),
        "slots": slots,
        "kind": kind or "",
        "k_scale": SCALE_8.get(kind, 1.0),
        "v_scale": SCALE_8.get(kind, 1.0),
    }


def bits(cache):
    """float8 elements as bits, which PyTorch can compare and copy on every device."""
    return cache.view(torch.uint8) if cache.dtype in (E4M3, E5M2) else cache


def update_cost(keys, values, k, v, slots, kind, k_scale, v_scale):
    writes = tuple(t.numel() * c.dtype.itemsize for t, c in ((keys, k), (values, v)))
    return Cost((keys.nbytes, values.nbytes, slots.nbytes), writes, keys.numel() + values.numel())


UPDATE = Operator(
    name="reshape_and_cache",
    schema="(Tensor keys, Tensor values, Tensor(a!) k, Tensor(b!) v, Tensor slots, str kind,"
    " float k_scale, float v_scale) -> ()",
    reference=update_reference,
    inputs=update_inputs,
    cases=UPDATE_CASES,
    cost=update_cost,
    outputs=lambda **args: (),
    layout="any",
    exact=True,
    source="Kwon et al., PagedAttention, arXiv:2309.06180",
)
