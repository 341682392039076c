"""Dropout that stores a bit mask, and dropout between a bias and a residual: the mathematics.

    dropout_with_mask             y = f x, and the mask
    bias_dropout_add              y = f (x + bias) + residual
    bias_dropout_add_with_mask    the same, and the mask

with dropout's factor f (spec.py): 1 / (1 - p) if kept, else 0. Without a seed f is 1. Bit i % 32 of
the mask's word i // 32 says whether element i, in row-major order, is kept. The backward is gx = f
gy and gbias, its sum over the rows; the residual's gradient is gy itself. f is recomputed from the
seed, or read from the mask: the two operators differ in the tensors that they save.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.inputs import tensor
from kernelwright.contract.rounding import U

from .._keep import factor, kept
from . import spec
from .mask import pack, unpack

BENCH = {
    (8192, 4096): "Llama 3 8B residual, 8192 tokens",
    (32768, 768): "GPT-2 residual, 32 x 1024 tokens",
}
FLOATS = torch.float32, torch.bfloat16


def _cases(*sweep, big=(2**19 + 1, 4096)):
    """A few cases of each kind: dropout's own cases verify the mask."""
    p = {"p": 0.1}
    layouts = ("sliced", "permuted", "offset", "expanded")
    return (
        *(case(s, torch.float32, **p) for s in ((0,), (1,), (3, 0), (7,), (2, 3, 129), (77, 264))),
        *(case((6, 40), d, layout=x, **p) for d in FLOATS for x in layouts),
        *(case((5, 33), d, **p) for d in (torch.float16, torch.bfloat16)),
        *(case((4, 64), torch.float16, values=v, **p) for v in ("large", "nan", "inf")),
        *(case((300, 72), d, **p) for d in (torch.float16, torch.bfloat16)),
        *(case(s, torch.float32, **{**p, **more}) for more in sweep for s in ((4, 3, 64), (5, 33))),
        *(case(s, d, use="bench", label=n, **p) for s, n in BENCH.items() for d in FLOATS),
        case(big, torch.bfloat16, use="big", **p),
    )


MASK_CASES = _cases({"p": 0.5}, {"p": 1.0})
CASES = _cases({"p": 0.5}, {"p": 1.0}, {"bias": "none"}, {"seed": "none"})
KEPT_CASES = _cases({"p": 0.5}, {"bias": "none"})


def bias_dropout_add(x, bias, residual, seed, p):
    return _biased(x, bias) * _factor(x.shape, seed, p) + residual


def bias_dropout_add_backward(gy, bias, seed, p):
    return _gradients(gy * _factor(gy.shape, seed, p), bias)


def dropout_with_mask(x, seed, p):
    return x * factor(x.shape, seed, p), pack(kept(x.shape, seed, p))


def dropout_with_mask_backward(gy, mask, p):
    return gy * _factor_of(mask, gy.shape, p)


def bias_dropout_add_with_mask(x, bias, residual, seed, p):
    return bias_dropout_add(x, bias, residual, seed, p), pack(kept(x.shape, seed, p))


def bias_dropout_add_with_mask_backward(gy, bias, mask, p):
    return _gradients(gy * _factor_of(mask, gy.shape, p), bias)


def _biased(x, bias):
    return x if bias is None else x + bias


def _factor(shape, seed, p):
    return 1.0 if seed is None else factor(shape, seed, p)


def _factor_of(mask, shape, p):
    return unpack(mask, shape).to(torch.float64) * (1 / (1 - p) if p < 1 else 0.0)


def _gradients(gx, bias):
    return gx, gx.new_empty(0) if bias is None else gx.sum_to_size(bias.shape)


def inputs(c, device):
    """The inputs of all forwards; each takes those that its schema names."""
    x = tensor(c, "x", device)
    bias = None if c.param("bias") == "none" else tensor(c, "bias", device, shape=c.shape[-1:])
    return {"x": x, "bias": bias, "residual": tensor(c, "residual", device),
            "seed": None if c.param("seed") == "none" else spec.seed(c, device),
            "p": c.param("p")}  # fmt: skip


def backward_inputs(c, device):
    args = inputs(c, device)
    mask = pack(kept(c.shape, spec.seed(c, device), c.param("p")))
    return {**args, "gy": tensor(c, "gy", device), "mask": mask}


def _only(make, *names):
    return lambda c, device: {k: v for k, v in make(c, device).items() if k in names}


def mask_spec(x):
    return TensorSpec.contiguous((cdiv(x.numel(), 32),), torch.int32)


def outputs(x, **others):
    return (TensorSpec.contiguous(x.shape, x.dtype),)


def outputs_with_mask(x, **others):
    return *outputs(x), mask_spec(x)


def backward_outputs(gy, bias, **others):
    gx = TensorSpec.contiguous(gy.shape, gy.dtype)
    shape, kind = ((0,), gy.dtype) if bias is None else (bias.shape, bias.dtype)
    return gx, TensorSpec.contiguous(shape, kind)


def _cost(outs):
    """All floating-point arguments are read, all results are written; the seed is not counted."""

    def cost(seed=None, p=0.0, **tensors):
        read = {k: t for k, t in tensors.items() if t is not None and not _unread(k, tensors)}
        main = tensors.get("x") if "x" in tensors else tensors["gy"]
        wrote = outs(seed=seed, p=p, **tensors)
        return Cost(
            tuple(t.nbytes for t in read.values()),
            tuple(t.nbytes for t in wrote if t.numel()),
            flops=3 * main.numel(),
        )

    return cost


