"""rope: the mathematics. Each pair (a, b) of a head's first R dimensions is rotated by an angle
that depends on its token:

a' = a cos - b sin,  b' = b cos + a sin

Pair i is (i, i + R/2), the halves as in Llama, or (2i, 2i + 1), adjacent as in GPT-J. Its angle is
given as cos and sin, or computed: position * base^(-2i/R). The other dimensions are copied. The
rotation is orthogonal, so the gradient is the rotation by the opposite angle.

B batch size, H heads of q, K heads of k, T tokens, D dimensions of a head, R of them rotated. q is
(B, H, T, D) and k (B, K, T, D), with any strides; cos and sin are (B, T, R/2), positions (B, T).
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor

BENCH = (
    ((4, 32, 2048, 128), {"kv": 8}, "Llama 3 8B, 4 x 2048 tokens"),
    ((8, 32, 2048, 128), {"kv": 8}, "Llama 3 8B, 8 x 2048 tokens"),
    ((4, 32, 8192, 128), {"kv": 8}, "Llama 3 8B, 4 x 8192 tokens"),
    ((4, 64, 2048, 96), {"rotary": 24}, "GPT-NeoX 20B"),
    ((4, 28, 4096, 128), {"kv": 4}, "Qwen 2.5 7B"),
    ((4, 16, 2048, 256), {"rotary": 64, "interleaved": True}, "GPT-J 6B"),
)
# Defaults of a case's parameters: as many heads of k as of q, all dimensions, halves, float32
# tables with one row per token for the whole batch. `at`: angles are computed for positions from
# there on.
DEFAULTS = {
    "kv": None,
    "rotary": None,
    "interleaved": False,
    "tables": "float32",
    "at": None,
    "base": 10000.0,
    "memory": "bhtd",
}
SWEEP = (
    {"kv": 1, "tables": "same"},
    {"interleaved": True, "kv": 2},
    {"rotary": 16},
    {"rotary": 16, "interleaved": True},
    {"tables": "batch", "memory": "bthd"},
    {"tables": "strided", "interleaved": True, "memory": "bthd"},
    {"memory": "packed", "kv": 2},
    {"at": 131_000},
    {"at": 131_000, "interleaved": True, "rotary": 16, "base": 500_000.0},
)
TWO = (torch.float32, torch.bfloat16)
CASES = (
    *(case((2, 4, 3, 40), d, kv=2) for d in FLOATS),
    *(
        case(shape, d, **params)
        for d in TWO
        for shape, params in (
            ((1, 1, 1, 2), {}),
            ((1, 1, 1, 2), {"interleaved": True}),
            ((0, 2, 3, 8), {}),
            ((2, 5, 1, 64), {"kv": 1}),
            ((1, 3, 5, 33), {"rotary": 32}),
            ((1, 3, 5, 12), {"rotary": 2, "interleaved": True}),
            ((1, 2, 3, 96), {"rotary": 24}),
        )
    ),
    *(case((2, 4, 2, 32), d, **params) for d in TWO for params in SWEEP),
    *(
        case((2, 4, 2, 32), d, layout=layout)
        for d in TWO
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((2, 4, 2, 32), d, values=v) for d in TWO for v in ("large", "nan", "inf")),
    *(
        case(shape, d, use="bench", label=label, memory="bthd", tables="same", **params)
        for shape, params, label in BENCH
        for d in TWO
    ),
    case((4, 32, 2048, 128), torch.float16, use="bench", memory="bthd", tables="same", kv=8),
    case(
        (4, 32, 2048, 128),
        torch.bfloat16,
        use="bench",
        label="angles computed",
        memory="bthd",
        kv=8,
        at=0,
        base=500_000.0,
    ),
    case((2, 64, 131_073, 128), torch.bfloat16, use="big", kv=1),
)


def frequencies(base: float, rotary_dim: int, device=None) -> torch.Tensor:
    """Radians per position of each pair, (R/2), in float64: float32's would have an error of a
    hundredth of a radian after 131,072 positions."""
    pair = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=device)
    return base ** (-pair / rotary_dim)


def angle_tables(cos, sin, positions, base, rotary_dim):
    """cos and sin (B, T, R/2), given or computed."""
    if positions is None:
        return cos, sin
    angle = positions[..., None].double() * frequencies(base, rotary_dim, positions.device)
    return angle.cos(), angle.sin()


def pairs(x, rotary_dim: int, interleaved: bool):
    """(a, b, rest): the two members of each pair (..., R/2), and the dimensions not rotated."""
    rotated, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    if interleaved:
        return rotated[..., 0::2], rotated[..., 1::2], rest
    return *rotated.chunk(2, -1), rest


def join(a, b, rest, interleaved: bool):
    rotated = torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)
    return torch.cat((rotated, rest), -1)


def turned(x, cos, sin, rotary_dim: int, interleaved: bool):
    """x (B, H, T, D) rotated by angles (B, T, R/2)."""
    a, b, rest = pairs(x, rotary_dim, interleaved)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return join(a * cos - b * sin, b * cos + a * sin, rest, interleaved)


def reference(q, k, cos, sin, positions, base, rotary_dim, interleaved):
    cos, sin = angle_tables(cos, sin, positions, base, rotary_dim)
    return tuple(turned(x, cos, sin, rotary_dim, interleaved) for x in (q, k))


def backward_reference(gyq, gyk, cos, sin, positions, base, rotary_dim, interleaved):
    cos, sin = angle_tables(cos, sin, positions, base, rotary_dim)
    return tuple(turned(g, cos, -sin, rotary_dim, interleaved) for g in (gyq, gyk))


def inputs(c, device):
    said = {**DEFAULTS, **dict(c.params)}
    b, h, t, d = c.shape
    rotary = said["rotary"] or d
    q, k = _heads(c, device, h, said["kv"] or h, said["memory"])
    given = {
        "q": q,
        "k": k,
        "cos": None,
        "sin": None,
        "positions": None,
        "base": said["base"],
        "rotary_dim": rotary,
        "interleaved": said["interleaved"],
    }
    if said["at"] is not None:
        positions = said["at"] + torch.arange(t, device=device).expand(b, t)
        return {**given, "positions": positions + c.seed}
    kind = said["tables"]
    dtype = c.dtype if kind == "same" else torch.float32
    many = b if kind == "batch" else 1
    # any angles will do; those of the first token are the easiest to get wrong in memory
    angle = tensor(c, "angle", device, shape=(many, t, rotary // 2), dtype=torch.float32, scale=3.0)
    tables = [f.to(dtype).expand(b, t, rotary // 2) for f in (angle.cos(), angle.sin())]
    if kind == "strided":  # each value twice in its table
        tables = [f.repeat_interleave(2, -1)[..., ::2] for f in tables]
    return {**given, "cos": tables[0], "sin": tables[1]}


def _heads(c, device, heads: int, heads_k: int, memory: str):
    """q and k as (B, heads, T, D): separate, in the order that `memory` names, or parts of one
    packed (B, T, H + 2K, D)."""
    b, _, t, d = c.shape
    if memory == "packed":
        packed = tensor(c, "qkv", device, shape=(b, t, heads + 2 * heads_k, d)).transpose(1, 2)
        return packed[:, :heads], packed[:, heads : heads + heads_k]
    if memory == "bthd":
        q = tensor(c, "q", device, shape=(b, t, heads, d)).transpose(1, 2)
        return q, tensor(c, "k", device, shape=(b, t, heads_k, d)).transpose(1, 2)
    return tensor(c, "q", device), tensor(c, "k", device, shape=(b, heads_k, t, d))


def backward_inputs(c, device):
    args = inputs(c, device)
    return {"gyq": args.pop("q"), "gyk": args.pop("k"), **args}


def same_order(t) -> TensorSpec:
    """A dense result with dimensions in the memory order of t's, the last one innermost."""
    shape, strides = tuple(t.shape), t.stride()
    order = sorted(range(len(shape) - 1), key=lambda i: -strides[i])
    dense, step = [1] * len(shape), shape[-1]
    for i in reversed(order):
        dense[i], step = step, step * max(shape[i], 1)
    return TensorSpec(shape, tuple(dense), t.dtype)


