"""Attention: the mathematics.

    s = scale q k^T + mask,    y = softmax(s) v,    lse = log(sum(exp(s)))

for each head of a batch. With `causal`, query i sees keys 0 to i. If a boolean mask is False or a
floating-point mask is -inf, the query does not see the key, whatever the score is (even NaN). A
query that sees no key has y = 0 and lse = -inf. If a floating-point mask is added, which may be as
low as the lowest number for every key of a query, lse would lose the logarithm: the result `lse`
then has a last dimension with the largest score and the sum of exp(s - largest). Several heads of q
may share a head of k and v. With a seed, weights are dropped with probability p after the softmax.

The backward recomputes the weights: P = exp(s - lse). With D = sum(gy y) for each query,

    gv = P^T gy,    dP = gy v^T,    dS = P (dP - D),    gq = scale dS k,    gk = scale dS^T q

and the mask's gradient is dS. `scale` is not negative: the public function negates q instead.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, root_levels
from kernelwright.ops.random._keep import factor

F32, F16, BF16 = FLOATS

# Shapes (B, H, L, D). Keys `s`, heads of k and v `hk`, head size of v `dv`, if they differ.
LAYOUTS = ("sliced", "permuted", "offset", "expanded")
# (B, H, L, D) of the tables that FlashAttention publishes: 16,384 tokens, 2,048 channels
BENCH = (
    (32, 32, 512, 64), (8, 32, 2048, 64), (2, 32, 8192, 64), (1, 32, 16384, 64),
    (32, 16, 512, 128), (8, 16, 2048, 128), (2, 16, 8192, 128), (1, 16, 16384, 128),
)  # fmt: skip
GROUPED = {"hk": 8, "causal": True}


def _verified(d: torch.dtype) -> tuple[Case, ...]:
    """The cases that every dtype must pass."""
    return (
        case((1, 2, 33, 64), d),
        case((2, 1, 70, 64), d, causal=True),
        case((0, 2, 8, 16), d),
        case((1, 2, 8, 16), d, s=0),
        case((2, 4, 40, 64), d, order="bshd", hk=2, causal=True),
        case((2, 4, 21, 16), d, s=45, mask="bool"),
        case((2, 4, 21, 16), d, s=45, mask="float"),
        *(case((2, 2, 24, 32), d, layout=x) for x in LAYOUTS),
        *(case((1, 2, 24, 32), d, values=v) for v in ("large", "nan", "inf", "constant")),
        case((2, 2, 24, 40), d, p=0.25),
    )


#: Further sizes and options.
EXTENDED = (
    case((1, 1, 1, 16), BF16),
    case((1, 2, 5, 8), BF16, s=1),
    case((2, 2, 37, 40), BF16, s=75),
    case((1, 1, 130, 128), BF16, s=140, causal=True),
    case((1, 1, 50, 32), BF16, s=20, causal=True),
    case((1, 1, 20, 32), BF16, s=150, causal=True),
    case((1, 1, 40, 7), F32),
    case((1, 1, 17, 96), BF16, dv=33),
    case((1, 1, 17, 24), F16, dv=64),
    case((1, 1, 24, 256), BF16, causal=True),
    case((1, 1, 24, 256), F32),
    case((2, 6, 19, 32), BF16, hk=2),
    case((1, 4, 40, 64), F16, hk=1, causal=True),
    case((2, 3, 24, 64), BF16, order="bshd"),
    case((2, 4, 21, 16), BF16, s=45, mask="rows"),
    case((1, 2, 33, 32), F32, mask="heads", hk=1),
    *(case((2, 2, 21, 16), d, s=45, mask="lowest") for d in (BF16, F16, F32)),
    *(case((1, 2, 37, 32), d, mask="lowest", wide=True, causal=True) for d in (BF16, F32)),
    *(case((1, 2, 21, 16), d, s=45, mask="shifted") for d in (BF16, F32)),
    *(case((1, 2, 21, 16), d, s=45, mask="nan", values="nan", special="mask") for d in (BF16, F32)),
    case((2, 2, 33, 32), BF16, s=40, mask="heads", causal=True),
    case((1, 2, 24, 16), F32, s=45, mask="bool", special="k", values="nan"),
    case((1, 2, 24, 32), BF16, special="v", values="nan"),
    case((1, 2, 19, 16), F32, s=37, p=0.5, causal=True),
    case((1, 2, 19, 16), BF16, scale=0.0),
)
CASES = (
    *(c for d in (BF16, F16, F32) for c in _verified(d)),
    *EXTENDED,
    # several tiles of every rung
    *(case((1, 1, 300, 128), BF16, causal=c) for c in (False, True)),
    *(case((1, 2, 520, 64), F16, causal=c) for c in (False, True)),
    case((2, 4, 384, 128), BF16, s=640, hk=2, order="bshd"),
    *(case(s, BF16, use="bench", causal=c) for s in BENCH for c in (False, True)),
    case((4, 32, 4096, 128), BF16, use="bench", label="Llama 3 8B", **GROUPED),
    case((32, 12, 1024, 64), BF16, use="bench", label="GPT-2", causal=True),
    case((2, 16, 8192, 128), F16, use="bench"),
    case((4, 16, 2048, 96), BF16, use="bench", causal=True),
    case((4, 8, 2048, 256), BF16, use="bench", causal=True),
)


def reference(q, k, v, mask, seed, causal, mask_grad, scale, p):
    s = scores(q, k, mask, causal, scale)
    top = s.amax(-1, keepdim=True) if s.shape[-1] else s.sum(-1, keepdim=True)
    e = torch.exp(s - top.masked_fill(top == -torch.inf, 0.0))
    total = e.sum(-1, keepdim=True)
    weights = e / total.masked_fill(total == 0, 1.0)
    if seed is not None:
        weights = weights * factor(weights.shape, seed, p).to(weights)
    y = per_group(weights, v)
    if added(mask):
        return y, torch.cat((torch.where(total.isnan(), total, top), total), -1)
    return y, (top + total.log()).squeeze(-1)


def added(mask) -> bool:
    """Whether a mask is added to the scores."""
    return mask is not None and mask.dtype != torch.bool


def weights_of(s, lse, mask):
    """The weights, from the scores and the forward's `lse`. Its rounding, u |lse|, would be the
    relative error of each weight; without an additive mask it only says which rows see no key."""
    if not added(mask):
        weights = torch.softmax(s, -1)
        return weights if mask is None else weights.masked_fill((lse == -torch.inf)[..., None], 0)
    top, total = lse.split(1, -1)
    e = torch.exp(s - top.masked_fill(top == -torch.inf, 0.0))
    return e / total.masked_fill(total == 0, 1.0)


def backward_reference(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    s = scores(q, k, mask, causal, scale)
    weights = weights_of(s, lse, mask)
    kept = 1.0 if seed is None else factor(weights.shape, seed, p).to(weights)
    of_weights = per_group(gy, v.mT) * kept
    # equal to the sum of gy y, but with the rounding of of_weights, so that the two cancel
    ds = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))
    gq = per_group(ds, k) * scale
    gk = over_group(ds.mT @ q, k.shape[1]) * scale
    gv = over_group((weights * kept).mT @ gy, k.shape[1])
    return gq, gk, gv, mask_gradient(ds, mask, mask_grad)


def scores(q, k, mask, causal, scale):
    """(B, H, L, S), with -inf where a query does not see a key."""
    s = per_group(q, k.mT) * scale
    if added(mask):
        s = s + mask
    hidden = unseen(s, mask, causal)
    return s if hidden is None else s.masked_fill(hidden, -torch.inf)


def unseen(s, mask, causal):
    """The keys that a query does not see, as a mask that broadcasts to the scores; None if there
    are none."""
    hidden = None
    if mask is not None:
        hidden = ~mask if mask.dtype == torch.bool else mask == -torch.inf
    if causal:
        later = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1)
        hidden = later if hidden is None else hidden | later
    return hidden


def per_group(a, b):
    """a b for (B, H, ...) and (B, Hk, ...), head h of a with head h // (H / Hk) of b."""
    if a.shape[1] == b.shape[1]:
        return a @ b
    return (a.unflatten(1, (b.shape[1], -1)) @ b.unsqueeze(2)).flatten(1, 2)


