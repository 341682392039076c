"""Launch plans of the CUDA rungs. What the kernels do stands in their file."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Pointers, Scratch, TensorSpec, f32
from kernelwright.contract.arithmetic import chunks

from .spec import result_dtype

SOURCE = Path(__file__).with_name("cuda_list.cu")
CTYPE = {torch.float32: "float", torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
ORDER = {"inf": 0, "1.0": 1, "2.0": 2}


def plan_norm(gpu, config, tensors, norm_type):
    constants, shape = _list(tensors, config)
    blocks = len(constants["chunks"])
    types = f"{CTYPE[tensors[0].dtype]}, {CTYPE[result_dtype(tensors)]}"
    launch = Launch(
        CudaKernel(SOURCE, f"norm_list<{types}, {ORDER[norm_type]}, {shape}>"),
        grid=(blocks, 1, 1),
        block=(config["block"], 1, 1),
        args=(Pointers(("tensors",)), "chunks", "sizes", "partials", "arrived", "norm"),
    )
    scratch = {
        "partials": Scratch(TensorSpec.contiguous((blocks,), torch.float32)),
        "arrived": Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True),
    }
    return Plan((launch,), scratch, constants)


def plan_clip(gpu, config, grads, total_norm, max_norm):
    constants, shape = _list(grads, config)
    types = f"{CTYPE[grads[0].dtype]}, {CTYPE[total_norm.dtype]}"
    launch = Launch(
        CudaKernel(SOURCE, f"scale_list<{types}, {shape}>"),
        grid=(len(constants["chunks"]), 1, 1),
        block=(config["block"], 1, 1),
        args=(Pointers(("grads",)), "chunks", "sizes", "total_norm", f32("max_norm")),
    )
    return Plan((launch,), {}, constants)


def _list(tensors, config):
    block, vecs, rounds = config["block"], config["vecs"], config["rounds"]
    sizes = [t.numel() for t in tensors]
    length = block * vecs * rounds * 16 // tensors[0].itemsize
    constants = {"chunks": chunks(sizes, length), "sizes": torch.tensor(sizes, device="cpu")}
    return constants, f"{block}, {vecs}, {rounds}"