def _unread(name, tensors):
    """A backward uses only the shape of a bias."""
    return name == "bias" and "gy" in tensors


def noise(x, bias, residual, seed, p):
    """The sum, the product and the second sum are each rounded; terms may cancel."""
    f = _factor(x.shape, seed, p)
    term = (x.double().abs() + (0.0 if bias is None else bias.double().abs())) * f
    return (U * (3 * term + residual.double().abs()),)


def noise_with_mask(x, bias, residual, seed, p):
    return *noise(x, bias, residual, seed, p), x.new_zeros(mask_spec(x).shape, dtype=torch.float64)


def _sum_noise(gx, bias):
    """gx: two rounding errors. gbias: a tree sum with independent rounding errors (Higham, Accuracy
    and Stability of Numerical Algorithms, 4.2)."""
    exact = 2 * U * gx.abs()
    if bias is None:
        return exact, gx.new_empty(0)
    levels = 2 + math.log2(max(gx.numel() // max(gx.shape[-1], 1), 2))
    return exact, U * (levels * gx.square()).sum_to_size(bias.shape).sqrt()


def backward_noise(gy, bias, seed, p):
    return _sum_noise(gy.double() * _factor(gy.shape, seed, p), bias)


def backward_noise_with_mask(gy, bias, mask, p):
    return _sum_noise(gy.double() * _factor_of(mask, gy.shape, p), bias)


def _dropped(args, results):
    """Exactly the dropped elements of gx are 0."""
    gy = args["gy"]
    if args.get("mask") is None and args.get("seed") is None:
        return None
    keep = (
        unpack(args["mask"], gy.shape)
        if "mask" in args
        else kept(gy.shape, args["seed"], args["p"])
    )
    wrong = ((results[0] != 0) != keep) & gy.isfinite() & (gy != 0)
    return f"{int(wrong.sum())} elements are dropped or kept wrongly" if wrong.any() else None


_DROPPED = {"exactly the dropped elements are 0": _dropped}
DROPOUT_WITH_MASK = Operator(
    name="dropout_with_mask",
    schema="(Tensor x, Tensor seed, float p) -> (Tensor y, Tensor mask)",
    reference=dropout_with_mask,
    inputs=_only(inputs, "x", "seed", "p"),
    cases=MASK_CASES,
    cost=_cost(outputs_with_mask),
    outputs=outputs_with_mask,
    layout="rows",
    properties={"the mask is Philox's": spec.mask},
    source="torch.native_dropout; Philox: Salmon et al. 2011",
)
DROPOUT_WITH_MASK_BACKWARD = Operator(
    name="dropout_with_mask.backward",
    schema="(Tensor gy, Tensor mask, float p) -> (Tensor gx)",
    reference=dropout_with_mask_backward,
    inputs=_only(backward_inputs, "gy", "mask", "p"),
    cases=MASK_CASES,
    cost=_cost(lambda gy, **others: outputs(gy)),
    outputs=lambda gy, mask, p: outputs(gy),
    layout="rows",
    properties=_DROPPED,
    source="torch.ops.aten.native_dropout_backward",
)
BIAS_DROPOUT_ADD = Operator(
    name="bias_dropout_add",
    schema="(Tensor x, Tensor? bias, Tensor residual, Tensor? seed, float p) -> (Tensor y)",
    reference=bias_dropout_add,
    inputs=inputs,
    cases=CASES,
    cost=_cost(outputs),
    outputs=outputs,
    layout="rows",
    noise=noise,
    source="dropout(x + bias) + residual: Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053",
)
BIAS_DROPOUT_ADD_BACKWARD = Operator(
    name="bias_dropout_add.backward",
    schema="(Tensor gy, Tensor? bias, Tensor? seed, float p) -> (Tensor gx, Tensor gbias)",
    reference=bias_dropout_add_backward,
    inputs=_only(backward_inputs, "gy", "bias", "seed", "p"),
    cases=CASES,
    cost=_cost(backward_outputs),
    outputs=backward_outputs,
    layout="rows",
    noise=backward_noise,
    properties=_DROPPED,
    source="autograd of dropout(x + bias) + residual",
)
BIAS_DROPOUT_ADD_WITH_MASK = Operator(
    name="bias_dropout_add_with_mask",
    schema="(Tensor x, Tensor? bias, Tensor residual, Tensor seed, float p)"
    " -> (Tensor y, Tensor mask)",
    reference=bias_dropout_add_with_mask,
    inputs=inputs,
    cases=KEPT_CASES,
    cost=_cost(outputs_with_mask),
    outputs=outputs_with_mask,
    layout="rows",
    noise=noise_with_mask,
    source="dropout(x + bias) + residual: Megatron-LM, Shoeybi et al. 2019, arXiv:1909.08053",
)
BIAS_DROPOUT_ADD_WITH_MASK_BACKWARD = Operator(
    name="bias_dropout_add_with_mask.backward",
    schema="(Tensor gy, Tensor? bias, Tensor mask, float p) -> (Tensor gx, Tensor gbias)",
    reference=bias_dropout_add_with_mask_backward,
    inputs=_only(backward_inputs, "gy", "bias", "mask", "p"),
    cases=KEPT_CASES,
    cost=_cost(backward_outputs),
    outputs=backward_outputs,
    layout="rows",
    noise=backward_noise_with_mask,
    properties=_DROPPED,
    source="autograd of dropout(x + bias) + residual",
)