def outputs(q, k, **others):
    return same_order(q), same_order(k)


def backward_outputs(gyq, gyk, **others):
    return same_order(gyq), same_order(gyk)


def _cost(q, k, cos, sin, positions, rotary_dim):
    """q and k are two streams. Tables have a row per token; if they are expanded, one for all
    batches."""
    tables = 0
    for t in (cos, sin, positions):
        if t is not None:
            tables += t.nbytes // (t.shape[0] if t.stride()[0] == 0 and t.shape[0] else 1)
    moved = q.nbytes + k.nbytes
    return Cost(reads=(moved + tables,), writes=(moved,), flops=3 * (q.numel() + k.numel()))


def cost(q, k, cos, sin, positions, base, rotary_dim, interleaved):
    return _cost(q, k, cos, sin, positions, rotary_dim)


def backward_cost(gyq, gyk, cos, sin, positions, base, rotary_dim, interleaved):
    return _cost(gyq, gyk, cos, sin, positions, rotary_dim)


def _noise(x, cos, sin, positions, base, rotary_dim, interleaved):
    """The rounding errors of a cos - b sin in float32: both products are rounded, by u of their
    size. For computed angles the fraction of a turn, exact before, is rounded to float32, which
    costs at most pi u of angle; the functions add another ulp."""
    u = torch.finfo(torch.float32).eps / 2
    c, s = angle_tables(cos, sin, positions, base, rotary_dim)
    more = 0.0 if positions is None else math.pi + 1
    a, b, rest = pairs(x.double().abs(), rotary_dim, interleaved)
    c, s = c.double().abs().unsqueeze(1) + more, s.double().abs().unsqueeze(1) + more
    return u * join(a * c + b * s, b * c + a * s, torch.zeros_like(rest), interleaved)


def noise(q, k, **angles):
    return tuple(_noise(x, **angles) for x in (q, k))


def backward_noise(gyq, gyk, **angles):
    return tuple(_noise(x, **angles) for x in (gyq, gyk))


ANGLES = "Tensor? cos, Tensor? sin, Tensor? positions, float base, int rotary_dim, bool interleaved"


def sharding(args, results):
    """Over samples, heads (if q and k have the same number) or tokens; angles follow samples and
    tokens."""
    heads = [t for t in (*args.values(), *results.values()) if getattr(t, "ndim", 0) == 4]
    angles = ("cos", "sin", "positions")
    for dim, of_angles in ((0, 0), (1, None), (2, 1)):
        if all(t.shape[dim] > 1 for t in heads):
            yield {
                **{n: dim for n in (*args, *results) if n not in angles},
                **dict.fromkeys(angles, of_angles),
            }


FORWARD = Operator(
    name="rope",
    schema=f"(Tensor q, Tensor k, {ANGLES}) -> (Tensor yq, Tensor yk)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    sharding=sharding,
    noise=noise,
    source="Su et al. 2021, arXiv:2104.09864; transformers' apply_rotary_pos_emb",
)
BACKWARD = Operator(
    name="rope.backward",
    schema=f"(Tensor gyq, Tensor gyk, {ANGLES}) -> (Tensor gq, Tensor gk)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="any",
    sharding=sharding,
    noise=backward_noise,
    source="autograd of rope: the rotation by the opposite angle",
)
