"""cross_entropy: schemas, references and cases. ops/loss/_terms.py has the mathematics.

There are four operators: the loss, its backward from a saved maximum and sum of exponentials, loss
and gradient in one pass, and the latter in place of the logits with a factor per token, for callers
that process logits in chunks.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U, root_levels
from kernelwright.contract.sharding import Rows, last_dimension

from .. import _terms
from .._terms import Form

# (tokens, classes): the tables that quack and Liger publish.
BENCH = {
    (8192, 50304): "GPT-2 vocabulary, padded",
    (8192, 128256): "Llama 3 vocabulary",
    (4096, 262144): "Gemma vocabulary",
    (32768, 32000): "Llama 2 vocabulary",
}
CHUNKS = {
    (2816, 50304): "a chunk of GPT-2's tokens",
    (2048, 128256): "a chunk of Llama 3 8B's",
    (1024, 262144): "a chunk of Gemma 2 2B's",
}
# Defaults of a case's parameters.
DEFAULTS = {
    "ignore_index": -100,
    "reduction": "mean",
    "label_smoothing": 0.0,
    "z_loss": 0.0,
    "softcap": 0.0,
}
EVERYTHING = {
    "label_smoothing": 0.1,
    "z_loss": 1e-2,
    "softcap": 2.0,
    "weight": True,
    "ignored": "some",
}
SWEEP = (
    {"reduction": "none"},
    {"reduction": "sum", "ignored": "some"},
    {"ignored": "all"},
    {"ignore_index": 3, "index": torch.int32},
    {"weight": True, "ignored": "some"},
    {"label_smoothing": 0.1},
    {"z_loss": 1e-2},
    {"softcap": 2.0},
    EVERYTHING,
)
F32, F16, BF16 = FLOATS
SHIFTED = {**EVERYTHING, "softcap": 0.0, "z_loss": 0.0, "reduction": "none", "to": F32}
# `adversarial` would take minutes in Triton's interpreter: one program per token
CASES = (
    *(case(s, F32) for s in ((1,), (7,), (0, 5), (5, 33), (2, 2, 129), (1, 2, 1, 2, 5))),
    *(case(s, d) for d in (F16, BF16) for s in ((7,), (0, 5), (3, 33), (2, 129))),
    *(case((2, 5000), d, label="more than a block") for d in FLOATS),
    *(
        case((3, 40), d, layout=layout)
        for d in (F32, BF16)
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((2, 2, 37), F32, layout=layout) for layout in ("sliced", "permuted")),
    *(case((2, 66), d, values="neginf_row") for d in FLOATS),
    *(
        case((2, 66), d, values=values, reduction="none", label_smoothing=0.1)
        for d in (F32, BF16)
        for values in ("large", "nan", "inf", "neginf_row", "constant")
    ),
    *(case((3, 66), d, values="shifted", to=F32) for d in FLOATS),
    *(case((2, 2053), d, values="shifted", **SHIFTED) for d in (F32, BF16)),
    *(case((3, 33), F32, **extra) for extra in SWEEP),
    *(case((3, 64), d, **EVERYTHING) for d in (F16, BF16)),
    *(case((2, 2053), d, reduction="none", **EVERYTHING) for d in FLOATS),
    case((3, 64), BF16, to=F32),
    *(
        case(shape, d, use="bench", label=label)
        for shape, label in BENCH.items()
        for d in (BF16, F32)
    ),
    case((2**14 + 1, 2**17), BF16, use="big"),
)
# code that the operators with a gradient share with the others is verified there
TOGETHER = tuple(
    c
    for c in CASES
    if c.use != "verify"
    or (c.dtype == F32 and c.layout != "expanded" and c.values != "constant")
    or (c.dtype == BF16 and c.params)
    or (c.dtype == F16 and c.shape == (2, 2053))
)
# The in-place operator uses the same kernels with another factor and no sum: the single terms of
# the loss are verified with the other operators. The timed cases are the chunks of
# linear_cross_entropy at its bench shapes.
ALONE = (
    *(case((3, 33), F32, **{k: EVERYTHING[k]}) for k in ("label_smoothing", "z_loss", "softcap")),
    case((3, 33), F32, weight=True, ignored="some"),
    case((3, 33), F32, reduction="sum", ignored="some"),
)
IN_PLACE = (
    *(
        c
        for c in TOGETHER
        if c.use != "bench" and c not in ALONE and (c.dtype, c.shape) != (BF16, (2, 66))
    ),
    *(case(shape, BF16, use="bench", label=label) for shape, label in CHUNKS.items()),
)


def reference(x, target, weight, reduction, to=None, **form):
    form, parts = Form(**form), []
    for rows, hit in _terms.pieces(x, target):
        z = _terms.capped(rows, form)
        of = _terms.tokens(z, hit, weight, form)
        loss = _terms.losses(torch.log_softmax(z, -1), torch.logsumexp(z, -1), weight, of, form)
        parts.append((loss, _terms.max_sum(z)))
    loss, max_sum = map(torch.cat, zip(*parts, strict=True))
    totals = _terms.totals(x, weight, _terms.tokens(x, target, weight, form), reduction)
    loss = _terms.reduced(loss.view(target.shape), totals[0], reduction)
    return loss, max_sum.view(*target.shape, 2), totals


def backward_reference(gloss, x, target, weight, max_sum, totals, **form):
    form, parts = Form(**form), []
    scale = (gloss / totals[0]).expand(target.shape)
    for rows, hit, top, total, scale_of_rows in _terms.pieces(
        x, target, *max_sum.unbind(-1), scale
    ):
        z = _terms.capped(rows, form)
        of = _terms.tokens(z, hit, weight, form)
        lse = top + total.log()
        p = torch.exp(z - lse.unsqueeze(-1))
        parts.append(_terms.gradient(p, z, lse, weight, of, totals[1], scale_of_rows, form))
    return torch.cat(parts).view(x.shape)


def with_grad_reference(x, target, weight, reduction, to=None, **form):
    loss, max_sum, totals = reference(x, target, weight, reduction, **form)
    return loss, backward_reference(x.new_ones(()), x, target, weight, max_sum, totals, **form)


def with_grad_in_place_reference(x, target, weight, g, **form):
    loss, max_sum, totals = reference(x, target, weight, "none", **form)
    x.copy_(backward_reference(g, x, target, weight, max_sum, totals, **form))
    return loss


def inputs(c, device):
    said = {**DEFAULTS, **{k: v for k, v in c.params if k in DEFAULTS}}
    return {
        "x": tensor(c, "x", device),
        "target": _target(c, device, said["ignore_index"]),
        "weight": _weight(c, device),
        **said,
        "smooth": said["label_smoothing"] != 0,
        "cap": said["softcap"] != 0,
        "to": c.param("to"),
    }


def backward_inputs(c, device):
    args = inputs(c, device)
    in_float, reduction, to = dict(args), args.pop("reduction"), args.pop("to")
    in_float["x"] = in_float["x"].float()
    _, max_sum, totals = reference(**in_float)
    shape = args["target"].shape if reduction == "none" else ()
    gloss = tensor(c, "gloss", device, shape=shape, dtype=to)
    return {"gloss": gloss, **args, "max_sum": max_sum, "totals": totals}


def with_grad_in_place_inputs(c, device):
    args = inputs(c, device)
    shape = args["target"].shape if args.pop("reduction") == "none" else ()
    del args["to"]
    return {"g": tensor(c, "g", device, shape=shape, dtype=torch.float32), **args}


def _target(c, device, ignore_index):
    """Classes; a third or all of them are ignored."""
    shape = c.shape[:-1]
    drawn = tensor(c, "target", device, shape=shape, dtype=torch.float32)
    target = drawn.mul(1e4).abs().long() % c.shape[-1]
    if c.param("ignored") == "all":
        target.fill_(ignore_index)
    elif c.param("ignored"):
        target.masked_fill_(drawn > 0.4, ignore_index)
    return target.to(c.param("index", torch.int64))


def _weight(c, device):
    """A positive weight per class, in float32 for any dtype of the logits."""
    if not c.param("weight"):
        return None
    return tensor(c, "weight", device, shape=c.shape[-1:], dtype=torch.float32).abs_()


def outputs(x, target, weight, reduction, to=None, **form):
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = tuple(x.shape[:-1])
    return (
        TensorSpec.contiguous(rows if reduction == "none" else (), to or x.dtype),
        TensorSpec.contiguous((*rows, 2), wide),
        TensorSpec.contiguous((2,), wide),
    )


def with_grad_outputs(x, **others):
    return outputs(x=x, **others)[0], TensorSpec.contiguous(x.shape, x.dtype)


def with_grad_in_place_outputs(x, **others):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (TensorSpec.contiguous(x.shape[:-1], wide),)


def public(x, target, weight, ignore_index, reduction, label_smoothing, **others):
    """The arguments of the public functions, and of PyTorch's, for a call without z-loss and
    softcap."""
    options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
    return (x, target, weight), {"reduction": reduction, **options}


def cost(x, target, weight, **others):
    w = 0 if weight is None else weight.nbytes
    rows = 4 * target.numel()
    return Cost(reads=(x.nbytes, target.nbytes, w), writes=(rows,), flops=5 * x.numel())


def backward_cost(x, target, weight, **others):
    w = 0 if weight is None else weight.nbytes
    return Cost(reads=(x.nbytes, target.nbytes, w), writes=(x.nbytes,), flops=5 * x.numel())


def with_grad_cost(x, target, weight, **others):
    w = 0 if weight is None else weight.nbytes
    return Cost(reads=(x.nbytes, target.nbytes, w), writes=(x.nbytes,), flops=10 * x.numel())


# Rounding errors of float32, u = 2^-24, where terms cancel: each operation has an error of u of its
# result, and a tree sum one of u sqrt(log2 n) times the root of its squares (Higham, Accuracy and
# Stability of Numerical Algorithms, 4.2; independent rounding errors: Higham and Mary 2019).


def _noise_of_tokens(x, target, weight, form: Form):
    """(noise of each loss, noise of the maximum and the sum of each row, the losses).

    lse - z_t = (m - z_t) + log s, whatever m and z_t have in common: the difference has an error of
    u of itself, log s one of u of itself and, since s is accurate to a few u, of as much again, and
    the sum one of u of both. A soft cap has an error of 2 u of m and of z_t. Label smoothing has
    the same, averaged over z; the z-loss has 2 q lse times the error of lse = m + log s.
    """
    parts = [
        _noise_of_piece(rows.double(), hit, weight, form) for rows, hit in _terms.pieces(x, target)
    ]
    of_loss, of_rows, losses = (torch.cat(t) for t in zip(*parts, strict=True))
    shape = target.shape
    return of_loss.view(shape), of_rows.view(*shape, 2), losses.view(shape)


def _noise_of_piece(x, target, weight, form: Form):
    z = _terms.capped(x, form)
    of = _terms.tokens(z, target, weight, form)
    top, total = _terms.max_sum(z).unbind(-1)
    lse, of_top = top + total.log(), 2 * U * top.abs() if form.cap else torch.zeros_like(top)
    each = U * (2 * (top.unsqueeze(-1) - z) + 2 * total.log().unsqueeze(-1) + 2)
    if form.cap:
        each = each + 2 * U * (top.unsqueeze(-1).abs() + z.abs())
    at = each.gather(-1, of.hit.unsqueeze(-1)).squeeze(-1)
    noise = of.weight * at
    if form.smooth:
        every = 1 if weight is None else weight.double()
        noise = noise + form.label_smoothing * (every * each).mean(-1)
    of_lse = U * (top.abs() + lse.abs() + 2) + of_top
    noise = noise + form.z_loss * of.weight * (2 * lse.abs() * of_lse + U * lse.square())
    losses = _terms.losses(torch.log_softmax(z, -1), lse, weight, of, form)
    of_total = torch.exp(z - top.unsqueeze(-1)).mul_(each).sum(-1) + U * total
    of_rows = torch.stack((of_top, of_total), -1)
    return noise.masked_fill(of.ignored, 0.0).nan_to_num(0, 0, 0), of_rows, losses


def noise(x, target, weight, reduction, to=None, **form):
    form = Form(**form)
    of_loss, of_rows, losses = _noise_of_tokens(x, target, weight, form)
    of = _terms.tokens(x.double(), target, weight, form)
    totals = _terms.totals(x.double(), weight, of, reduction)
    squares = of.weight.square().sum(), x.new_tensor(0.0) if weight is None else weight.norm() ** 2
    of_totals = U * root_levels(max(x.shape)) * torch.stack([s.double().sqrt() for s in squares])
    if reduction != "none":
        of_sum = (
            of_loss.norm() + U * root_levels(target.numel()) * losses.nan_to_num(0, 0, 0).norm()
        )
        of_loss = (of_sum / totals[0]).nan_to_num(0, 0, 0)
    return of_loss, of_rows.nan_to_num(0, 0, 0), of_totals


def backward_noise(gloss, x, target, weight, max_sum, totals, **form):
    """a p_j - b_j, where b is the target's 1 and the terms of smoothing: u of both terms, and of
    the exponent of p_j. The factor 1 - tanh^2 of softcap has an error of 2 u."""
    form = Form(**form)
    scale = (gloss.double() / totals[0]).expand(target.shape)
    parts = [
        _backward_noise_of_piece(rows.double(), *of_tokens, weight, totals, form)
        for rows, *of_tokens in _terms.pieces(x, target, *max_sum.double().unbind(-1), scale)
    ]
    return (torch.cat(parts).view(x.shape),)


def _backward_noise_of_piece(x, target, top, total, scale, weight, totals, form: Form):
    z = _terms.capped(x, form)
    of = _terms.tokens(z, target, weight, form)
    lse = top + total.log()
    exponent = z - lse.unsqueeze(-1)
    of_p = (1 - form.label_smoothing + 2 * form.z_loss * lse.abs()) * of.weight
    if form.smooth:
        of_p = of_p + form.label_smoothing / z.shape[-1] * totals[1].double()
    term_p = of_p.unsqueeze(-1) * exponent.exp()
    term_b = _terms.gradient_of_logp(z, weight, of, form)
    noise = U * (term_p * (2 + exponent.abs()) + term_b.abs())
    if form.cap:
        noise = noise + 2 * U * ((term_p + term_b).abs() + term_p * (z.abs() + top.abs()[:, None]))
    noise = noise.masked_fill(of.ignored.unsqueeze(-1), 0.0)
    return (noise * scale.unsqueeze(-1).abs()).nan_to_num(0, 0, 0)


def with_grad_noise(x, target, weight, reduction, to=None, **form):
    of_loss = noise(x, target, weight, reduction, **form)[0]
    _, max_sum, totals = reference(x.double(), target, weight, reduction, **form)
    one = x.new_ones((), dtype=torch.float64)
    return of_loss, *backward_noise(one, x, target, weight, max_sum, totals, **form)


def with_grad_in_place_noise(x, target, weight, g, **form):
    of_loss = noise(x, target, weight, "none", **form)[0]
    _, max_sum, totals = reference(x.double(), target, weight, "none", **form)
    return of_loss, *backward_noise(g, x, target, weight, max_sum, totals, **form)


# For `sharding`: tensors with one value per token, without the dimension of classes.
BESIDE = dict.fromkeys(("target", "loss", "gloss"), -1)
WHOLE = ("weight", "totals")


def _unless_mean(args):
    """Dimensions that must not be split: a mean is over all tokens."""
    return tuple(range(-len(args["x"].shape), 0)) if args["reduction"] == "mean" else (-1,)


_FORM = (
    "int ignore_index, float label_smoothing, float z_loss, float softcap, bool smooth, bool cap"
)
_CALL = f"(Tensor x, Tensor target, Tensor? weight, str reduction, {_FORM}, ScalarType? to=None)"
SOURCE = (
    "torch.nn.functional.cross_entropy; z-loss: Chowdhery et al. 2022, arXiv:2204.02311, 5;"
    " softcap: Gemma Team 2024, arXiv:2408.00118, 2"
)
FORWARD = Operator(
    name="cross_entropy",
    schema=f"{_CALL} -> (Tensor loss, Tensor max_sum, Tensor totals)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(_unless_mean, "x", BESIDE, WHOLE),
    noise=noise,
    source=SOURCE,
)
BACKWARD = Operator(
    name="cross_entropy.backward",
    schema="(Tensor gloss, Tensor x, Tensor target, Tensor? weight, Tensor max_sum, Tensor totals,"
    f" {_FORM}) -> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=lambda x, **others: (TensorSpec.contiguous(x.shape, x.dtype),),
    layout="rows",
    contiguous=("max_sum", "totals"),
    sharding=Rows(last_dimension, "x", BESIDE, WHOLE),
    noise=backward_noise,
    source="autograd of torch.nn.functional.cross_entropy",
)
WITH_GRAD = Operator(
    name="cross_entropy_with_grad",
    schema=f"{_CALL} -> (Tensor loss, Tensor gx)",
    reference=with_grad_reference,
    inputs=inputs,
    cases=TOGETHER,
    cost=with_grad_cost,
    outputs=with_grad_outputs,
    layout="rows",
    sharding=Rows(_unless_mean, "x", BESIDE, WHOLE),
    noise=with_grad_noise,
    source=SOURCE,
)
WITH_GRAD_IN_PLACE = Operator(
    name="cross_entropy_with_grad_",
    schema=f"(Tensor(a!) x, Tensor target, Tensor? weight, Tensor g, {_FORM}) -> (Tensor loss)",
    reference=with_grad_in_place_reference,
    inputs=with_grad_in_place_inputs,
    cases=IN_PLACE,
    cost=with_grad_cost,
    outputs=with_grad_in_place_outputs,
    layout="rows",
    noise=with_grad_in_place_noise,
    source=SOURCE,
)
