"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import (
    NULL,
    CudaKernel,
    Launch,
    Plan,
    Pointers,
    Scratch,
    TensorSpec,
    f32,
    f64,
)
from kernelwright.contract.arithmetic import chunks
from kernelwright.contract.template_args import CTYPE


def list_plan(gpu, config, params, grads, exp_avgs, exp_avg_sqs, copies, maximize, **others):
    dtypes = [ts[0].dtype for ts in (params, grads, exp_avgs, copies or params)]
    block, vecs, rounds = config["block"], config["vecs"], config["rounds"]
    seeded = others.get("seed") is not None
    flags = [str(bool(f)).lower() for f in (copies, maximize, seeded)]
    template = ", ".join((*(CTYPE[d] for d in dtypes), *flags, *map(str, (block, vecs, rounds))))
    kernel = CudaKernel(Path(__file__).with_name("cuda_list.cu"), f"adamw_list<{template}>")
    sizes = [p.numel() for p in params]
    width = 16 // max(d.itemsize for d in dtypes)
    places = chunks(sizes, block * vecs * rounds * width)
    lists = ("params", "grads", "exp_avgs", "exp_avg_sqs", "state_steps")
    pointers = Pointers((*lists, "copies") if copies else lists)
    numbers = (f64("lr"), f64("beta1"), f64("beta2"), f64("weight_decay"), f32("eps"))
    maybe = ("lr_tensor", "grad_scale", "found_inf", "seed")
    given = (n if others.get(n) is not None else NULL for n in maybe)
    launch = Launch(
        kernel,
        grid=(len(places), 1, 1),
        block=(block, 1, 1),
        args=(pointers, "chunks", "sizes", "arrived", *numbers, *given),
    )
    arrived = Scratch(TensorSpec.contiguous((len(params),), torch.int32), zero=True)
    return Plan(
        (launch,),
        {"arrived": arrived},
        {"chunks": places, "sizes": torch.tensor(sizes, device="cpu")},
    )
