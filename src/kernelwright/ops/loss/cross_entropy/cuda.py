"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .tiling import rows_of, shape_of

TOTALS_THREADS = 1024  # cuda_totals.cu's kThreads
FLOATS = (f32("label_smoothing"), f32("z_loss"), f32("softcap"))


def online(gpu, config, x, target, weight, reduction, ignore_index, to=None, **form):
    r, loss = rows_of(x), to or x.dtype
    summed = reduction != "none"
    kernel = _kernel(
        *("online", "fwd_online", x, target, torch.float32 if summed else loss),
        *(_form(weight, form), r.width, config["vectors"], config["threads"]),
    )
    losses = "losses" if summed else "loss"
    args = (
        *("x", "target", _weight(weight, "max_sum"), losses, "max_sum", i64(r.cols), i64(r.stride)),
        *(i64(ignore_index), *FLOATS),
    )
    walk = Launch(kernel, (r.rows, 1, 1), args, (config["threads"], 1, 1))
    reduce = _reduce(r, target, weight, loss, reduction, ignore_index, form, totals=True)
    return Plan((walk, reduce), _scratch(r, losses=summed))


def online_backward(gpu, config, gloss, x, target, weight, ignore_index, **form_and_saved):
    r, threads = rows_of(x), config["threads"]
    kernel = _kernel(
        *("online", "bwd_online", x, target, gloss.dtype),
        *(_form(weight, form_and_saved), r.width, config["vectors"], threads),
    )
    pieces = cdiv(r.vectors, config["vectors"] * threads)
    args = (
        *(
            "gloss",
            "x",
            "target",
            _weight(weight, "max_sum"),
            "max_sum",
            "totals",
            "gx",
            i64(r.cols),
        ),
        *(i32(pieces), i64(r.stride), i64(int(gloss.numel() > 1)), i64(ignore_index), *FLOATS),
    )
    return Plan((Launch(kernel, (r.rows * pieces, 1, 1), args, (threads, 1, 1)),))


def block_with_grad(gpu, config, **args):
    return _with_grad("block", config, **args)


def cluster_with_grad(gpu, config, **args):
    return _with_grad("cluster", config, **args)


def block_with_grad_(gpu, config, **args):
    return _with_grad_in_place("block", config, **args)


def cluster_with_grad_(gpu, config, **args):
    return _with_grad_in_place("cluster", config, **args)


def _with_grad(rung, config, x, target, weight, reduction, ignore_index, to=None, **form):
    r, loss = rows_of(x), to or x.dtype
    summed = reduction != "none"
    losses = ("losses", torch.float32) if summed else ("loss", loss)
    mean = reduction == "mean"
    scale = _totals(
        f"scale<{CTYPE[target.dtype]}, {_form(weight, form)}, {_flags(mean)}>",
        ("target", _weight(weight, "g"), "g", i64(r.rows), i64(r.cols), i64(ignore_index)),
    )
    walk = _walk(rung, config, r, x, target, weight, losses, "gx", r.cols, 0, ignore_index, form)
    steps = (scale, walk)
    if summed:
        reduce = _reduce(r, target, weight, loss, reduction, ignore_index, form, totals=False)
        steps = (*steps, reduce)
    return Plan(steps, _scratch(r, losses=summed, g=True))


def _with_grad_in_place(rung, config, x, target, weight, g, ignore_index, **form):
    r, losses = rows_of(x), ("loss", torch.float32)
    each = int(g.numel() > 1)
    walk = _walk(
        rung, config, r, x, target, weight, losses, "x", r.stride, each, ignore_index, form
    )
    return Plan((walk,))


def _walk(
    rung, config, r, x, target, weight, losses, gx, gx_stride, g_stride, ignore_index, form
) -> Launch:
    """The launch over rows that writes their losses and gradients."""
    vectors, threads, blocks = shape_of(r, x.itemsize, config)
    shape = (r.width, vectors, threads, *((blocks,) if rung == "cluster" else ()))
    name, dtype = losses
    kernel = _kernel(
        *(rung, f"grad_{rung}", x, target, dtype, _form(weight, form), *shape), cluster=blocks
    )
    args = (
        *("x", "target", _weight(weight, "g"), "g", name, gx, i32(r.cols), i64(r.stride)),
        *(i64(gx_stride), i64(g_stride), i64(ignore_index), *FLOATS),
    )
    return Launch(kernel, (r.rows * blocks, 1, 1), args, (threads, 1, 1))


def _reduce(r, target, weight, loss, reduction, ignore_index, form, totals) -> Launch:
    """The launch that adds up the losses and, if they are results, the totals that the backward
    needs."""
    summed = reduction != "none"
    flags = _flags(summed, reduction == "mean", totals)
    types = f"{CTYPE[target.dtype]}, {CTYPE[loss]}, {_form(weight, form)}, {flags}"
    losses = "losses" if summed else "max_sum"
    spare = "totals" if totals else "losses"
    args = (losses, "target", _weight(weight, losses), "loss", spare)
    return _totals(f"reduce<{types}>", (*args, i64(r.rows), i64(r.cols), i64(ignore_index)))


def _totals(name, args) -> Launch:
    kernel = CudaKernel(Path(__file__).with_name("cuda_totals.cu"), f"cross_entropy_{name}")
    return Launch(kernel, (1, 1, 1), args, (TOTALS_THREADS, 1, 1))


def _kernel(rung, name, x, target, loss, *constants, cluster=1) -> CudaKernel:
    types = f"{CTYPE[x.dtype]}, {CTYPE[target.dtype]}, {CTYPE[loss]}"
    parameters = ", ".join(map(str, constants))
    source = Path(__file__).with_name(f"cuda_{rung}.cu")
    return CudaKernel(source, f"cross_entropy_{name}<{types}, {parameters}>", cluster)


def _form(weight, form) -> str:
    return f"kw::Form<{_flags(weight is not None, form['smooth'], form['cap'])}>"


def _flags(*flags: bool) -> str:
    return ", ".join(map(boolean, flags))


def _weight(weight, spare: str) -> str:
    """The tensor of class weights; if there are none, a pointer that is not dereferenced."""
    return spare if weight is None else "weight"


def _scratch(r, losses=False, g=False):
    """Losses of the tokens, if they are added up; the factor of their gradients."""
    sizes = {"losses": r.rows} if losses else {}
    sizes |= {"g": 1} if g else {}
    return {n: Scratch(TensorSpec.contiguous((s,), torch.float32)) for n, s in sizes.items()}
