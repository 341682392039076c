"""linear_cross_entropy: the mathematics. z = x w^T + bias, then the losses of ops/loss/_terms.py.

One operator computes the tokens' losses l_i and, if requested, the gradients of sum_i g_i l_i: with
G = d(sum) / dz for one chunk of tokens at a time, gx = G w, gw = G^T x, gbias = G^T 1. The factors
g are the reciprocal divisor of a reduction, or the incoming gradient of each token's loss.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, root_levels
from kernelwright.contract.sharding import Rows, last_dimension

from .. import _terms
from .._terms import Form

F32, F16, BF16 = FLOATS
# (tokens, hidden, classes): Llama 3 8B, GPT-2, Gemma 2 2B.
BENCH = {
    (8192, 4096, 128256): "Llama 3 8B head",
    (16384, 768, 50304): "GPT-2 head",
    (8192, 2048, 262144): "Gemma head",
}
DEFAULTS = {"ignore_index": -100, "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0}
EVERYTHING = {
    "label_smoothing": 0.1,
    "z_loss": 1e-2,
    "softcap": 2.0,
    "weight": True,
    "bias": True,
    "ignored": "some",
}
WANTS = ("none", "x", "w")
CASES = (
    *(case((n, 24), d, classes=40) for d in FLOATS for n in (1, 7, 33)),
    case((0, 8), F32, classes=5),
    *(case((9, 20), d, classes=31, **EVERYTHING) for d in FLOATS),
    *(case((9, 20), F32, classes=31, bias=True, wants=w) for w in WANTS),
    *(case((9, 20), F32, classes=31, each=True, **extra) for extra in ({}, EVERYTHING)),
    *(case((6, 40), F32, classes=10, layout=x) for x in ("sliced", "permuted", "offset")),
    *(case((6, 40), F32, classes=10, values=v) for v in ("large", "nan", "inf")),
    case((4097, 8), BF16, classes=24, bias=True, label="two chunks"),
    *(
        case((n, h), BF16, use="bench", label=label, classes=c)
        for (n, h, c), label in BENCH.items()
    ),
    case((2**17 + 1, 16384), BF16, use="big", classes=64),
)


def reference(x, w, bias, target, weight, g, of_x, of_w, of_bias, **form):
    form = Form(**form)
    every = _terms.every_weight(x, w.shape[0], weight)
    loss, gx, gw, gbias = [], [], 0, 0
    for rows, hit, scale in _pieces(x, w, target, g):
        logits = rows @ w.t()
        z = _terms.capped(logits if bias is None else logits + bias, form)
        of = _terms.tokens(z, hit, weight, form)
        lse = torch.logsumexp(z, -1)
        logp = torch.log_softmax(z, -1)
        loss.append(_terms.losses(logp, lse, weight, of, form))
        gz = _terms.gradient(logp.exp(), z, lse, weight, of, every, scale, form)
        gx.append(gz @ w)
        gw, gbias = gw + gz.t() @ rows, gbias + gz.sum(0)
    none = x.new_empty(0)
    return (
        torch.cat(loss),
        torch.cat(gx) if of_x else none,
        gw if of_w else none,
        gbias if of_bias else none,
    )


def _pieces(x, w, target, g):
    """Some tokens at a time: float64 logits of all tokens do not fit on a GPU twice."""
    step = max(1, _terms.PIECE // w.shape[0])
    parts = (t.split(step) for t in (x, target, g.expand(target.shape)))
    return zip(*parts, strict=True)


def inputs(c, device):
    tokens, hidden = c.shape
    classes = c.param("classes")
    wants = c.param("wants", "xw")

    def plain(name, *shape, dtype=c.dtype, scale=1.0):
        return tensor(c, name, device, shape=shape, dtype=dtype, scale=scale)

    drawn = plain("target", tokens, dtype=F32)
    target = drawn.mul(1e4).abs().long() % classes
    if c.param("ignored"):
        target.masked_fill_(drawn > 0.4, -100)
    g = plain("g", tokens, dtype=F32) if c.param("each") else torch.tensor(1 / max(tokens, 1))
    return {
        "x": tensor(c, "x", device),
        "w": plain("w", classes, hidden, scale=hidden**-0.5),
        "bias": plain("bias", classes) if c.param("bias") else None,
        "target": target,
        "weight": plain("weight", classes, dtype=F32).abs_() if c.param("weight") else None,
        "g": g.to(device),
        "of_x": "x" in wants,
        "of_w": "w" in wants,
        "of_bias": c.param("bias", False) and "w" in wants,
        **DEFAULTS,
        **{k: v for k, v in c.params if k in DEFAULTS},
        "smooth": bool(c.param("label_smoothing")),
        "cap": bool(c.param("softcap")),
    }


def outputs(x, w, of_x, of_w, of_bias, **others):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (
        TensorSpec.contiguous(x.shape[:1], wide),
        TensorSpec.contiguous(x.shape if of_x else (0,), x.dtype),
        TensorSpec.contiguous(w.shape if of_w else (0,), w.dtype),
        TensorSpec.contiguous(w.shape[:1] if of_bias else (0,), w.dtype),
    )


def cost(x, w, of_x, of_w, **others):
    products = 1 + of_x + of_w
    writes = (4 * x.shape[0], of_x * x.nbytes, of_w * w.nbytes)
    return Cost(
        reads=(x.nbytes, w.nbytes),
        writes=writes,
        flops=2 * products * x.shape[0] * x.shape[1] * w.shape[0],
    )


def noise(x, w, bias, target, weight, g, of_x, of_w, of_bias, **form):
    """Rounding errors where sums cancel; u is the unit roundoff of the dtype in which logits and
    their gradients are stored, v that of float32.

    A logit has an error of u of its size and, as a sum of H products, of v sqrt(log2 H) times the
    root of the sum of their squares; p has p times that error, and G has that of p and u of itself.
    Errors of different logits are independent, so those of a loss and of the sums G w and G^T x are
    roots of sums of squares (Higham and Mary 2019).
    """
    form = Form(**form)
    u, v = torch.finfo(x.dtype).eps / 2, U
    x, w = x.double(), w.double()
    every = _terms.every_weight(x, w.shape[0], weight)
    root = root_levels(x.shape[-1])
    squares = w.square()
    of_loss, of_gx, of_gw, of_gbias = [], [], 0, 0
    for rows, hit, scale in _pieces(x, w, target, g.double()):
        logits = rows @ w.t() if bias is None else rows @ w.t() + bias.double()
        z = _terms.capped(logits, form)
        of = _terms.tokens(z, hit, weight, form)
        lse = torch.logsumexp(z, -1)
        one = lse.new_ones(()).expand(hit.shape)
        p = torch.exp(z - lse.unsqueeze(-1))
        gz = _terms.gradient(p, z, lse, weight, of, every, one, form)
        of_z = u * logits.abs() + v * root * (rows.square() @ squares.t()).sqrt() + v
        spare = 1 + 2 * form.z_loss * lse.abs().unsqueeze(-1)
        of_gz = ((spare * p * of_z + u * gz.abs()) * scale.unsqueeze(-1)).square()
        of_loss.append((gz * of_z).norm(dim=-1) + v * (lse.abs() + z.abs().amax(-1) + 2))
        of_gx.append((of_gz @ squares).sqrt())
        of_gw, of_gbias = of_gw + of_gz.t() @ rows.square(), of_gbias + of_gz.sum(0)
    none = x.new_empty(0)
    noises = (
        torch.cat(of_loss),
        torch.cat(of_gx) if of_x else none,
        of_gw.sqrt() if of_w else none,
        of_gbias.sqrt() if of_bias else none,
    )
    return tuple(t.nan_to_num(0, 0, 0) for t in noises)


OPERATOR = Operator(
    name="linear_cross_entropy",
    schema="(Tensor x, Tensor w, Tensor? bias, Tensor target, Tensor? weight, Tensor g, bool of_x,"
    " bool of_w, bool of_bias, int ignore_index, float label_smoothing, float z_loss,"
    " float softcap, bool smooth, bool cap)"
    " -> (Tensor loss, Tensor gx, Tensor gw, Tensor gbias)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    sharding=Rows(
        last_dimension,
        "x",
        dict.fromkeys(("target", "g", "loss"), -1),
        ("w", "bias", "weight"),
        ("gw", "gbias"),
    ),
    noise=noise,
    source="torch.nn.functional.linear_cross_entropy; Wijmans et al. 2024, arXiv:2411.09009;"
    " Hsu et al. 2024 (Liger), arXiv:2410.10989",
)

SCALE_CASES = (
    *(case(s, d, g=g) for d in FLOATS for s in ((7,), (5, 33)) for g in (1.0, 0.75)),
    *(case((4, 3, 9), F32, layout=x, g=0.75) for x in ("sliced", "permuted", "offset")),
    case((0, 3), F32, g=2.0),
    *(case((4, 66), F32, values=v, g=0.5) for v in ("nan", "inf")),
    case((4, 66), F32, g=float("nan")),
    case((2**28,), BF16, use="bench", g=0.5),  # with a factor of 1 nothing is moved
    case((2**31 + 5,), BF16, use="big", g=0.5),
)


def scale_reference(x, g):
    x *= g


SCALE = Operator(
    name="scale_unless_one_",
    schema="(Tensor(a!) x, Tensor g) -> ()",
    reference=scale_reference,
    inputs=lambda c, device: {
        "x": tensor(c, "x", device),
        "g": torch.tensor(c.param("g"), device=device),
    },
    cases=SCALE_CASES,
    cost=lambda x, g: Cost(reads=(x.nbytes,), writes=(x.nbytes,), flops=x.numel()),
    outputs=lambda **args: (),
    layout="any",
    source="torch.Tensor.mul_",
)