def over_group(t, heads):
    """Sums over the heads of q that share one of `heads` heads."""
    return t if t.shape[1] == heads else t.unflatten(1, (heads, -1)).sum(2)


def mask_gradient(ds, mask, mask_grad):
    """The gradient of the mask from dS, in the mask's shape; empty if it is not needed."""
    if not mask_grad:
        return ds.new_empty(0)
    return ds.sum_to_size(mask.shape)


def inputs(c, device):
    b, h, length, d = c.shape
    s, hk = c.param("s", length), c.param("hk", h)
    p, special = c.param("p", 0.0), c.param("special", "q")  # location of special values
    mask, wants = _mask(c, (b, h, length, s), device)
    shapes = {"q": c.shape, "k": (b, hk, s, d), "v": (b, hk, s, c.param("dv", d))}
    return {
        **{
            name: _operand(c, name, shape, c.values if name == special else "normal", device)
            for name, shape in shapes.items()
        },
        "mask": mask,
        "seed": _seed(c, device) if p else None,
        "causal": c.param("causal", False),
        "mask_grad": wants,
        "scale": float(c.param("scale", max(d, 1) ** -0.5)),
        "p": p,
    }


def _operand(c: Case, name: str, shape, values: str, device: str) -> torch.Tensor:
    """A tensor in the layout of the case, or with the heads after the tokens in memory."""
    own = replace(c, shape=tuple(shape), values=values)
    if c.param("order") == "bshd":
        b, h, length, d = shape
        own = replace(own, shape=(b, length, h, d))
        return tensor(own, name, device).transpose(1, 2)
    return tensor(own, name, device)


