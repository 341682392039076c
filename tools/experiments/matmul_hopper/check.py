"""Checks the ladder's rungs for Hopper against float64 on a GPU, with red zones around their
results: `python -m matmul_hopper.check`."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from kernelwright.contract import H200
from kernelwright.dispatch import specs_of
from kernelwright.ops.matmul.gemm import hopper_ladder, spec, torch_rungs
from kernelwright.toolchain import redzones

from . import build, ladder

#: m, n, k: odd tiles, several waves, a k of one slice, fewer rows or columns than a tile.
SHAPES = ((264, 520, 1032), (2000, 1288, 904), (129, 1000, 8), (1, 512, 1000), (50, 8, 700),
          (40, 256, 520))  # fmt: skip
EPILOGUES = (
    {"bias": True, "activation": "gelu_tanh"},
    {"bias": True, "activation": "gelu", "keep": True},
    {"activation": "silu", "gate": True},
    {"bias": True, "residual": True},
    {"bias": True, "activation": "relu", "gate": True, "residual": True, "keep": True},
)
PARTS = 10
Check = tuple[ladder.Choice, dict[str, Any], str]


def matrix(rows: int, cols: int, by_columns: bool, dtype: torch.dtype, batch=()) -> torch.Tensor:
    """Random, inside a larger allocation of NaN, rows a multiple of 16 bytes apart."""
    high, wide = (cols, rows) if by_columns else (rows, cols)
    size = (*batch, high + 3, (wide + 7) // 8 * 8 + 16)
    whole = torch.full(size, float("nan"), device="cuda", dtype=dtype)
    inner = whole[..., 1 : 1 + high, 8 : 8 + wide]
    inner.copy_(torch.randn(*batch, high, wide, device="cuda"))
    return inner.mT if by_columns else inner


def checks() -> Iterator[Check]:
    """Every config in one layout, the first of each rung in all of them and in float16, and in
    batches; every epilogue."""
    every = [(r, c) for r in hopper_ladder.RUNGS for c in r.configs]
    first = [(r, r.configs[0]) for r in hopper_ladder.RUNGS]
    bf16, fp16 = torch.bfloat16, torch.float16
    for m, n, k in SHAPES:
        for turn, layout in enumerate(("NT", "NN", "TN", "TT")):
            for dtype, choices in ((bf16, first + every[turn::4]), (fp16, first)):
                if dtype == fp16 and turn:
                    continue
                a = matrix(m, k, layout[0] == "T", dtype)
                b = matrix(k, n, layout[1] == "T", dtype)
                yield from ((c, {"a": a, "b": b}, f"{m}x{n}x{k} {layout} {dtype}") for c in choices)
    for name, batch in (("batch", (3,)), ("one b for a batch", ())):
        for layout in ("NT", "TN"):
            a = matrix(200, 136, layout[0] == "T", bf16, (3,))
            b = matrix(136, 328, layout[1] == "T", bf16, batch).expand(3, -1, -1)
            yield from ((c, {"a": a, "b": b}, f"{name} {layout}") for c in first)
    for m, n, k in SHAPES[:2] + SHAPES[3:]:
        for turn, epilogue in enumerate(EPILOGUES):
            args = linear(m, n, k, bf16, **epilogue)
            some = [(r, r.configs[0]) for r in hopper_ladder.LINEAR_RUNGS]
            some += ladder.LINEAR[turn :: len(EPILOGUES)]
            yield from ((c, args, f"{m}x{n}x{k} {epilogue}") for c in some)


def linear(m, n, k, dtype, bias=False, activation="none", gate=False, residual=False, keep=False):
    def maybe(there: bool) -> torch.Tensor | None:
        return matrix(m, n, False, dtype) if there else None

    return {
        "x": matrix(m, k, False, dtype),
        "weight": matrix(k, n, True, dtype).mT * k**-0.5,
        "bias": torch.randn(n, device="cuda", dtype=dtype) if bias else None,
        "gate": maybe(gate),
        "residual": maybe(residual),
        "activation": activation,
        "keep": keep,
    }


def fault(check: Check) -> str | None:
    """What is wrong, or None: an error above twice PyTorch's by norm or by maximum, other bits at
    another call, a write outside, an element not written."""
    choice, args, what = check
    if choice[0].supports(H200, **specs_of(args)) is not None:
        return None
    with redzones.guarded() as guard:
        run = ladder.call(choice, args)
        first, again = (_results(run()) for _ in range(2))
    outside = guard.check()
    linear = "x" in args
    reference = spec.linear_reference if linear else spec.reference
    native = torch_rungs.native_linear if linear else torch_rungs.native
    wide = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in args.items()}
    exact, theirs = _results(reference(**wide)), _results(native(**args))
    wrong = [] if outside is None else [outside]
    for ours, same, want, peer in zip(first, again, exact, theirs, strict=True):
        if want.numel() == 0:
            continue
        off, peers = (ours.double() - want).abs(), (peer.double() - want).abs()
        limit = 2 * peers.max() + 2 * torch.finfo(ours.dtype).eps * want.abs().max() / 64
        if not (off.norm() <= 2 * peers.norm() + 1e-9 and off.max() <= limit):
            wrong.append(f"off by {off.norm():.3g}, {off.max():.3g}; PyTorch {peers.norm():.3g}, "
                         f"{peers.max():.3g}")  # fmt: skip
        if not torch.equal(ours, same):
            wrong.append("other bits at another call")
    return f"{ladder.named(choice)} {what}: {'; '.join(wrong)}" if wrong else None


def _results(found) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def _faults(part: int) -> tuple[int, list[str]]:
    """Every PARTS-th check from the part-th on. A kernel that faults ends the process's use of the
    GPU, so that parts have processes of their own."""
    found, count = [], 0
    for number, check in enumerate(checks()):
        if number % PARTS != part:
            continue
        count += 1
        try:
            wrong = fault(check)
        except RuntimeError as e:
            found.append(f"{ladder.named(check[0])} {check[2]}: {str(e).splitlines()[0]}")
            break
        found += [wrong] if wrong else []
    return count, found


def main() -> None:
    os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
    build.ahead(k for choice, args, _ in checks() for k in ladder.kernels([choice], args))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PARTS, mp_context=spawn) as pool:
        parts = list(pool.map(_faults, range(PARTS)))
    found = [f for _, some in parts for f in some]
    print(f"{sum(n for n, _ in parts)} checks, {len(found)} failed", *found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
