"""The table of decompositions: what each operator is in PyTorch's own operators.

ONNX, AOTInductor and every other reader of an exported program take their operators from this one
table. An entry is the rung that is the formula (`manual`), the rung that calls PyTorch's operator
(`native`) where readers know that operator, or one of the functions below where PyTorch's function
of torch.nn.functional says more than both: readers keep it as one operator (a layer norm, an
attention). Results that a graph does not use, such as statistics, are removed from it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional as F

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import Ladder, Operator
from kernelwright.dispatch import ladders
from kernelwright.dispatch.launcher import entry_of
from kernelwright.ops.matmul.quantized.weights import dequantized
from kernelwright.support.errors import UsageError

NAMESPACE = "kernelwright"

#: Operators whose rung `native` calls one operator of PyTorch that readers know. The others are
#: decomposed by `manual`, or by `native` if they have no `manual`.
BY_NATIVE = frozenset(
    (
        "add", "argsort", "avg_pool2d", "batch_norm_inference", "bias_gelu", "cat", "conv2d",
        "cumsum", "gather", "geglu", "gelu", "interpolate", "msort", "mul", "pad", "permute_copy",
        "relu", "scatter_add", "sigmoid", "silu", "softmax", "sort", "squared_relu", "sum",
        "swiglu", "tanh", "topk", "upsample_nearest2d",
    )
)  # fmt: skip

#: Operators that compute with numbers that ONNX's operators do not have, and why.
NOT_IN_ONNX = {
    **dict.fromkeys(
        (
            "bernoulli", "bernoulli_p", "bias_dropout_add", "bias_dropout_add_with_mask", "dropout",
            "dropout_with_mask", "layer_norm_residual_dropout_gelu", "rand", "randn", "sample",
        ),
        "it computes random bits in unsigned 64-bit integers; export a model in eval mode",
    ),
    "linear_attention": "ONNX has no recurrence over a matrix of state",
    "histc": "ONNX cannot search in sorted values",
    "scaled_mm": "ONNX has no product of scaled fp8 operands",
    "spmv": "ONNX has no sum of segments",
}  # fmt: skip

#: Operators that no exported program can hold: they decide by the values of tensors.
BY_VALUES = {
    "attention_varlen": "it runs over the lengths of the sequences, which are values of a tensor",
    "nms": "its number of results depends on the values of the boxes",
    "roi_align": "its number of samples depends on the sizes of the regions",
}


def table() -> dict[Any, Callable]:
    """The decompositions by overload, for `ExportedProgram.run_decompositions`. Operators that
    change their arguments have none, because an exported program is functional."""
    of_operators = {
        overload_of(x.operator): _decomposition(x) for x in ladders() if not x.operator.mutated
    }
    return of_operators | _OF_PYTORCH


def refuse(overloads: Iterable[Any], *, of: str, onnx: bool) -> None:
    """Raise UsageError for the first operator of ours that cannot be exported.

    Args:
        overloads: the targets of a graph's calls.
        of: what is exported, for the message.
        onnx: whether it is to be an ONNX file.
    """
    known = {overload_of(x.operator): x.operator for x in ladders()}
    for overload in overloads:
        op = known.get(overload)
        if op is not None and (reason := _refused(op, onnx)):
            raise UsageError(f"{of}: it calls {op.name}, which cannot be exported: {reason}")


def _refused(op: Operator, onnx: bool) -> str | None:
    if op.mutated:
        return f"it changes its arguments ({', '.join(op.mutated)})"
    name = op.name.removesuffix(".backward")
    return BY_VALUES.get(name) or (NOT_IN_ONNX.get(name) if onnx else None)


def overload_of(op: Operator) -> Any:
    return getattr(getattr(torch.ops, NAMESPACE), op.torch_name).default


def _decomposition(ladder: Ladder) -> Callable:
    """The entry of an operator; it takes arguments as the dispatcher passes them, without those
    that equal their defaults."""
    op = ladder.operator
    formula = _FORMULAS.get(op.name) or _rung(ladder)

    def decomposed(*args: Any, rung: str | None = None) -> Any:
        return formula(*args, *(a.default for a in op.args[len(args) :]))

    return decomposed


def _rung(ladder: Ladder) -> Callable:
    name = _RUNGS.get(ladder.name, "native" if ladder.name in BY_NATIVE else "manual")
    return entry_of(ladder, ladder.rung(name if name in ladder.names else "native"))


# Formulas in functions of torch.nn.functional, which readers keep whole. As in our kernels, norms
# compute in float32 or wider and round once.


def _layer_norm(x, weight, bias, eps):
    xw, shape = x.to(_wide(x)), x.shape[-1:]
    y = F.layer_norm(xw, shape, _to(weight, xw), _to(bias, xw), eps).to(x.dtype)
    var, mean = torch.var_mean(xw, -1, correction=0, keepdim=True)
    return y, mean, torch.rsqrt(var + eps)


def _rms_norm(x, weight, eps, offset=0.0):
    xw = x.to(_wide(x))
    scale = _to(weight, xw)
    scale = scale + offset if scale is not None and offset else scale
    y = F.rms_norm(xw, x.shape[-1:], scale, eps).to(x.dtype)
    return y, torch.rsqrt(xw.square().mean(-1, keepdim=True) + eps)


def _add_layer_norm(x, residual, weight, bias, eps):
    h = x + residual
    y, *statistics = _layer_norm(h, weight, bias, eps)
    return y, h, *statistics


def _add_rms_norm(x, residual, weight, eps, offset=0.0):
    h = x + residual
    y, rstd = _rms_norm(h, weight, eps, offset)
    return y, h, rstd


def _group_norm(x, weight, bias, groups, eps, channels_last=False, silu=False):
    image = x.movedim(-1, 1) if channels_last else x
    wide = image.to(_wide(x))
    y = F.group_norm(wide, groups, _to(weight, wide), _to(bias, wide), eps)
    y = F.silu(y) if silu else y
    rows = wide.reshape(wide.shape[0], groups, -1)
    var, mean = torch.var_mean(rows, -1, correction=0)
    y = y.movedim(1, -1) if channels_last else y
    return y.to(x.dtype), mean, torch.rsqrt(var + eps)


def _embedding(weight, indices, num_weights, padding_idx=-1):
    return F.embedding(indices, weight)


def _matmul(a, b, tf32=False):
    return torch.matmul(a, b)


def _linear(x, weight, bias, gate, residual, activation, keep, tf32=False):
    z = F.linear(x, weight, bias)
    y = _ACTIVATIONS[activation](z)
    y = y if gate is None else y * gate
    y = y if residual is None else y + residual
    return y.clone() if keep and y is z else y, z if keep else z.new_empty(0)


def _attention(q, k, v, mask, seed, causal, mask_grad, scale, p):
    if seed is not None or mask_grad:
        return _rung(_ladder("scaled_dot_product_attention"))(
            q, k, v, mask, seed, causal, mask_grad, scale, p
        )
    grouped = bool(q.shape[1] != k.shape[1])
    given = mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype)
    y = F.scaled_dot_product_attention(q, k, v, given, 0.0, causal, scale=scale, enable_gqa=grouped)
    statistics = _rung(_ladder("scaled_dot_product_attention"))
    return y, statistics(q, k, v, mask, None, causal, False, scale, p)[1]


def _max_pool2d(x, hw, kernel, stride, padding, dilation, ceil, keep):
    rung = "manual" if keep else "native"
    ladder = _ladder("max_pool2d")
    return entry_of(ladder, ladder.rung(rung))(x, hw, kernel, stride, padding, dilation, ceil, keep)


def _quantized_linear(x, packed, scales, bias, bits):
    # shifted and masked in one type, because ONNX joins only tensors of one type
    return F.linear(x, dequantized(packed.to(torch.int32), scales, bits, x.dtype), bias)


def _ladder(name: str) -> Ladder:
    return next(x for x in ladders() if x.name == name)


def _wide(x: torch.Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _to(t: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor | None:
    return t if t is None else t.to(like.dtype)


#: Rungs of operators whose `manual` runs over a size in a loop.
_RUNGS = {"linear_attention": "quadratic", "linear_attention.backward": "quadratic"}
_ACTIVATIONS: dict[str, Callable] = {
    "none": lambda z: z,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "silu": F.silu,
}
_FORMULAS: dict[str, Callable] = {
    "add_layer_norm": _add_layer_norm,
    "add_rms_norm": _add_rms_norm,
    "embedding": _embedding,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "matmul": _matmul,
    "max_pool2d": _max_pool2d,
    "quantized_linear": _quantized_linear,
    "rms_norm": _rms_norm,
    "scaled_dot_product_attention": _attention,
}


# ONNX splits into a number of parts that depends on the size become a sequence, which TensorRT
# does not accept; slices of given sizes do not.


def _split(x, size, dim=0):
    n = x.shape[dim]
    if not isinstance(n, int):
        return NotImplemented
    return x.split_with_sizes([min(size, n - i) for i in range(0, max(n, 1), size)], dim)


def _chunk(x, chunks, dim=0):
    n = x.shape[dim]
    return _split(x, max(1, -(-n // chunks)), dim) if isinstance(n, int) else NotImplemented


_OF_PYTORCH: dict[Any, Callable] = {
    torch.ops.aten.split.Tensor: _split,
    torch.ops.aten.chunk.default: _chunk,
}
