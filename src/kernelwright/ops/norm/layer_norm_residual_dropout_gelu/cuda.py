"""Launches of the CUDA C++ rung."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, f64, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .call import Call, shape, whole

SOURCE = Path(__file__).parent / "cuda_block.cu"


def block(gpu, config, **args):
    c = Call(args)
    pieces, threads = shape(c, config)
    launch = Launch(
        CudaKernel(SOURCE, f"chain_fwd_block<{chain(c)}, {pieces}, {threads}>"),
        grid=(c.rows, 1, 1),
        block=(threads, 1, 1),
        args=(*c.pointers, *map(i64, c.sizes), f64("p"), f32("eps"), given(c)),
    )
    return Plan((launch,))


def block_backward(gpu, config, **args):
    c = Call(args)
    pieces, threads = shape(c, config)
    blocks = max(1, config["resident"] // threads)
    parts = min(c.rows, gpu.sms * blocks)
    dense = boolean(all(s == c.cols for s in c.strides))
    constants = f"{chain(c)}, {pieces}, {threads}, {blocks}, {whole(c, pieces, threads)}, {dense}"
    walk = Launch(
        CudaKernel(SOURCE, f"chain_bwd_block<{constants}>"),
        grid=(parts, 1, 1),
        block=(threads, 1, 1),
        args=(*c.pointers, *map(i64, c.sizes), f64("p"), given(c), f32(1.0 / c.cols)),
        shared=2 * c.width * pieces * threads * 4,  # weight and bias, as floats
    )
    if not c.parameters:
        return Plan((walk,))
    first, last = c.parameters[0], c.parameters[-1]
    add = Launch(
        CudaKernel(SOURCE, f"chain_bwd_parts<{CTYPE[c.parameter_dtype]}>"),
        grid=(cdiv(c.cols, 32), len(c.parameters), 1),
        block=(32, 32, 1),
        args=(f"{first}_parts", f"{last}_parts", f"g{first}", f"g{last}", i32(parts), i32(c.cols)),
        overlaps=True,
    )
    spec = TensorSpec.contiguous((parts, c.cols), torch.float32)
    return Plan((walk, add), {f"{name}_parts": Scratch(spec) for name in c.parameters})


def chain(c) -> str:
    """The type `Chain` of chain.cuh for a call."""
    draw = "kw::Draw::kSeed" if c.drop else "kw::Draw::kNone"
    types = f"{CTYPE[c.dtype]}, {CTYPE[c.parameter_dtype]}"
    return f"kw::Chain<{types}, {draw}, {'true' if c.tanh else 'false'}>"


def given(c):
    """The bits of norm.cuh that say which parameters are given."""
    return i32(c.weight + 2 * c.bias)