def _mask(c: Case, shape, device: str):
    """(mask, whether its gradient is needed). The first query of a boolean mask sees no key."""
    kind = c.param("mask")
    b, h, length, s = shape
    if kind is None:
        return None, False
    own = replace(c, values="normal", layout="contiguous")
    if kind == "rows":  # the last keys of each sequence are padding
        seen = tensor(own, "mask", device, shape=(b, 1, 1, s)) > -0.5
        return seen.expand(b, 1, length, s), False
    if kind == "bool":
        seen = tensor(own, "mask", device, shape=(b, 1, length, s)) > -0.5
        if c.param("special"):  # the key with special values
            seen[..., 0] = False
        if device != "meta":
            seen[:, :, :1] = False
        return seen, False
    many = h if kind == "heads" else 1
    dtype = F32 if c.param("wide") else c.dtype
    mask = tensor(own, "mask", device, shape=(1, many, length, s), dtype=dtype)
    if device != "meta":
        _set_mask(mask, kind)
    return mask, True


def _set_mask(mask, kind: str) -> None:
    """Special values of a mask (1, H, L, S) that is added."""
    mask[mask > 1.5] = -torch.inf
    if kind == "lowest":  # as transformers mask padding on the left
        hidden = torch.arange(mask.shape[-1], device=mask.device) < mask.shape[-1] // 3
        mask.zero_().masked_fill_(hidden, torch.finfo(mask.dtype).min)
        mask[:, :, :2] = torch.finfo(mask.dtype).min  # a query of padding sees no other keys
        mask[:, :, 2] = -torch.inf
        mask[:, :, 3, ::2] = -torch.inf
        mask[:, :, 3, 1::2] = torch.finfo(mask.dtype).min
    elif kind == "shifted":
        mask += 1000.0
    elif kind == "nan":
        mask[:, :, -1, 1] = torch.nan


def _seed(c: Case, device: str) -> torch.Tensor:
    seed = torch.empty(1, dtype=torch.int64, device=device)
    if device != "meta":
        draw = tensor(replace(c, values="normal"), "seed", device, shape=(1,), dtype=F32)
        seed.copy_((draw * 1e6).long())
    return seed


