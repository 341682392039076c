"""Whether kernels are right, against float64 on a GPU: `python -m matmul_hopper.check`."""

from __future__ import annotations

import sys

import torch

from .candidates import CANDIDATES
from .configs import Config, Persistent, Pingpong, Split, StreamK
from .epilogues import Epilogue
from .launch import Launch

#: m, n, k: odd tiles, several waves, one slab, fewer rows than a tile, one slab that is not full.
SHAPES = ((264, 520, 1032), (1000, 776, 904), (2312, 3080, 712), (5000, 4000, 64), (129, 1000, 8))
LAYOUTS = ("NT", "NN", "TN")
OUTSIDE = -77.0

Check = tuple[Config, tuple[int, int, int], str, torch.dtype, str]


def checks() -> list[Check]:
    """Every candidate at every shape; epilogues and fp16 where registers are fullest."""
    bf16, fp16 = torch.bfloat16, torch.float16
    made: list[Check] = [
        (config, shape, layout, bf16, "plain")
        for shape in SHAPES
        for layout in LAYOUTS
        if layout[0] == "N" or shape[0] % 8 == 0  # m is a stride of A
        for config in CANDIDATES
        if shape[2] >= config.least_k
    ]
    wide, turns = Persistent(128, 256, 3, 4, 2, 1), Pingpong(128, 128, 5, 4, 2, 1)
    with_epilogue = (wide, turns, StreamK(128, 256, 4, 2, 2, 1), Split(128, 5, 2))
    for shape in SHAPES[:3]:
        made += [(c, shape, "NT", bf16, kind) for c in with_epilogue for kind in ("bias", "gelu")]
        made += [(c, shape, "NT", fp16, "plain") for c in (wide, turns)]
        made += [(c, shape, "TT", bf16, "plain") for c in (wide, turns)]
    return made


def fault(
    config: Config, shape: tuple[int, int, int], layout: str, dtype: torch.dtype, kind: str
) -> str | None:
    """What is wrong with a config's results, or None: an error above twice cuBLAS's by norm or by
    maximum, other bits at another launch, or a write outside C."""
    m, n, k = shape
    a, b = matrix(m, k, layout[0] == "N", dtype), matrix(k, n, layout[1] == "N", dtype)
    whole = torch.full((m + 2, n + 16), OUTSIDE, device="cuda", dtype=dtype)
    c = whole[1 : 1 + m, 8 : 8 + n]
    c.fill_(float("nan"))
    epilogue = Epilogue.random(kind, n, dtype)
    launch = Launch(config, a, b, c, epilogue)
    launch.run()
    first = c.clone()
    for _ in range(3):
        launch.run()
    exact = epilogue.exact(a.double() @ b.double())
    # PyTorch rounds the product before what follows, and again after it
    peer = epilogue.exact((a @ b).double()).to(dtype)
    ours, theirs = (x.double() - exact for x in (first, peer))
    norm = (ours.norm() / theirs.norm()).item()
    worst = (ours.abs().max() / theirs.abs().max()).item()
    same = torch.equal(first, c)
    c.fill_(OUTSIDE)
    kept = bool((whole == OUTSIDE).all())
    if norm <= 2 and worst <= 2 and same and kept:
        return None
    where = f"{config} {layout} {m}x{n}x{k} {dtype} {kind}"
    return f"{where}: {norm:.3g} and {worst:.3g} of cuBLAS's error, {same=}, {kept=}"


def matrix(rows: int, cols: int, by_rows: bool, dtype: torch.dtype) -> torch.Tensor:
    """Random, inside a larger allocation of NaN."""
    high, wide = (rows, cols) if by_rows else (cols, rows)
    whole = torch.full((high + 3, wide + 16), float("nan"), device="cuda", dtype=dtype)
    inner = whole[1 : 1 + high, 8 : 8 + wide]
    inner.copy_(torch.randn(high, wide, device="cuda"))
    return inner if by_rows else inner.t()


def faults() -> list[str]:
    return [found for check in checks() if (found := fault(*check))]


if __name__ == "__main__":
    found = faults()
    print(f"{len(checks())} checks, {len(found)} failed", *found, sep="\n")
    sys.exit(bool(found))
