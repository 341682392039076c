"""Launches of the CUDA C++ rungs, for every operator of the table.

Entries are named after rung and operator, for example `vec16_silu` or `thread_mul_backward`; the
formula is a struct of formulas.cuh, for example `kw::SiluBackward`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .spec import TABLE

FOLDER = Path(__file__).parent
MAX_GRID_Y = 65535


def thread(formula, results, gpu, config, **tensors):
    n, block = _first(tensors).numel(), config["block"]
    return _plan("thread", formula, "", (n,), (cdiv(n, block), 1), (block, 1), results, tensors)


def grid2d(formula, results, gpu, config, **tensors):
    first, last = _first(tensors), list(tensors.values())[-1]
    cols = first.shape[-1] if first.ndim else 1
    rows = first.numel() // cols
    grid = cdiv(cols, config["x"]), min(cdiv(rows, config["y"]), MAX_GRID_Y)
    row = boolean(last.shape != first.shape)
    block = config["x"], config["y"]
    return _plan("grid2d", formula, f"{row}, ", (rows, cols), grid, block, results, tensors)


def vec16(formula, results, gpu, config, **tensors):
    first, block, unroll = _first(tensors), config["block"], config["unroll"]
    tile = block * unroll * (16 // first.itemsize)
    template = f"{block}, {unroll}, {boolean(config['stream'])}, "
    grid = cdiv(first.numel(), tile), 1
    return _plan("vec16", formula, template, (first.numel(),), grid, (block, 1), results, tensors)


def _plan(trick, formula, template, sizes, grid, block, results, tensors):
    ctype = CTYPE[_first(tensors).dtype]
    names = (*tensors, *results)
    pointers = ", ".join([f"{ctype} *"] * len(names))
    kernel = f"elementwise_{trick}<kw::{formula}, {ctype}, {template}{pointers}>"
    launch = Launch(
        CudaKernel(FOLDER / f"cuda_{trick}.cu", kernel),
        grid=(*grid, 1),
        block=(*block, 1),
        args=(*map(i64, sizes), *names),
    )
    return Plan((launch,))


def _first(tensors):
    return next(iter(tensors.values()))


RUNGS = {"thread": thread, "grid2d": grid2d, "vec16": vec16}


def __getattr__(entry: str):
    rung, _, rest = entry.partition("_")
    name = rest.removesuffix("_backward")
    if rung not in RUNGS or name not in TABLE:
        raise AttributeError(f"module {__name__!r} has no attribute {entry!r}")
    results = TABLE[name].results if rest != name else ("y",)
    formula = "".join(word.capitalize() for word in rest.split("_"))
    return partial(RUNGS[rung], formula, results)
