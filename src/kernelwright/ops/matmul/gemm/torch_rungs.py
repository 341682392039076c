"""matmul and linear in PyTorch: the sum of products as in the formula, and cuBLAS."""

import torch
import torch.nn.functional as F

ACT = {
    "none": lambda z: z,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "silu": F.silu,
}
CHUNK = 1 << 24  # products in memory at a time


def manual(a, b, tf32=False):
    """Every product as an element of a tensor, then their sums: m n k elements are written and read
    where m k and k n would suffice. A few rows at a time, so that they fit in memory."""
    wide = torch.promote_types(a.dtype, torch.float32)
    rows = a.to(wide).split(max(1, CHUNK // max(1, b.numel())), -2)
    sums = [(r.unsqueeze(-1) * b.to(wide).unsqueeze(-3)).sum(-2) for r in rows]
    return torch.cat(sums, -2).to(a.dtype)


def native(a, b, tf32=False):
    """cuBLAS, which supports strides if one of the last two is 1."""
    return _precise(tf32, torch.matmul, a, b)


def compiled(a, b, tf32=False):
    return torch.matmul(a, b)


def manual_linear(x, weight, bias, gate, residual, activation, keep, tf32=False):
    wide = torch.promote_types(x.dtype, torch.float32)
    z = manual(x.to(wide), weight.to(wide).t())
    z = z if bias is None else z + bias.to(wide)
    y = _epilogue(z, gate, residual, activation)
    return y.to(x.dtype), z.to(x.dtype) if keep else x.new_empty(0)


def native_linear(x, weight, bias, gate, residual, activation, keep, tf32=False):
    """cuBLAS with the bias in its epilogue; the other operations are separate kernels."""
    return _linear(_precise(tf32, F.linear, x, weight, bias), gate, residual, activation, keep)


def compiled_linear(x, weight, bias, gate, residual, activation, keep, tf32=False):
    return _linear(F.linear(x, weight, bias), gate, residual, activation, keep)


def _linear(z, gate, residual, activation, keep):
    y = _epilogue(z, gate, residual, activation)
    return y.clone() if keep and y is z else y, z if keep else z.new_empty(0)


def _epilogue(z, gate, residual, activation):
    y = ACT[activation](z)
    y = y if gate is None else y * gate
    return y if residual is None else y + residual


def _precise(tf32, product, x, *others):
    """The product, with float32 operands rounded to tf32 only if `tf32` allows it. PyTorch's
    setting agrees with it, unless a rung is called directly."""
    setting = torch.backends.cuda.matmul
    if x.dtype != torch.float32 or not x.is_cuda or tf32 == (setting.fp32_precision == "tf32"):
        return product(x, *others)
    before, setting.fp32_precision = setting.fp32_precision, "tf32" if tf32 else "ieee"
    try:
        return product(x, *others)
    finally:
        setting.fp32_precision = before
