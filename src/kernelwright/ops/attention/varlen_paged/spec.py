"""Attention of packed queries over keys in pages: the mathematics.

Sequence b has queries cu_q[b] to cu_q[b + 1] of q, and `lengths[b]` keys in a cache of pages: token
t is in slot t % page of the page in column t // page of the sequence's row of the table. Positions,
windows, soft caps, slopes and sinks are those of attention_varlen, with

    z = scale k_scale q k,    y = v_scale sum(exp(s) v) / (sum(exp(s)) + exp(sink))

Queries after the last sequence see no key.

If `split` is above 0, the keys of a sequence are divided into blocks of `split` from position 0 on.
The exact result is the same; what a rung then promises is that the bits of a query's result depend
on nothing but the query, the keys that it sees, and `split`. Each block has a maximum m, a sum l of
exponentials and a sum a of weighted values. Blocks are merged in their order, beginning with those
of the sink,

    m' = max(m1, m2),    l' = l1 exp(m1 - m') + l2 exp(m2 - m'),    a' likewise

A block of which a query sees nothing changes neither m', l' nor a', so it may be left out.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.ops.attention.paged.spec import CACHES, SCALE_8, quantized
from kernelwright.ops.attention.sdpa.spec import accumulated
from kernelwright.ops.attention.varlen import spec as varlen

F32, F16, BF16 = FLOATS

# Shapes (tokens, H, D) of q. `lengths`: queries of each sequence; `keys`: its keys, the same number
# if they are not given; `hk`: heads of the cache; `page`: its page size. Instead of `lengths`:
# `batch` sequences of `s` keys and equally many queries, and one of `piece` queries on `s` keys.
MIXED = {"lengths": (1, 9, 0, 3, 1), "keys": (70, 20, 5, 3, 1), "hk": 2}
OPTIONS = (
    {"right": 0},
    {"right": 0, "split": 32},
    {"right": 0, "left": 17, "split": 16},
    {"right": 0, "left": 9, "softcap": 2.0},
    {"right": 0, "sinks": True, "split": 32},
    {"left": 4, "right": 3},
    {"slopes": True, "softcap": 5.0, "sinks": True},
)
CASES = (
    *(case((14, 4, 64), d, **MIXED, page=16, **o) for d in (BF16, F32) for o in OPTIONS),
    *(case((14, 6, 40), d, **{**MIXED, "hk": 1}, page=5, right=0) for d in FLOATS),
    *(
        case((12, 8, 64), d, lengths=(3, 9), keys=(40, 90), hk=2, page=16, right=0, cache=x, **o)
        for d, x, o in (
            (BF16, "e4m3", {}), (BF16, "e5m2", {"split": 32}), (BF16, "int8", {}),
            (F16, "e4m3", {"split": 32}), (F16, "int8", {}), (F32, "int8", {"split": 32}),
        )
    ),
    case((4, 2, 32), BF16, lengths=(1,) * 4, keys=(0, 64, 17, 65), hk=1, page=64),
    case((8, 4, 32), F16, lengths=(5, 3), keys=(2, 3), hk=2, page=16, right=0),
    case((8, 4, 32), F16, lengths=(5, 3), keys=(9, 3), hk=4, page=16, right=0),
    *(
        case((24, 2, 32), BF16, lengths=(24,), hk=2, page=16, right=0, layout=x)
        for x in ("sliced", "permuted", "offset")
    ),
    *(
        case((24, 2, 32), BF16, lengths=(12, 12), hk=2, page=16, right=0, values=v)
        for v in ("large", "nan")
    ),
    case((5, 40, 64), BF16, lengths=(2, 3), keys=(40, 3), hk=1, page=16, right=0),
    case((5, 80, 16), BF16, lengths=(2, 3), keys=(40, 3), hk=1, page=1, right=0),
    case((0, 2, 32), BF16, lengths=(0,), keys=(7,), hk=2, page=16),
    case((71, 8, 128), BF16, lengths=(70, 1), keys=(400, 300), hk=2, page=16, right=0),
    *(
        case((tokens, 32, 128), BF16, use="bench", label=label, hk=8, page=16, right=0, **more)
        for tokens, label, more in (
            (64, "decoding", {"batch": 64, "s": 2048}),
            (64, "decoding, fixed splits", {"batch": 64, "s": 2048, "split": 256}),
            (1, "decoding", {"batch": 1, "s": 32768}),
            (160, "verifying 5 tokens", {"batch": 32, "s": 4096}),
            (512, "decoding and a piece", {"batch": 64, "s": 4096, "piece": 448}),
            (512, "the same, fixed splits", {"batch": 64, "s": 4096, "piece": 448, "split": 256}),
            (2048, "a piece of a prompt", {"batch": 1, "s": 16384}),
            (8192, "a prompt", {"batch": 1, "s": 8192}),
            (8192, "a prompt, fixed splits", {"batch": 1, "s": 8192, "split": 256}),
        )
    ),
)  # fmt: skip


def reference(
    q, k, v, cu_q, table, lengths, sinks, slopes, left, right, capped, split, scale, softcap,
    k_scale, v_scale,
):  # fmt: skip
    keys, values, ends = packed(q, k, v, table, lengths, v_scale)
    return varlen.reference(
        q, keys, values, queries_to_the_end(q, cu_q), ends, sinks, slopes, 0, 0, left, right,
        capped, scale * k_scale, softcap,
    )  # fmt: skip


def packed(q, k, v, table, lengths, v_scale):
    """Keys and values of all sequences, one after the other, in q's dtype, and where each sequence
    begins; at last one without keys, to which the queries after the last sequence belong."""
    counts = [*lengths.tolist(), 0]
    slots = [slots_of(table[b], n, k.shape[1]) for b, n in enumerate(counts[:-1])]
    at = torch.cat(slots) if slots else table.new_empty(0, dtype=torch.int64)
    keys, values = (t[at // k.shape[1], at % k.shape[1]].to(q.dtype) for t in (k, v))
    ends = torch.tensor([0, *counts], device=q.device).cumsum(0)
    return keys, values * v_scale, ends


def slots_of(pages, length: int, page: int):
    """Slots of the tokens of one sequence, counted across pages. Entries of the table after its
    last page may have any value."""
    first = pages[: -(-length // page)].long() * page
    return (first[:, None] + torch.arange(page, device=pages.device)).flatten()[:length]


def queries_to_the_end(q, cu_q):
    return torch.cat((cu_q, cu_q.new_full((1,), q.shape[0])))


def inputs(c: Case, device: str):
    _, h, d = c.shape
    lengths, keys = _sequences(c)
    hk, page = c.param("hk"), c.param("page")
    if h % hk:
        raise ValueError(f"hk: {hk} heads of keys do not divide {h} heads of queries")
    kind, softcap = c.param("cache"), c.param("softcap", 0.0)
    each = -(-max(keys) // page)
    shape = (len(keys) * each + 1, page, hk, d)
    of_8 = SCALE_8.get(kind, 1.0)

    def heads(name: str):
        return tensor(c, name, device, shape=(h,), dtype=F32) if c.param(name) else None

    k, v = (_cache(c, name, shape, kind, device) for name in ("k", "v"))
    slopes = heads("slopes")
    return {
        "q": tensor(c, "q", device, shape=(sum(lengths), h, d)),
        "k": k,
        "v": v,
        "cu_q": _integers([sum(lengths[:i]) for i in range(len(lengths) + 1)], device),
        "table": _table(c, len(keys), each, device),
        "lengths": _integers(keys, device),
        "sinks": heads("sinks"),
        "slopes": None if slopes is None else slopes.abs(),
        "left": c.param("left", -1),
        "right": c.param("right", -1),
        "capped": softcap > 0,
        "split": c.param("split", 0),
        "scale": d**-0.5,
        "softcap": softcap,
        "k_scale": of_8,
        "v_scale": of_8,
    }


def _sequences(c: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Queries and keys of each sequence."""
    lengths = c.param("lengths")
    if lengths is None:
        batch, piece = c.param("batch"), c.param("piece", 0)
        lengths = ((c.shape[0] - piece) // batch,) * batch + ((piece,) if piece else ())
        return lengths, (c.param("s"),) * len(lengths)
    return lengths, c.param("keys", lengths)


def _cache(c: Case, name: str, shape, kind: str | None, device: str):
    plain = replace(c, shape=shape, values="normal", layout="contiguous")
    t = tensor(plain, name, device)
    return t if kind is None else quantized(t, SCALE_8[kind], CACHES[kind])


def _table(c: Case, sequences: int, each: int, device: str):
    """Pages in random order."""
    table = torch.empty((sequences, each), dtype=torch.int32, device=device)
    if device != "meta":
        draw = generator(c.seed + 17, device)
        order = torch.randperm(table.numel(), generator=draw, device=device)
        table.copy_(order.view(table.shape))
    return table


def _integers(numbers, device: str):
    if device == "meta":
        return torch.empty(len(numbers), dtype=torch.int32, device=device)
    return torch.tensor(numbers, dtype=torch.int32, device=device)


def outputs(q, k, v, **others):
    tokens, h, _ = q.shape
    lse = TensorSpec.contiguous((h, tokens), accumulated(q.dtype))
    return TensorSpec.contiguous((tokens, h, v.shape[3]), q.dtype), lse


def cost(q, k, v, table, left, right, **others):
    """The cost if every sequence fills its row of the table and has as many queries as the
    others."""
    sequences, keys = max(table.shape[0], 1), table.shape[1] * k.shape[1]
    queries = cdiv(q.shape[0], sequences)
    pairs = varlen.pairs(q, queries, keys, left, right)
    products = 2 * q.shape[1] * pairs * (q.shape[2] + v.shape[3])
    read = sequences * (keys if left < 0 else min(keys, left + queries))
    of_cache = [read * t.shape[2] * t.shape[3] * t.dtype.itemsize for t in (k, v)]
    y, lse = outputs(q, k, v)
    return Cost(
        (*of_cache, q.nbytes, table.nbytes), (y.nbytes, lse.nbytes), products,
        {SHORT[q.dtype]: products},
    )  # fmt: skip


def noise(
    q, k, v, cu_q, table, lengths, sinks, slopes, left, right, capped, split, scale, softcap,
    k_scale, v_scale,
):  # fmt: skip
    """That of attention_varlen: the partial results of splits are float32, and few."""
    wide = q.double()
    keys, values, ends = packed(wide, k, v, table, lengths, v_scale)
    return varlen.noise(
        q, keys, values, queries_to_the_end(q, cu_q), ends, sinks, slopes, 0, 0, left, right,
        capped, scale * k_scale, softcap,
    )  # fmt: skip


def sharding(args, results):
    """Over heads, if each head of q has its own head in the cache."""
    if args["q"].shape[1] == args["k"].shape[2] > 1:
        of_heads = {name: 0 for name in ("sinks", "slopes") if args[name] is not None}
        whole = dict.fromkeys(("cu_q", "table", "lengths"))
        yield {"q": 1, "k": 2, "v": 2, **whole, **of_heads, "y": 1, "lse": 0}


OPERATOR = Operator(
    name="attention_varlen_paged",
    schema="(Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor table, Tensor lengths,"
    " Tensor? sinks, Tensor? slopes, int left, int right, bool capped, int split, float scale,"
    " float softcap, float k_scale, float v_scale) -> (Tensor y, Tensor lse)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    contiguous=("cu_q", "lengths", "sinks", "slopes"),
    noise=noise,
    sharding=sharding,
    source="Dao, FlashAttention-2, arXiv:2307.08691; Kwon et al., PagedAttention,"
    " arXiv:2309.06180; Dao et al., Flash-Decoding, 2023",
)
