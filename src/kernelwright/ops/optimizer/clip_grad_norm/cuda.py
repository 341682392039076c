"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Pointers, Scratch, TensorSpec, f32, i32
from kernelwright.contract.arithmetic import chunks
from kernelwright.contract.template_args import CTYPE

from .spec import result_dtype

SOURCE = Path(__file__).with_name("cuda_list.cu")
ORDER = {"inf": 0, "1.0": 1, "2.0": 2}


def plan_norm(gpu, config, tensors, norm_type):
    block, vecs, resident = config["block"], config["vecs"], config["resident"]
    constants = _list(tensors, block * vecs)
    count = len(constants["chunks"])
    blocks = min(count, resident * gpu.sms)
    types = f"{CTYPE[tensors[0].dtype]}, {CTYPE[result_dtype(tensors)]}"
    name = f"norm_list<{types}, {ORDER[norm_type]}, {block}, {vecs}, {resident}>"
    launch = Launch(
        CudaKernel(SOURCE, name),
        grid=(blocks, 1, 1),
        block=(block, 1, 1),
        args=(Pointers(("tensors",)), "chunks", "sizes", "words", "norm", i32(count)),
    )
    words = TensorSpec.contiguous((blocks,), torch.int64)
    return Plan((launch,), {"words": Scratch(words, zero=True)}, constants)


def plan_clip(gpu, config, grads, total_norm, max_norm):
    block, vecs, rounds = config["block"], config["vecs"], config["rounds"]
    constants = _list(grads, block * vecs * rounds)
    types = f"{CTYPE[grads[0].dtype]}, {CTYPE[total_norm.dtype]}"
    launch = Launch(
        CudaKernel(SOURCE, f"scale_list<{types}, {block}, {vecs}, {rounds}>"),
        grid=(len(constants["chunks"]), 1, 1),
        block=(block, 1, 1),
        args=(Pointers(("grads",)), "chunks", "sizes", "total_norm", f32("max_norm")),
    )
    return Plan((launch,), {}, constants)


def _list(tensors, vectors):
    """Constants of a launch whose blocks process chunks of `vectors` vectors."""
    sizes = [t.numel() for t in tensors]
    length = vectors * 16 // tensors[0].itemsize
    return {"chunks": chunks(sizes, length), "sizes": torch.tensor(sizes, device="cpu")}
