"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract import is_dense
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

EACH = ({"block": 1024, "num_warps": 4},)
# elements per program; each further program is a chunk more to look up
TRITON = (
    {"block": 2048, "num_warps": 8},
    {"block": 1024, "num_warps": 4},
    {"block": 4096, "num_warps": 8},
)
# a block processes `rounds` times the vectors that its threads load at once, `vecs` of 16 bytes
# each
CUDA = (
    {"block": 256, "vecs": 2, "rounds": 2},
    {"block": 256, "vecs": 1, "rounds": 4},
    {"block": 256, "vecs": 2, "rounds": 8},
    {"block": 128, "vecs": 2, "rounds": 4},
)
NUMBERS = ("lr_tensor", "grad_scale", "found_inf")


def plain(gpu, max_exp_avg_sqs, copies, **others):
    """Requirements of rungs without options: parameters, two moments and numbers only."""
    if max_exp_avg_sqs:
        return "AMSGrad is not supported"
    if copies or others.get("seed") is not None:
        return "copies and stochastic rounding are not supported"
    for name in NUMBERS[1:]:
        if others.get(name) is not None:
            return f"{name} is not supported"
    return None


def fits_each(gpu, **specs):
    if specs.get("lr_tensor") is not None:
        return "lr_tensor is not supported"
    return plain(gpu, **specs) or fits(gpu, **specs)


def fits(gpu, params, max_exp_avg_sqs, **others):
    """Requirements of kernels over lists: one dtype per list, and the same layout in every list."""
    if max_exp_avg_sqs:
        return "AMSGrad is not supported"
    lists = {"params": params}
    lists |= {n: others[n] for n in ("grads", "exp_avgs", "exp_avg_sqs", "copies") if others[n]}
    for name, tensors in lists.items():
        if why := unsupported_dtype(tensors[0].dtype, f"{name}[0]"):
            return why
        for k, (t, p) in enumerate(zip(tensors, params, strict=True)):
            if t.dtype != tensors[0].dtype:
                return f"{name}[{k}] is {t.dtype}, {name}[0] is {tensors[0].dtype}"
            if not is_dense(t.shape, t.strides):
                return f"{name}[{k}] has gaps between its elements"
            if t.shape != p.shape or _steps(t) != _steps(p):
                return f"{name}[{k}] has a shape or strides other than params[{k}]"
    if others["exp_avgs"][0].dtype != others["exp_avg_sqs"][0].dtype:
        return "exp_avgs and exp_avg_sqs have different dtypes"
    for name in NUMBERS:
        number = others.get(name)
        if number is not None and number.dtype != torch.float32:
            return f"{name} is {number.dtype}, not float32"
    return None


def _steps(t) -> tuple[int, ...]:
    """The strides of dimensions with several elements."""
    return tuple(s for s, n in zip(t.strides, t.shape, strict=True) if n != 1)


def order(gpu, **others):
    return ("cuda_list", "triton_list")


def bucket(params, **others):
    """Key of a call in the tuned table: dtype, elements and parameters by powers of two."""
    n = sum(p.numel() for p in params)
    return f"{kind(params[0].dtype)}/{next_power_of_2(n)}/{next_power_of_2(len(params))}"