def backward_inputs(c, device):
    args = inputs(c, device)
    wide = {n: args[n].double() for n in ("q", "k", "v")}
    wide["mask"] = args["mask"]
    y, lse = reference(**{**args, **wide})
    dtype = accumulated(c.dtype)
    gy = _operand(c, "gy", y.shape, "normal", device)
    saved = {"y": y.to(c.dtype), "lse": lse.to(dtype)}
    return {"gy": gy, "q": args.pop("q"), "k": args.pop("k"), "v": args.pop("v"), **saved, **args}


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which scores, and therefore lse, are computed."""
    return torch.promote_types(dtype, torch.float32)


def outputs(q, k, v, mask, seed, causal, mask_grad, scale, p):
    y = ordered_as(q, (*q.shape[:3], v.shape[3]))
    parts = (2,) if added(mask) else ()
    return y, TensorSpec.contiguous((*q.shape[:3], *parts), accumulated(q.dtype))


def backward_outputs(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    of_mask = TensorSpec.contiguous(
        mask.shape if mask_grad else (0,), (mask if mask_grad else q).dtype
    )
    return *(ordered_as(t, t.shape) for t in (q, k, v)), of_mask


def ordered_as(t, shape) -> TensorSpec:
    """A dense result with dimensions in the order of t's: (B, H, L, D), or heads after tokens."""
    _, h, length, d = shape
    if h > 1 and length > 1 and 0 < t.stride(1) < t.stride(2):
        return TensorSpec(tuple(shape), (length * h * d, d, h * d, 1), t.dtype)
    return TensorSpec.contiguous(shape, t.dtype)


