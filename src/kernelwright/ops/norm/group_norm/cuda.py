"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .registers import held_of
from .tiling import (
    SPLIT_VECTORS,
    UNROLL,
    Call,
    channels_split_of,
    cluster_of,
    slab_of,
    slabs_scalar,
    split_of,
)


def block(gpu, config, **args):
    c = Call(args)
    kernel = _kernel("fwd_block", c, config["threads"], vectors=False)
    given = ("x", *c.pointers, "y", "mean", "rstd", *_rows(c), f32("eps"), c.given)
    return Plan((_launch(kernel, c.sets, config, given),))


def block_backward(gpu, config, **args):
    c = Call(args)
    kernel = _kernel("bwd_block", c, config["threads"], vectors=False)
    first = _launch(kernel, c.sets, config, (*_gradients(c), *_rows(c), c.given))
    return _with_parameters(c, (first,), {}, c.samples)


def cluster(gpu, config, **args):
    return cluster_forward(gpu, config, Call(args))


def cluster_forward(gpu, config, c):
    of = cluster_of(gpu, c, config)
    kernel = _kernel("fwd_cluster", c, config["threads"], of.blocks, cluster=of.blocks)
    given = (
        "x",
        *c.pointers,
        "y",
        "mean",
        "rstd",
        c.variance,
        of.pieces.scalar(),
        f32("eps"),
        c.given,
    )
    return Plan((_launch(kernel, c.sets * of.blocks, config, given, of.shared),))


def cluster_backward(gpu, config, **args):
    c = Call(args)
    first, parts = cluster_gradient(gpu, config, c)
    return _with_parameters(c, (first,), {}, parts)


def cluster_gradient(gpu, config, c):
    """(launch, number of rows of partial sums that it writes)."""
    of = cluster_of(gpu, c, config)
    kernel = _kernel("bwd_cluster", c, config["threads"], of.blocks, cluster=of.blocks)
    given = (*_gradients(c), *c.gradients_of_sets(), of.pieces.scalar(), c.given)
    first = _launch(kernel, c.sets * of.blocks, config, given, of.shared)
    return first, c.samples * of.pieces.pieces


def split(gpu, config, **args):
    return split_forward(gpu, config, Call(args))


def split_forward(gpu, config, c):
    first, scratch = split_moments(gpu, config, c, ("mean", "rstd", c.variance), f32("eps"), 1.0)
    name, of, where, groups = _split(gpu, config, c)
    second = _launch(
        _kernel(f"fwd_{name}_apply", c, config["threads"], UNROLL, file=name),
        groups * of.blocks,
        config,
        ("x", *c.pointers, "y", "mean", "rstd", where, i32(of.blocks), c.given),
        overlaps=True,
    )
    return Plan((first, second), scratch)


def split_moments(gpu, config, c, results, eps, correction):
    """(launch that computes mean, rstd and the variance over `correction` fewer elements,
    workspace)."""
    name, of, where, groups = _split(gpu, config, c)
    launch = _launch(
        _kernel(f"fwd_{name}", c, config["threads"], UNROLL),
        groups * of.blocks,
        config,
        ("x", "partial", "arrived", *results, where, i32(of.blocks), eps, f32(correction)),
        of.shared,
    )
    return launch, _partial(c, of, groups)


def split_backward(gpu, config, **args):
    c = Call(args)
    launches, scratch, parts = split_gradient(gpu, config, c)
    return _with_parameters(c, launches, scratch, parts)


def split_gradient(gpu, config, c):
    """(launches, workspace, number of rows of partial sums that they write)."""
    _, of, _, _ = _split(gpu, config, c)
    first, scratch = split_sums(gpu, config, c)
    total = Scratch(TensorSpec.contiguous((c.sets, 2), torch.float32))
    parts = c.samples * (of.blocks if c.last else c.pieces(SPLIT_VECTORS).pieces)
    return (first, split_gx(gpu, config, c)), {**scratch, "total": total}, parts


