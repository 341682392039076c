"""Time the ladder's epilogues beside cuBLASLt's and beside cuBLAS followed by kernels of its own:
`python -m matmul_hopper.linear`. Writes JSON lines: the environment, then a product each."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import torch

from kernelwright.contract import H200
from kernelwright.dispatch import specs_of
from kernelwright.machine import facts, here
from kernelwright.ops.matmul.gemm import hopper_cost, spec, torch_rungs
from kernelwright.ops.matmul.gemm.hopper_tiling import transposed

from . import build, figures, ladder, timing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m matmul_hopper.linear")
    parser.add_argument("--out", type=Path, default=Path("linear.jsonl"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--most", type=int, default=5, help="configs timed for a product")
    asked = parser.parse_args()
    generator = random.Random(0)
    keep = ((8192, 3072, 768), {"bias": True, "activation": "gelu_tanh", "keep": True}, "")
    few = ((512, 16384, 4096), {"bias": True, "activation": "gelu_tanh"}, "")
    with asked.out.open("w") as file:
        print(json.dumps({"environment": facts(here()), **vars(asked)}, default=str), file=file)
        for shape, epilogue, _ in (*spec.BENCH, keep, few):
            row = {"set": str(epilogue), "shape": shape, "layout": "NT", "kind": str(epilogue)}
            row |= _times(shape, epilogue, asked, generator)
            print(json.dumps(row), file=file, flush=True)
            us = {name: figures.median(x) for name, x in row["times"].items()}
            best = min(x for name, x in us.items() if name[:3] != "cub")
            print(shape, epilogue, {n: round(x / best, 3) for n, x in us.items()})


def _times(shape, epilogue, asked, generator):
    m, n, k = shape
    count = max(1, -(-timing.FOOTPRINT // (2 * (m * k + n * k + m * n))))
    sets = [_operands(m, n, k, **epilogue) for _ in range(count)]
    configs = _ranked(specs_of(sets[0]))[: asked.most]
    build.ahead(ladder.kernels(configs, sets[0]))
    again = min(200, int(timing.REPLAY / (2 * m * n * k / 650e12) / count) + 1)
    graphs = {"cublas, kernels": [lambda s=s: torch_rungs.native_linear(**s) for s in sets]}
    if set(epilogue) <= {"bias", "activation"} and epilogue.get("activation") == "gelu_tanh":
        graphs["cublaslt"] = [
            lambda s=s: torch._addmm_activation(s["bias"], s["x"], s["weight"].mT, use_gelu=True)
            for s in sets
        ]
    for choice in configs:
        graphs[ladder.named(choice)] = [ladder.call(choice, s) for s in sets]
    recorded = {name: timing.recorded(calls * again) for name, calls in graphs.items()}
    return timing.replayed(recorded, count * again, asked.rounds, generator)


def _operands(m, n, k, bias=False, activation="none", gate=False, residual=False, keep=False):
    def made(there: bool, *shape: int) -> torch.Tensor | None:
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16) if there else None

    return {
        "x": made(True, m, k),
        "weight": torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * k**-0.5,
        "bias": made(bias, n),
        "gate": made(gate, m, n),
        "residual": made(residual, m, n),
        "activation": activation,
        "keep": keep,
    }


def _ranked(specs):
    p = ladder.product(specs["x"], transposed(specs["weight"]))
    fit = [c for c in ladder.LINEAR if c[0].supports(H200, **specs) is None]
    return sorted(fit, key=lambda c: hopper_cost.us(H200, c[0].name, c[1], p))


if __name__ == "__main__":
    main()
