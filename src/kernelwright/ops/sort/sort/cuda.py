"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from kernelwright.contract import (
    NULL,
    CudaKernel,
    Launch,
    Plan,
    Scalar,
    Scratch,
    TensorSpec,
    i32,
    i64,
)
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import boolean

from .tiling import CTYPE, DIGITS, SHORT, network_of, rows_of, tiles_of

CLEAR = 256  # threads that clear words
COUNT = 512  # threads that count digits
SCAN = 1024  # threads that scan counts

#: The unsigned integer type for the bits of an element, by its size.
BITS = {2: "unsigned short", 4: "unsigned"}


def bitonic(gpu, config, x, descending=False):
    return _bitonic(config, x, descending, "values", "indices")


def bitonic_values(gpu, config, x):
    return _bitonic(config, x, False, "values", NULL)


def bitonic_indices(gpu, config, x, descending=False):
    return _bitonic(config, x, descending, NULL, "indices")


def _bitonic(config, x, descending, values, indices):
    r, block = rows_of(x), config["block"]
    net = network_of(x, block)
    launch = Launch(
        CudaKernel(_source("bitonic"), f"sort_bitonic<{CTYPE[x.dtype]}, {block}>"),
        grid=(cdiv(r.rows, net.rows), 1, 1),
        args=(
            "x", values, indices,
            i64(r.rows), i32(r.n), i32(net.size), i64(r.stride), i32(descending),
        ),
        block=(block, 1, 1),
        shared=net.shared,
    )  # fmt: skip
    return Plan((launch,))


def radix(gpu, config, x, descending=False):
    r, t = rows_of(x), tiles_of(x, config)
    several = cdiv(t.count * r.rows, 4 * gpu.sms)  # tiles per part
    parts = cdiv(t.count, several)
    where = (i32(parts), i64(several * t.size))
    name = f"radix_scatter<{CTYPE[x.dtype]}, true, {_shape(config)}>"
    launches = []
    passes, between = _passes(x, "values", "indices")
    for p in passes:
        how = (i64(p.stride), i32(p.number), i32(descending))
        launches += [
            Launch(
                CudaKernel(_source("radix"), f"radix_count<{CTYPE[x.dtype]}, {COUNT}>"),
                (r.rows * parts, 1, 1), (p.keys, "counts", i64(r.n), *where, *how), (COUNT, 1, 1),
            ),
            Launch(
                CudaKernel(_source("radix"), f"radix_scan<{SCAN}>"),
                (r.rows, 1, 1), ("counts", i64(DIGITS * parts)), (SCAN, 1, 1),
            ),
            Launch(
                CudaKernel(_source("radix"), name), (r.rows * parts, 1, 1),
                (*p.moved, "counts", i64(r.n), *where, *how), (config["block"], 1, 1), t.shared,
            ),
        ]  # fmt: skip
    return Plan(tuple(launches), {"counts": _words(r.rows * DIGITS * parts), **between})


def onesweep(gpu, config, x, descending=False):
    return _onesweep(gpu, config, x, descending, "values", "indices")


def onesweep_values(gpu, config, x):
    return _onesweep(gpu, config, x, False, "values", None)


def onesweep_indices(gpu, config, x, descending=False):
    return _onesweep(gpu, config, x, descending, None, "indices")


