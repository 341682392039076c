"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, log2, off_boundary, unsupported_dtype

from .call import OCTET, STATIC, Call, shape, walk_bytes

COLS, COLS_BACKWARD = 16384, 8192  # elements of a row that fit in a Triton program's registers
# tile: minimum number of elements of a program's tile; items: of them, per thread
TRITON_CONFIGS = ({"tile": 2048, "items": 16}, {"tile": 4096, "items": 32})
# programs: per multiprocessor
TRITON_CONFIGS_BACKWARD = (
    {"tile": 1024, "items": 8, "programs": 4},
    {"tile": 2048, "items": 16, "programs": 2},
)
# octets: pieces per thread, in float32 twice as many; more if a row needs it
BLOCK_CONFIGS = ({"octets": 1}, {"octets": 2})
OCTETS_CONFIGS = ({"octets": 4}, {"octets": 2})
# resident: threads per multiprocessor; 512 threads have 128 registers each
WALK_CONFIGS = (
    {"octets": 4, "resident": 512},
    {"octets": 4, "resident": 768},
    {"octets": 2, "resident": 768},
    {"octets": 2, "resident": 1024},
    {"octets": 2, "resident": 512},
)
BLOCK_CONFIGS_BACKWARD = (
    {"octets": 1, "resident": 512},
    {"octets": 1, "resident": 768},
    {"octets": 1, "resident": 1024},
    {"octets": 2, "resident": 512},
)


def _fits(c: Call):
    if why := unsupported_dtype(c.dtype):
        return why
    for name in ("residual", "gy"):
        t = c.args.get(name)
        if t is not None and t.dtype != c.dtype:
            return f"{name} is {t.dtype}, x is {c.dtype}"
    return None


def fits_triton(gpu, **args):
    c = Call(args)
    limit = COLS_BACKWARD if c.backward else COLS
    if c.cols > limit:
        return f"a row of {c.cols} does not fit a program's registers ({limit})"
    return _fits(c)


def fits_block(gpu, **args):
    c = Call(args)
    if c.cols % OCTET:
        return f"a row of {c.cols} elements is not a multiple of {OCTET}"
    if shape(c, BLOCK_CONFIGS[0]) is None:
        return f"a row of {c.cols} does not fit a block's registers"
    for name, stride in zip(c.read, c.strides, strict=True):
        if stride % c.width:
            return f"{name}: a row stride of {stride} elements is not a multiple of 16 bytes"
    for name in c.parameters:
        dtype = args[name].dtype
        if dtype not in (c.dtype, torch.float32) or dtype != c.parameter_dtype:
            return f"{name} is {dtype}, parameters must be both float32 or both {c.dtype}"
    if c.rows >= 2**31:
        return f"{c.rows} rows are more than the blocks of a grid"
    return off_boundary({n: args[n] for n in (*c.read, *c.parameters)}) or _fits(c)


def fits_walk(gpu, **args):
    reason = fits_block(gpu, **args)
    if reason:
        return reason
    c = Call(args)
    need = STATIC + max(walk_bytes(c, config) for config in WALK_CONFIGS)
    if need > gpu.shared_per_block:
        return f"a row, weight and bias need {need} bytes of shared memory, too many for a block"
    return _uncounted(c)


def fits_block_backward(gpu, **args):
    return fits_block(gpu, **args) or _uncounted(Call(args))


def _uncounted(c: Call):
    """Requirements of kernels that count vectors in 32 bits."""
    if c.rows * c.cols // c.width >= 2**31:
        return f"{c.rows * c.cols} elements are 2**31 vectors or more"
    return None


def order(gpu, **args):
    """Forward: `cuda_walk` has the fewest instructions, and the next row in flight. For calls that
    it does not support, 16-bit rows are limited by instructions, of which `cuda_octets` has few."""
    c = Call(args)
    if c.backward:
        return ("cuda_block", "triton_row")
    longer = (
        ("cuda_octets", "cuda_block") if c.dtype.itemsize == 2 else ("cuda_block", "cuda_octets")
    )
    return ("cuda_walk", *longer, "triton_row")


def bucket(x, approximate, **rest):
    """Key of a call in the tuned table: dtype, gelu, log2 of columns and of elements."""
    return f"{approximate}/{kind(x.dtype)}/{log2(x.shape[-1])}/{log2(x.numel())}"