def pairs(q, k, causal) -> int:
    """The number of scores that are not masked by `causal`, over all heads."""
    b, h, length, _ = q.shape
    s = k.shape[2]
    if not causal:
        return b * h * length * s
    full = min(length, s)
    return b * h * (full * (full + 1) // 2 + (length - full) * s)


def cost(q, k, v, mask, seed, causal, mask_grad, scale, p):
    y, lse = outputs(q, k, v, mask, seed, causal, mask_grad, scale, p)
    products = 2 * pairs(q, k, causal) * (q.shape[3] + v.shape[3])
    reads = tuple(t.nbytes for t in (q, k, v, mask) if t is not None)
    return Cost(reads, (y.nbytes, lse.nbytes), products, {SHORT[q.dtype]: products})


def backward_cost(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    products = 2 * pairs(q, k, causal) * (3 * q.shape[3] + 2 * v.shape[3])
    reads = tuple(t.nbytes for t in (gy, q, k, v, y, lse, mask) if t is not None)
    writes = tuple(t.nbytes for t in (q, k, v))
    return Cost(reads, writes, products, {SHORT[q.dtype]: products})


def rounding(dtype: torch.dtype) -> float:
    """Unit roundoff of the operands of tensor core products, to which weights are rounded."""
    return torch.finfo(dtype).eps / 2 if dtype.itemsize == 2 else 0.0


def quantum(dtype: torch.dtype) -> float:
    """Half of the spacing of this type near zero, where the rounding error is not relative."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps / 2 if dtype.itemsize == 2 else 0.0


def of_scores(q, k, mask, scale, s):
    """Error of the scores: of a sum over the head size, and of the exponent's argument. A mask that
    absorbs a score even in float64 leaves neither."""
    u = U * root_levels(q.shape[3])
    squares = per_group(q.double().square(), k.double().square().mT)
    error = u * scale * squares.sqrt() + 2 * U * s.nan_to_num(0, 0, 0).abs()
    return error.masked_fill(s == mask, 0.0) if added(mask) else error


def noise(q, k, v, mask, seed, causal, mask_grad, scale, p):
    """The error of a weight w is w times that of its score, and its rounding to a 16-bit type,
    which are independent; the error of a sum over the keys is the root of the sum of their
    squares."""
    wide = [t.double() for t in (q, k, v)]
    mask = mask.double() if added(mask) else mask
    s = scores(*wide[:2], mask, causal, scale)
    lse = reference(*wide, mask, None, causal, mask_grad, scale, 0.0)[1]
    weights = weights_of(s, lse, mask)
    kept = 1.0 if seed is None else factor(weights.shape, seed, p)
    of_s = of_scores(q, k, mask, scale, s)
    each = of_s + U * root_levels(s.shape[-1]) + 2 * rounding(q.dtype)
    each = each.masked_fill(weights == 0, 0.0)  # the scores of hidden keys may be NaN
    of_weights = weights * kept * each + quantum(q.dtype) * (weights > 0)
    of_y = per_group(of_weights.square(), wide[2].square()).sqrt()
    of_lse = (weights * each).square().sum(-1).sqrt()
    if added(mask):  # each part; that of the sum moves with the largest score
        of_top = of_s.masked_fill(weights == 0, 0.0).amax(-1) if s.shape[-1] else of_lse
        of_lse = torch.stack((of_top, lse[..., 1] * (of_lse + of_top + 4 * U)), -1)
    else:
        of_lse = of_lse + 2 * U * lse.abs()
    return of_y.nan_to_num(0, 0, 0), of_lse.nan_to_num(0, 0, 0)


def backward_noise(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    """As in the forward. dP - D cancels, which leaves the rounding errors of both terms; dS is
    rounded to a 16-bit type like the weights."""
    g, a, b, c, d = (t.double() for t in (gy, q, k, v, y))
    mask = mask.double() if added(mask) else mask
    s = scores(a, b, mask, causal, scale)
    weights = weights_of(s, lse.double(), mask)
    kept = 1.0 if seed is None else factor(weights.shape, seed, p)
    each = of_scores(q, k, mask, scale, s) + 2 * rounding(q.dtype)
    if not added(mask):
        each = each + 2 * U * lse.double().nan_to_num(0, 0, 0).abs().unsqueeze(-1)
    each = each.masked_fill(weights == 0, 0.0)
    of_weights = per_group(g, c.mT) * kept
    rest = of_weights - (g * d).sum(-1, keepdim=True)
    squares = per_group(g.square(), c.square().mT) * kept
    of_rest = squares + (g * d).square().sum(-1, keepdim=True)
    # y is rounded to its dtype, but PyTorch's own backward may use it unrounded
    of_rest = U * root_levels(v.shape[3]) * of_rest.sqrt()
    of_rest = of_rest + rounding(q.dtype) * (g * d).square().sum(-1, keepdim=True).sqrt()
    least = quantum(q.dtype) * (weights > 0)
    of_ds = weights * (of_rest + rest.abs() * each) + least
    of_gq = scale * per_group(of_ds.square(), b.square()).sqrt()
    of_gk = scale * over_group(of_ds.square().mT @ a.square(), k.shape[1]).sqrt()
    of_gv = over_group((weights * kept * each + least).square().mT @ g.square(), k.shape[1]).sqrt()
    of_mask = mask_gradient(of_ds.square(), mask, mask_grad).sqrt()
    return tuple(t.nan_to_num(0, 0, 0) for t in (of_gq, of_gk, of_gv, of_mask))


def sharding(args, results):
    """Over batches, and over heads if each head of q has its own head of k and v. Which weights are
    dropped depends on their position among all weights."""
    q, k, mask = args["q"], args["k"], args["mask"]
    if args["seed"] is not None:
        return
    for dim in (0, 1):
        if q.shape[dim] == 1 or q.shape[dim] != k.shape[dim]:
            continue
        split = {n: dim for n, t in (*args.items(), *results.items()) if isinstance(t, TensorSpec)}
        if mask is not None and mask.shape[dim] == 1:
            split["mask"] = None
        if "gmask" in split:
            split["gmask"] = _split_gradient(mask, args["mask_grad"], dim)
        yield split


def _split_gradient(mask, mask_grad: bool, dim: int):
    if not mask_grad:
        return None
    return "sum" if mask.shape[dim] == 1 else dim


_OTHERS = "Tensor? mask, Tensor? seed, bool causal, bool mask_grad, float scale, float p"
FORWARD = Operator(
    name="scaled_dot_product_attention",
    schema=f"(Tensor q, Tensor k, Tensor v, {_OTHERS}) -> (Tensor y, Tensor lse)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    sharding=sharding,
    source="torch.nn.functional.scaled_dot_product_attention",
)
BACKWARD = Operator(
    name="scaled_dot_product_attention.backward",
    schema=f"(Tensor gy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, {_OTHERS})"
    " -> (Tensor gq, Tensor gk, Tensor gv, Tensor gmask)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="any",
    contiguous=("lse",),
    noise=backward_noise,
    sharding=sharding,
    source="autograd of torch.nn.functional.scaled_dot_product_attention",
)
