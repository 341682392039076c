"""Launch plans of `cuda_superset`. Its kernels are explained in their .cu files."""

from __future__ import annotations

import torch

from kernelwright.contract import Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops._superset import touched

from .cuda import FLOATS, _flags, _form, _kernel, _reduce, _scratch, _totals, _weight
from .heuristics_superset import team_of
from .tiling import rows_of


def superset(gpu, config, x, target, weight, reduction, ignore_index, to=None, **form):
    r, loss = rows_of(x), to or x.dtype
    summed = reduction != "none"
    kernel = _kernel(
        *("superset", "fwd_superset", x, target, torch.float32 if summed else loss),
        *(_form(weight, form), config["vectors"], config["threads"]),
    )
    losses = "losses" if summed else "loss"
    args = (
        *("x", "target", _weight(weight, "max_sum"), losses, "max_sum", i32(r.cols), i64(r.stride)),
        *(i64(ignore_index), *FLOATS),
    )
    walk = Launch(kernel, (r.rows, 1, 1), args, (config["threads"], 1, 1))
    reduce = _reduce(r, target, weight, loss, reduction, ignore_index, form, totals=True)
    return Plan((walk, reduce), _scratch(r, losses=summed))


def superset_backward(gpu, config, gloss, x, target, weight, ignore_index, **form_and_saved):
    r, threads = rows_of(x), config["threads"]
    kernel = _kernel(
        *("superset", "bwd_superset", x, target, gloss.dtype),
        *(_form(weight, form_and_saved), config["vectors"], threads),
    )
    pieces = cdiv(touched(x), config["vectors"] * threads)
    args = (
        *(
            "gloss",
            "x",
            "target",
            _weight(weight, "max_sum"),
            "max_sum",
            "totals",
            "gx",
            i32(r.cols),
        ),
        *(i32(pieces), i64(r.stride), i64(int(gloss.numel() > 1)), i64(ignore_index), *FLOATS),
    )
    return Plan((Launch(kernel, (r.rows * pieces, 1, 1), args, (threads, 1, 1)),))


def superset_with_grad(gpu, config, x, target, weight, reduction, ignore_index, to=None, **form):
    r, loss = rows_of(x), to or x.dtype
    summed = reduction != "none"
    losses = ("losses", torch.float32) if summed else ("loss", loss)
    scale = _totals(
        f"scale<{CTYPE[target.dtype]}, {_form(weight, form)}, {_flags(reduction == 'mean')}>",
        ("target", _weight(weight, "g"), "g", i64(r.rows), i64(r.cols), i64(ignore_index)),
    )
    walk = _walk(config, r, x, target, weight, losses, "gx", r.cols, 0, ignore_index, form)
    steps = (scale, walk)
    if summed:
        reduce = _reduce(r, target, weight, loss, reduction, ignore_index, form, totals=False)
        steps = (*steps, reduce)
    return Plan(steps, _scratch(r, losses=summed, g=True))


def _walk(
    config, r, x, target, weight, losses, gx, gx_stride, g_stride, ignore_index, form
) -> Launch:
    """The launch over rows that writes their losses and gradients."""
    team = team_of(x, config)
    name, dtype = losses
    kernel = _kernel(
        *("superset", "grad_superset", x, target, dtype),
        *(_form(weight, form), team.vectors, team.threads),
    )
    args = (
        *("x", "target", _weight(weight, "g"), "g", name, gx, i32(r.cols), i64(r.stride)),
        *(i64(gx_stride), i64(g_stride), i64(ignore_index), *FLOATS),
    )
    return Launch(kernel, (r.rows, 1, 1), args, (team.threads, 1, 1))