def split_sums(gpu, config, c, unused="gx"):
    """(launch that computes the means of g and g xhat, workspace). `unused`: a result of the call
    that is passed for pointers that the kernel does not use."""
    name, of, where, groups = _split(gpu, config, c)
    operands = ("gy", "x", *c.pointers, "mean", "rstd")
    left = "left" if c.leaves else unused
    results = ("partial", "arrived", "total", left, *c.gradients_of_sets(unused))
    launch = _launch(
        _kernel(f"bwd_{name}", c, config["threads"], UNROLL // 2, file=f"{name}_backward"),
        groups * of.blocks,
        config,
        (*operands, *results, where, i32(of.blocks), c.given),
        of.shared,
    )
    return launch, _partial(c, of, groups)


def split_gx(gpu, config, c, overlaps=True):
    """The launch that computes gx."""
    name, of, where, groups = _split(gpu, config, c)
    operands = ("gy", "x", *c.pointers, "mean", "rstd")
    return _launch(
        _kernel(f"bwd_{name}_apply", c, config["threads"], UNROLL // 2, file=f"{name}_backward"),
        groups * of.blocks,
        config,
        (*operands, "total", "gx", where, i32(of.blocks), c.given),
        overlaps=overlaps,
    )


channels_split, channels_split_backward = split, split_backward


def _split(gpu, config, c):
    """(name of the kernels, how sets are split, their memory layout, number of sets to split)."""
    if c.last:
        of = channels_split_of(gpu, c, config)
        slabs = c.samples * (c.channels // of.channels)
        return "channels_split", of, slabs_scalar(c, of.channels), slabs
    return "split", split_of(gpu, c, config), c.pieces(SPLIT_VECTORS).scalar(), c.sets


def _partial(c, of, groups):
    partial = TensorSpec.contiguous((c.sets * of.blocks, 2), torch.float32)
    arrived = TensorSpec.contiguous((groups,), torch.int32)
    return {"partial": Scratch(partial), "arrived": Scratch(arrived, zero=True)}


def channels(gpu, config, **args):
    return channels_forward(gpu, config, Call(args))


def channels_forward(gpu, config, c):
    of = slab_of(gpu, c, config)
    kernel = _kernel("fwd_channels", c, config["threads"], of.blocks, cluster=of.blocks)
    slabs = slabs_scalar(c, of.channels)
    given = ("x", *c.pointers, "y", "mean", "rstd", c.variance, slabs, f32("eps"), c.given)
    blocks = c.samples * (c.channels // of.channels) * of.blocks
    return Plan((_launch(kernel, blocks, config, given, of.shared),))


def channels_backward(gpu, config, **args):
    c = Call(args)
    first, parts = channels_gradient(gpu, config, c)
    return _with_parameters(c, (first,), {}, parts)


def channels_gradient(gpu, config, c):
    """(launch, number of rows of partial sums that it writes)."""
    of = slab_of(gpu, c, config)
    constants = config["threads"], of.blocks
    kernel = _kernel("bwd_channels", c, *constants, cluster=of.blocks, file="channels_backward")
    given = (*_gradients(c), *c.gradients_of_sets(), slabs_scalar(c, of.channels), c.given)
    blocks = c.samples * (c.channels // of.channels) * of.blocks
    first = _launch(kernel, blocks, config, given, of.shared)
    return first, c.samples * of.blocks


def channels_registers(gpu, config, **args):
    return registers_forward(config, Call(args))


def registers_forward(config, c):
    of = held_of(c, config)
    m = of.matrix
    numbers = i32(m.rows), i64(m.step), i32(m.channels), f32("eps"), c.given
    given = ("x", *c.pointers, "y", "mean", "rstd", c.variance, *numbers)
    return Plan((_held(c, of, "fwd", given),))


def channels_registers_backward(gpu, config, **args):
    c = Call(args)
    first, parts = registers_gradient(config, c)
    return _with_parameters(c, (first,), {}, parts)


def registers_gradient(config, c):
    """(launch, number of rows of partial sums that it writes)."""
    of = held_of(c, config)
    m = of.matrix
    steps = (i64(step) for step in (c.steps if c.last else (m.step, m.step)))
    numbers = i32(m.rows), *steps, i32(m.channels), c.given
    given = (*_gradients(c), *c.gradients_of_sets(), *numbers)
    return _held(c, of, "bwd", given, "_backward"), m.samples * of.blocks


def _held(c, of, side, given, suffix=""):
    values = (c.norm(), of.matrix.width, of.columns, of.matrix.per, of.vectors, of.threads,
              of.blocks)  # fmt: skip
    kernel = CudaKernel(
        c.folder / f"cuda_{'channels_' if c.last else ''}registers{suffix}.cu",
        f"group_norm_{side}_channels_registers<{', '.join(map(str, values))}>",
        of.blocks,
    )
    return Launch(kernel, (of.slabs * of.blocks, 1, 1), given, (of.threads, 1, 1))


def _kernel(name, c, *constants, cluster=1, file=None, vectors=True):
    source = c.folder / f"cuda_{file or name.split('_', 1)[1]}.cu"
    width = (c.width,) if vectors else ()
    values = ", ".join(map(str, (c.norm(), *width, *constants)))
    return CudaKernel(source, f"group_norm_{name}<{values}>", cluster)


def _launch(kernel, blocks, config, given, shared=0, overlaps=False):
    return Launch(kernel, (blocks, 1, 1), given, (config["threads"], 1, 1), shared, overlaps)


def _rows(c) -> tuple:
    return i32(c.groups), i32(c.per), i32(c.length)


def _gradients(c) -> tuple[str, ...]:
    """Pointers of a backward's first launch. `left`: partial sums for the second launch."""
    return ("gy", "x", *c.pointers, "mean", "rstd", "gx", "left" if c.leaves else "gx")


def _with_parameters(c, launches, scratch, parts):
    """Adds a launch that sums the `parts` rows of partial sums of each channel."""
    if not c.parameters:
        return Plan(launches, scratch)
    down = 32 if parts >= 128 else 8
    last = Launch(
        CudaKernel(
            Path(__file__).with_name("cuda_parameters.cu"),
            f"group_norm_bwd_parameters<{CTYPE[c.parameter_dtype]}, {down}>",
        ),
        (cdiv(c.channels, 32), 1, 1),
        ("left", *c.gradients("gx"), i64(parts), i64(c.channels), c.given),
        (32, down, 1),
        overlaps=True,
    )
    left = Scratch(TensorSpec.contiguous((parts, c.channels, 2), torch.float32))
    return Plan((*launches, last), {**scratch, "left": left})
