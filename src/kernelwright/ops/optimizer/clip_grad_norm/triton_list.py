"""One launch for the norm of all tensors, and one to scale them.

Idea: a program reduces its part of a tensor to one number, and the last program to finish combines
the parts in their order. The second launch reads the norm on the device: if it is small enough, the
programs exit immediately.
Traffic: every tensor read once for the norm; read and written once more if it is scaled.
Compared with `native`: one launch instead of one per hundred tensors and four more; nothing is
multiplied by 1.
Limit: DRAM bandwidth. If one tensor is not aligned to 16 bytes, all are read element by element.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import (
    Launch,
    Plan,
    Pointers,
    Scratch,
    TensorSpec,
    TritonKernel,
    f32,
    i64,
)
from kernelwright.contract.arithmetic import chunks

TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def reduced(x, ORDER: tl.constexpr):
    """The sum, or for "inf" the maximum; NaN if any element is NaN: without their sign, floats have
    the order of their bits, in which NaN is above infinity."""
    if ORDER == "inf":
        return tl.max(x.to(tl.int32, bitcast=True), 0).to(tl.float32, bitcast=True)
    else:
        return tl.sum(x, 0)


@triton.jit
def norm_of_part(x, ORDER: tl.constexpr):
    x = x.to(tl.float32)
    return reduced(x * x if ORDER == "2.0" else tl.abs(x), ORDER)


@triton.jit
def norm_list(
    addresses, chunks, sizes, partials, arrived, norm_ptr, programs,
    T: tl.constexpr, ORDER: tl.constexpr, BLOCK: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    k = tl.load(chunks + 2 * program)
    first = tl.load(chunks + 2 * program + 1).to(tl.int64) * BLOCK
    n = tl.load(sizes + k)
    x_ptr = tl.multiple_of(tl.load(addresses + k).to(tl.pointer_type(T)), ALIGN)
    i = first + tl.arange(0, BLOCK)
    if first + BLOCK <= n:  # without a mask the compiler may load 16 bytes at once
        part = norm_of_part(tl.load(x_ptr + i), ORDER)
    else:
        part = norm_of_part(tl.load(x_ptr + i, mask=i < n, other=0.0), ORDER)
    tl.store(partials + program, part)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1) == programs - 1:
        tl.store(arrived, 0)
        j = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, programs, BLOCK):
            # read from L2: other programs wrote these during this launch
            more = tl.load(
                partials + start + j, mask=start + j < programs, other=0.0, cache_modifier=".cg"
            )
            total = larger(total, more) if ORDER == "inf" else total + more
        norm = reduced(total, ORDER)
        if ORDER == "2.0":
            norm = tl.sqrt_rn(norm)
        tl.store(norm_ptr, norm.to(norm_ptr.dtype.element_ty))


@triton.jit
def scale_list(
    addresses, chunks, sizes, norm_ptr, max_norm,
    T: tl.constexpr, BLOCK: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    factor = tl.div_rn(max_norm, tl.load(norm_ptr).to(tl.float32) + 1e-6)
    if not (factor >= 1.0):  # also for NaN
        k = tl.load(chunks + 2 * tl.program_id(0))
        first = tl.load(chunks + 2 * tl.program_id(0) + 1).to(tl.int64) * BLOCK
        n = tl.load(sizes + k)
        x_ptr = tl.multiple_of(tl.load(addresses + k).to(tl.pointer_type(T)), ALIGN)
        i = first + tl.arange(0, BLOCK)
        if first + BLOCK <= n:
            tl.store(x_ptr + i, (tl.load(x_ptr + i).to(tl.float32) * factor).to(T))
        else:
            x = tl.load(x_ptr + i, mask=i < n)
            tl.store(x_ptr + i, (x.to(tl.float32) * factor).to(T), mask=i < n)


def plan_norm(gpu, config, tensors, norm_type):
    constants, options = _list(tensors, config)
    programs = len(constants["chunks"])
    launch = Launch(
        TritonKernel(norm_list, {**options, "ORDER": norm_type}, num_warps=config["num_warps"]),
        (programs, 1, 1),
        (Pointers(("tensors",)), "chunks", "sizes", "partials", "arrived", "norm", i64(programs)),
    )
    scratch = {
        "partials": Scratch(TensorSpec.contiguous((programs,), torch.float32)),
        "arrived": Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True),
    }
    return Plan((launch,), scratch, constants)


def plan_clip(gpu, config, grads, total_norm, max_norm):
    constants, options = _list(grads, config)
    launch = Launch(
        TritonKernel(scale_list, options, num_warps=config["num_warps"]),
        (len(constants["chunks"]), 1, 1),
        (Pointers(("grads",)), "chunks", "sizes", "total_norm", f32("max_norm")),
    )
    return Plan((launch,), {}, constants)


def _list(tensors, config):
    sizes = [t.numel() for t in tensors]
    constants = {
        "chunks": chunks(sizes, config["block"]),
        "sizes": torch.tensor(sizes, device="cpu"),
    }
    align = 16 if all(t.align == 16 for t in tensors) else 2
    return constants, {"T": TYPES[tensors[0].dtype], "BLOCK": config["block"], "ALIGN": align}