def _onesweep(gpu, config, x, descending, values, indices):
    r, t = rows_of(x), tiles_of(x, config)
    passes, between = _passes(x, values, indices)
    counts, states = r.rows * x.itemsize * DIGITS, r.rows * t.count * DIGITS
    word, of_word = ("unsigned", 1) if r.n < SHORT else ("unsigned long long", 2)
    each = 32 // x.itemsize  # loads that a thread has in flight
    parts = max(1, min(cdiv(r.n, each * COUNT), cdiv(4 * gpu.sms, r.rows)))
    clear = Launch(
        CudaKernel(_source("onesweep"), f"sort_clear<{CLEAR}>"),
        (cdiv(max(counts, states * of_word), CLEAR), 1, 1),
        ("counts", i64(counts), "words", i64(states * of_word)),
        (CLEAR, 1, 1),
    )
    histogram = Launch(
        CudaKernel(_source("onesweep"), f"sort_histogram<{CTYPE[x.dtype]}, {each}, {COUNT}>"),
        (r.rows * parts, 1, 1),
        ("x", "counts", "arrived", i64(r.n), i32(parts), i64(r.stride), i32(descending)),
        (COUNT, 1, 1),
        overlaps=True,
    )
    name = f"sort_onesweep<{CTYPE[x.dtype]}, {boolean(bool(indices))}, {word}, "
    name += f"{boolean(config['prefetch'])}, {_shape(config)}>"
    sweeps = (
        Launch(
            CudaKernel(_source("onesweep"), name),
            (r.rows * t.count, 1, 1),
            (
                *p.moved, "counts", "words", "ticket",
                i64(r.n), i32(t.count), i64(p.stride), i32(p.number), i32(descending),
            ),
            (config["block"], 1, 1),
            t.shared,
            overlaps=True,
        )
        for p in passes
    )  # fmt: skip
    scratch = {
        "counts": _words(counts),
        "words": _words(states * of_word),
        "arrived": _words(r.rows, zero=True),
        "ticket": _words(1, zero=True),
    }
    return Plan((clear, histogram, *sweeps), {**scratch, **between})


class Pass(NamedTuple):
    """The pass for one digit: where keys and positions are read, with `stride` elements between
    rows, and where they are written: `places` for 32-bit positions, `indices` in the last pass."""

    number: int
    keys: str
    stride: int
    moved: tuple[str | Scalar, ...]  # from keys, places; to keys, places, indices


def _passes(
    x: TensorSpec, values: str | None, indices: str | None
) -> tuple[list[Pass], dict[str, Scratch]]:
    """The passes from the lowest digit to the highest, and the buffers between them: scratch
    memory, and the results, whose memory is free until the last pass."""
    r, count, scratch = rows_of(x), x.itemsize, {}
    if count > 1:
        scratch["keys"] = Scratch(TensorSpec.contiguous((x.numel(),), x.dtype))
        if indices:
            scratch["places"] = _words(x.numel())
        if not values:
            scratch["more_keys"] = scratch["keys"]
    keys, places, stride, passes = "x", NULL, r.stride, []
    for k in range(count):
        if k == count - 1:
            to = (values or NULL, NULL, indices or NULL)
        elif (count - k) % 2:
            to = (values or "more_keys", indices or NULL, NULL)
        else:
            to = ("keys", "places" if indices else NULL, NULL)
        passes.append(Pass(k, keys, stride, (keys, places, *to)))
        keys, places, stride = to[0], to[1], r.n
    return passes, scratch


def _words(count: int, zero: bool = False) -> Scratch:
    return Scratch(TensorSpec.contiguous((count,), torch.int32), zero)


def _shape(config: dict) -> str:
    """Template arguments; registers are limited such that `resident` blocks fit on a
    multiprocessor."""
    shape = (config["items"], config["block"], config["resident"])
    return ", ".join((boolean(config["match"]), *map(str, shape)))


def scatter_backward(gpu, config, gvalues, indices):
    r, block = rows_of(gvalues), config["block"]
    launch = Launch(
        CudaKernel(_source("scatter"), f"sort_bwd_scatter<{BITS[gvalues.itemsize]}, {block}>"),
        grid=(cdiv(gvalues.numel(), block), 1, 1),
        args=("gvalues", "indices", "gx", i64(gvalues.numel()), i64(r.n), i64(r.stride)),
        block=(block, 1, 1),
    )
    return Plan((launch,))


def _source(rung):
    return Path(__file__).with_name(f"cuda_{rung}.cu")
