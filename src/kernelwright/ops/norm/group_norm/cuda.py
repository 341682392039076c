"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .tiling import Call, cluster_of, slab_of, slabs_scalar


def cluster(gpu, config, **args):
    c = Call(args)
    of = cluster_of(gpu, c, config)
    kernel = _kernel("fwd_cluster", c, config["threads"], of.blocks, cluster=of.blocks)
    given = ("x", *c.pointers, "y", "mean", "rstd", of.pieces.scalar(), f32("eps"), c.given)
    return Plan((_launch(kernel, c.sets * of.blocks, config, given, of.shared),))


def cluster_backward(gpu, config, **args):
    c = Call(args)
    of = cluster_of(gpu, c, config)
    kernel = _kernel("bwd_cluster", c, config["threads"], of.blocks, cluster=of.blocks)
    given = (*_gradients(c), of.pieces.scalar(), c.given)
    first = _launch(kernel, c.sets * of.blocks, config, given, of.shared)
    return _with_parameters(c, first, c.samples * of.pieces.pieces)


def channels(gpu, config, **args):
    c = Call(args)
    of = slab_of(gpu, c, config)
    kernel = _kernel("fwd_channels", c, config["threads"], of.blocks, cluster=of.blocks)
    slabs = slabs_scalar(c, of.channels)
    given = ("x", *c.pointers, "y", "mean", "rstd", slabs, f32("eps"), c.given)
    blocks = c.samples * (c.channels // of.channels) * of.blocks
    return Plan((_launch(kernel, blocks, config, given, of.shared),))


def channels_backward(gpu, config, **args):
    c = Call(args)
    of = slab_of(gpu, c, config)
    kernel = _kernel("bwd_channels", c, config["threads"], of.blocks, cluster=of.blocks)
    given = (*_gradients(c), slabs_scalar(c, of.channels), c.given)
    blocks = c.samples * (c.channels // of.channels) * of.blocks
    first = _launch(kernel, blocks, config, given, of.shared)
    return _with_parameters(c, first, c.samples * of.blocks)


def _kernel(name, c, *constants, cluster=1):
    source = Path(__file__).with_name(f"cuda_{name.split('_', 1)[1]}.cu")
    values = ", ".join(map(str, (c.norm(), c.width, *constants)))
    return CudaKernel(source, f"group_norm_{name}<{values}>", cluster)


def _launch(kernel, blocks, config, given, shared=0, overlaps=False):
    return Launch(kernel, (blocks, 1, 1), given, (config["threads"], 1, 1), shared, overlaps)


def _gradients(c) -> tuple[str, ...]:
    """Pointers of a backward's first launch. `left`: what it leaves for the second."""
    return ("gy", "x", *c.pointers, "mean", "rstd", "gx", "left" if c.parameters else "gx")


def _with_parameters(c, first, parts):
    """The sums of each channel that the first launch has left, in `parts` rows, are added."""
    if not c.parameters:
        return Plan((first,))
    down = 32 if parts >= 128 else 8
    given = tuple(
        "gx" if p is None else f"g{n}" for n, p in (("weight", c.weight), ("bias", c.bias))
    )
    second = Launch(
        CudaKernel(
            Path(__file__).with_name("cuda_parameters.cu"),
            f"group_norm_bwd_parameters<{CTYPE[c.parameter_dtype]}, {down}>",
        ),
        (cdiv(c.channels, 32), 1, 1),
        ("left", *given, i64(parts), i64(c.channels), c.given),
        (32, down, 1),
        overlaps=True,
    )
    left = Scratch(TensorSpec.contiguous((parts, c.channels, 2), torch.float32))
    return Plan((first, second), {"left": left})
