"""Attention over packed sequences: the mathematics.

Sequence b has queries cu_q[b] to cu_q[b + 1] of q and keys cu_k[b] to cu_k[b + 1] of k and v. Query
i of n is at position i + m - n and key j of m at position j: the last query and the last key have
the same position. The score of a query at position p and key j is

    z = scale q k,    s = cap tanh(z / cap) - slope |p - j|

without tanh if `capped` is False, and without the last term if there are no slopes. A query sees
key j if p - left <= j <= p + right; -1 means no limit. A sink is an additional score, which belongs
to no key, for each query of a head: it contributes only to the sum of exponentials and to lse,

    y = sum(exp(s) v) / (sum(exp(s)) + exp(sink)),    lse = log of that divisor

In the backward dS is as in attention, dz = dS (1 - tanh^2), and a sink's gradient is
- sum(exp(sink - lse) D) over the queries of its head, with D = sum(gy y).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, root_levels
from kernelwright.ops.attention.sdpa.spec import accumulated, quantum, rounding

F32, F16, BF16 = FLOATS

# Shapes (tokens, H, D) of q. `lengths`: of the sequences; `keys`: those of k and v if they differ.
OPTIONS = (
    {"right": 0},
    {"left": 9},
    {"left": 4, "right": 3},
    {"right": 0, "left": 17, "sinks": True},
    {"right": 0, "softcap": 2.0},
    {"slopes": True},
    {"right": 0, "slopes": True, "softcap": 5.0, "sinks": True},
)
CASES = (
    *(
        case((60, 4, 64), d, lengths=(33, 0, 20, 7), hk=2, **o)
        for d in (BF16, F32)
        for o in OPTIONS
    ),
    *(case((60, 2, 32), d, lengths=(33, 27)) for d in FLOATS),
    case((40, 4, 40), BF16, lengths=(3, 36, 1), keys=(70, 20, 0), right=0),
    case((40, 4, 40), F16, lengths=(3, 36, 1), keys=(70, 50, 9), hk=1, right=0, left=30),
    *(case((24, 2, 32), BF16, lengths=(24,), layout=x) for x in ("sliced", "permuted", "offset")),
    *(case((24, 2, 32), BF16, lengths=(12, 12), values=v) for v in ("large", "nan")),
    case((0, 2, 32), BF16, lengths=(0,)),
    case((400, 2, 128), BF16, lengths=(290, 110), right=0),
    case((400, 2, 64), BF16, lengths=(290, 110), right=0, left=90),
    *(
        case((16384, h, d), BF16, use="bench", label=label, right=0, **more)
        for h, d, label, more in (
            (16, 128, "documents", {"lengths": (4096, 8192, 1024, 3072)}),
            (16, 128, "sliding window", {"lengths": (8192, 8192), "left": 1023}),
            (16, 128, "Gemma 2", {"lengths": (8192, 8192), "softcap": 50.0}),
            (64, 64, "gpt-oss", {"lengths": (8192, 8192), "left": 127, "sinks": True, "hk": 8}),
        )
    ),
)


@dataclass(frozen=True)
class Sequences:
    """Iterates over the sequences of a call; tensors are (heads, tokens, head size)."""

    cu_q: torch.Tensor
    cu_k: torch.Tensor

    def queries(self, t):
        """The parts of a tensor whose first dimension counts queries."""
        return self._split(t, self.cu_q)

    def keys(self, t, heads: int):
        """The parts of k or v, with each head repeated for the heads of q that share it."""
        return [x.repeat_interleave(heads // t.shape[1], 0) for x in self._split(t, self.cu_k)]

    def joined(self, parts, like):
        """The inverse of the split: (tokens, ...) from parts of (heads, tokens, ...)."""
        return torch.cat(parts, 1).transpose(0, 1) if parts else torch.zeros_like(like)

    @staticmethod
    def _split(t, cu):
        ends = cu.tolist()
        return [t[a:b].transpose(0, 1) for a, b in pairwise(ends)]


def reference(
    q, k, v, cu_q, cu_k, sinks, slopes, max_q, max_k, left, right, capped, scale, softcap
):
    of, ys, lses = Sequences(cu_q, cu_k), [], []
    h = q.shape[1]
    for a, b, c in zip(of.queries(q), of.keys(k, h), of.keys(v, h), strict=True):
        s, _ = scores(a, b, slopes, left, right, capped, scale, softcap)
        extra = s.new_full((h, s.shape[1], 1), -torch.inf)
        if sinks is not None:
            extra = sinks.to(s.dtype).view(-1, 1, 1).expand_as(extra)
        s = torch.cat((s, extra), -1)
        top = s.amax(-1, keepdim=True)
        e = torch.exp(s - top.masked_fill(top == -torch.inf, 0.0))
        total = e.sum(-1, keepdim=True)
        ys.append((e / total.masked_fill(total == 0, 1.0))[..., :-1] @ c)
        lses.append((top + total.log()).squeeze(-1))
    lse = torch.cat(lses, 1) if lses else q.new_zeros(h, 0)
    return of.joined(ys, q[..., :1].expand(*q.shape[:2], v.shape[2])), lse


def backward_reference(
    gy, q, k, v, y, lse, cu_q, cu_k, sinks, slopes, max_q, max_k, left, right, capped, scale,
    softcap,
):  # fmt: skip
    of, h = Sequences(cu_q, cu_k), q.shape[1]
    dot = (gy * y).sum(-1)
    parts = [[], [], []]
    rows = (of.queries(t) for t in (q, gy, lse.t(), dot))
    for a, g, least, d, b, c in zip(*rows, of.keys(k, h), of.keys(v, h), strict=True):
        s, slope = scores(a, b, slopes, left, right, capped, scale, softcap)
        weights = torch.exp(s - least.masked_fill(least == -torch.inf, 0.0).unsqueeze(-1))
        dz = weights * (g @ c.mT - d.unsqueeze(-1)) * slope * scale
        parts[0].append(dz @ b)
        parts[1].append(_over_group(dz.mT @ a, k.shape[1]))
        parts[2].append(_over_group(weights.mT @ g, k.shape[1]))
    gq, gk, gv = (of.joined(x, t) for x, t in zip(parts, (q, k, v), strict=True))
    if sinks is None:
        return gq, gk, gv, q.new_empty(0)
    least = lse.masked_fill(lse == -torch.inf, torch.inf)
    return gq, gk, gv, -(torch.exp(sinks.to(lse.dtype).unsqueeze(1) - least) * dot.t()).sum(1)


def scores(a, b, slopes, left, right, capped, scale, softcap):
    """(scores of one sequence, their derivative with respect to the product), -inf for unseen
    keys."""
    z = (a @ b.mT) * scale
    derivative = torch.ones((), dtype=z.dtype, device=z.device)
    if capped:
        t = torch.tanh(z / softcap)
        z, derivative = t * softcap, 1 - t * t
    n, m = z.shape[-2:]
    away = torch.arange(m, device=z.device) - (torch.arange(n, device=z.device) + m - n)[:, None]
    if slopes is not None:
        z = z - slopes.to(z.dtype).view(-1, 1, 1) * away.abs()
    hidden = torch.zeros_like(away, dtype=torch.bool)
    if left >= 0:
        hidden = hidden | (away < -left)
    if right >= 0:
        hidden = hidden | (away > right)
    return z.masked_fill(hidden, -torch.inf), derivative


def _over_group(t, heads: int):
    return t if t.shape[0] == heads else t.unflatten(0, (heads, -1)).sum(1)


def inputs(c: Case, device: str):
    _, h, d = c.shape
    lengths, hk = c.param("lengths"), c.param("hk", h)
    if h % hk:
        raise ValueError(f"hk: {hk} heads of keys do not divide {h} heads of queries")
    keys = c.param("keys", lengths)
    total = sum(keys)
    softcap = c.param("softcap", 0.0)

    def heads(name: str):
        return tensor(c, name, device, shape=(h,), dtype=F32) if c.param(name) else None

    k, v = (_like_keys(c, name, (total, hk, d), device) for name in ("k", "v"))
    slopes = heads("slopes")
    return {
        "q": tensor(c, "q", device, shape=(sum(lengths), h, d)),
        "k": k,
        "v": v,
        "cu_q": _ends(lengths, device),
        "cu_k": _ends(keys, device),
        "sinks": heads("sinks"),
        "slopes": None if slopes is None else slopes.abs(),
        "max_q": max(lengths),
        "max_k": max(keys),
        "left": c.param("left", -1),
        "right": c.param("right", -1),
        "capped": softcap > 0,
        "scale": d**-0.5,
        "softcap": softcap,
    }


def _like_keys(c: Case, name: str, shape, device: str):
    return tensor(replace(c, shape=shape, values="normal"), name, device)


def _ends(lengths, device: str):
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    if device == "meta":
        return torch.empty(len(ends), dtype=torch.int32, device=device)
    return torch.tensor(ends, dtype=torch.int32, device=device)


def backward_inputs(c: Case, device: str):
    args = inputs(c, device)
    rest = {n: args.pop(n) for n in ("q", "k", "v")}
    if device == "meta":
        y = torch.empty((*c.shape[:2], rest["v"].shape[2]), dtype=c.dtype, device=device)
        lse = torch.empty(c.shape[1::-1], dtype=accumulated(c.dtype), device=device)
    else:
        y, lse = reference(**{n: t.double() for n, t in rest.items()}, **args)
    gy = tensor(c, "gy", device) if y.shape == c.shape else torch.randn_like(y)
    saved = {"y": y.to(c.dtype).contiguous(), "lse": lse.to(accumulated(c.dtype))}
    return {"gy": gy, **rest, **saved, **args}


def outputs(q, k, v, **others):
    tokens, h, _ = q.shape
    lse = TensorSpec.contiguous((h, tokens), accumulated(q.dtype))
    return TensorSpec.contiguous((tokens, h, v.shape[2]), q.dtype), lse


def backward_outputs(gy, q, k, v, sinks, **others):
    of_sinks = TensorSpec.contiguous((0,), q.dtype)
    if sinks is not None:
        of_sinks = TensorSpec.contiguous(sinks.shape, sinks.dtype)
    return *(TensorSpec.contiguous(t.shape, t.dtype) for t in (q, k, v)), of_sinks


def pairs(q, max_q, max_k, left, right) -> int:
    """Scores per head if all sequences are as long as the longest: the lengths are on the GPU."""
    sequences = max(1, q.shape[0] // max(max_q, 1))
    seen = 0
    for p in range(max_k - max_q, max_k):
        low = 0 if left < 0 else max(0, p - left)
        high = max_k if right < 0 else min(max_k, p + right + 1)
        seen += max(0, high - low)
    return sequences * seen


def cost(q, k, v, max_q, max_k, left, right, **others):
    products = 2 * q.shape[1] * pairs(q, max_q, max_k, left, right) * (q.shape[2] + v.shape[2])
    y, lse = outputs(q, k, v)
    reads = (q.nbytes, k.nbytes, v.nbytes)
    return Cost(reads, (y.nbytes, lse.nbytes), products, {SHORT[q.dtype]: products})


def backward_cost(gy, q, k, v, y, lse, max_q, max_k, left, right, **others):
    scored = 2 * q.shape[1] * pairs(q, max_q, max_k, left, right)
    products = scored * (3 * q.shape[2] + 2 * v.shape[2])
    reads = tuple(t.nbytes for t in (gy, q, k, v, y, lse))
    return Cost(reads, (q.nbytes, k.nbytes, v.nbytes), products, {SHORT[q.dtype]: products})


def _each(a, b, s, scale, dtype):
    """Relative error of weights: that of their scores, and their rounding to 16 bits."""
    size = (a.square() @ b.square().mT).sqrt()
    of_s = U * root_levels(a.shape[-1]) * scale * size + 4 * U * s.nan_to_num(0, 0, 0).abs()
    return of_s + U * root_levels(s.shape[-1]) + 2 * rounding(dtype)


def noise(q, k, v, cu_q, cu_k, sinks, slopes, max_q, max_k, left, right, capped, scale, softcap):
    """As in attention, for each sequence."""
    rest = (cu_q, cu_k, sinks, slopes, max_q, max_k, left, right, capped, scale, softcap)
    _, lse = reference(*(t.double() for t in (q, k, v)), *rest)
    of, h, ys, lses = Sequences(cu_q, cu_k), q.shape[1], [], []
    rows = (of.queries(t) for t in (q.double(), lse.t()))
    keys = (of.keys(t.double(), h) for t in (k, v))
    for a, least, b, c in zip(*rows, *keys, strict=True):
        s, _ = scores(a, b, slopes, left, right, capped, scale, softcap)
        weights = torch.exp(s - least.masked_fill(least == -torch.inf, 0.0).unsqueeze(-1))
        each = weights * _each(a, b, s, scale, q.dtype) + quantum(q.dtype) * (weights > 0)
        ys.append((each.square() @ c.square()).sqrt())
        lses.append(each.square().sum(-1).sqrt() + 2 * U * least.nan_to_num(0, 0, 0).abs())
    of_lse = torch.cat(lses, 1) if lses else lse
    of_y = of.joined(ys, q[..., :1].double().expand(*q.shape[:2], v.shape[2]))
    return of_y.nan_to_num(0, 0, 0), (of_lse + U).nan_to_num(0, 0, 0)


def backward_noise(
    gy, q, k, v, y, lse, cu_q, cu_k, sinks, slopes, max_q, max_k, left, right, capped, scale,
    softcap,
):  # fmt: skip
    of, h, parts = Sequences(cu_q, cu_k), q.shape[1], [[], [], []]
    g, d = gy.double(), (gy.double() * y.double()).sum(-1)
    own = (gy.double() * y.double()).square().sum(-1).sqrt()
    rows = (of.queries(t) for t in (q.double(), g, lse.double().t(), d, own))
    keys = (of.keys(t.double(), h) for t in (k, v))
    for a, x, least, dot, of_y, b, c in zip(*rows, *keys, strict=True):
        s, slope = scores(a, b, slopes, left, right, capped, scale, softcap)
        weights = torch.exp(s - least.masked_fill(least == -torch.inf, 0.0).unsqueeze(-1))
        each = _each(a, b, s, scale, q.dtype) + 2 * U * least.nan_to_num(0, 0, 0).abs()[..., None]
        rest = x @ c.mT - dot.unsqueeze(-1)
        of_rest = (x.square() @ c.square().mT).sqrt() * (U * root_levels(v.shape[2]))
        of_rest = of_rest + (rounding(q.dtype) + U) * of_y.unsqueeze(-1)
        lost = quantum(q.dtype) * (weights > 0)
        of_ds = (weights * (of_rest + rest.abs() * (each + 4 * U)) * slope + lost) * scale
        of_p = weights * each + lost
        parts[0].append((of_ds.square() @ b.square()).sqrt())
        parts[1].append(_over_group(of_ds.square().mT @ a.square(), k.shape[1]).sqrt())
        parts[2].append(_over_group(of_p.square().mT @ x.square(), k.shape[1]).sqrt())
    like = (t.double() for t in (q, k, v))
    noises = [of.joined(p, t) for p, t in zip(parts, like, strict=True)]
    of_sinks = q.new_zeros(0).double()
    if sinks is not None:
        shares = torch.exp(sinks.double().unsqueeze(1) - lse.double())
        each = U * (4 + 2 * lse.double().abs()) * (shares * d.t()).abs() + U * shares * own.t()
        of_sinks = each.square().sum(1).sqrt() + U * (shares * d.t()).square().sum(1).sqrt()
    return tuple(t.nan_to_num(0, 0, 0) for t in (*noises, of_sinks))


_OTHERS = (
    "Tensor cu_q, Tensor cu_k, Tensor? sinks, Tensor? slopes, int max_q, int max_k, int left,"
    " int right, bool capped, float scale, float softcap"
)
FORWARD = Operator(
    name="attention_varlen",
    schema=f"(Tensor q, Tensor k, Tensor v, {_OTHERS}) -> (Tensor y, Tensor lse)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="Dao, FlashAttention-2, arXiv:2307.08691; Press et al., ALiBi, arXiv:2108.12409;"
    " Xiao et al., attention sinks, arXiv:2309.17453",
)
BACKWARD = Operator(
    name="attention_varlen.backward",
    schema=f"(Tensor gy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, {_OTHERS})"
    " -> (Tensor gq, Tensor gk, Tensor gv, Tensor gsinks)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="any",
    contiguous=("lse",),
    noise=backward_noise,
    source="autograd of attention_varlen",
)
