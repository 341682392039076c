"""Time the ladder's rungs for Hopper beside cuBLAS at listed and random products on one GPU.

    python -m benchmarks.matmul_model.sweep

Writes JSON lines: the environment, then a product each.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch

from kernelwright.contract import TensorSpec
from kernelwright.machine import facts, here

from . import build, calls, figures, shapes, timing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matmul_model.sweep")
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"))
    parser.add_argument("--seed", type=int, default=0, help="of the random shapes and the order")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--most", type=int, default=10, help="configs timed for a product")
    parser.add_argument("--count", type=int, default=40, help="products of each random set")
    parser.add_argument("--seconds", type=float, default=100, help="of timing")
    asked = parser.parse_args()
    generator = random.Random(asked.seed)
    products = shapes.sampled(asked.seed, asked.count)
    generator.shuffle(products)  # what the time limit leaves out is of no one kind
    chosen = {p: calls.ranked(specs(p[1]))[: asked.most] for p in products}
    build.ahead(k for p, c in chosen.items() for k in calls.kernels(c, specs(p[1])))
    start = time.monotonic()
    with asked.out.open("w") as file:
        print(json.dumps({"environment": facts(here()), **vars(asked)}, default=str), file=file)
        for done, (p, configs) in enumerate(chosen.items()):
            if time.monotonic() - start > asked.seconds:
                print(f"out of time: {len(products) - done} of {len(products)} are not timed")
                break
            name, (*shape, layout) = p
            row = {"set": name, "shape": shape, "layout": layout, "kind": "plain"}
            row |= {"first": calls.named(configs[0])}
            row |= _times(p[1], configs, asked.rounds, generator)
            print(json.dumps(row), file=file, flush=True)
    timed = figures.rows(asked.out)
    print(*figures.by_set(timed), figures.control(timed), sep="\n")


def specs(product: shapes.Product) -> dict[str, TensorSpec]:
    m, n, k, layout = product

    def matrix(rows: int, cols: int, by_rows: bool) -> TensorSpec:
        return TensorSpec((rows, cols), (cols, 1) if by_rows else (1, rows), torch.bfloat16)

    return {"a": matrix(m, k, layout[0] == "N"), "b": matrix(k, n, layout[1] == "N")}


def _operands(product: shapes.Product) -> dict[str, torch.Tensor]:
    def filled(spec: TensorSpec) -> torch.Tensor:
        numbers = torch.randn(spec.numel(), device="cuda", dtype=spec.dtype)
        return numbers.as_strided(spec.shape, spec.strides)

    return {name: filled(spec) for name, spec in specs(product).items()}


def _times(product, configs, rounds, generator):
    m, n, k, _ = product
    footprint = 2 * (m * k + k * n + m * n)
    count = min(timing.SETS, max(1, -(-timing.FOOTPRINT // footprint)))
    sets = [_operands(product) for _ in range(count)]
    outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in sets]
    expected = torch.mm(sets[0]["a"], sets[0]["b"]).float()
    guess = max(2 * m * n * k / 650e12, footprint / 3.5e12, 5e-6)
    again = min(200, int(timing.REPLAY / guess / len(sets)) + 1)
    library = [
        lambda s=s, out=out: torch.mm(s["a"], s["b"], out=out)
        for s, out in zip(sets, outs, strict=True)
    ] * again
    graphs = {"cublas": timing.recorded(library), "cublas again": timing.recorded(library)}
    for choice in configs:
        launches = [calls.call(choice, s) for s in sets]
        error = ((launches[0]().float() - expected).norm() / expected.norm()).item()
        if not error < timing.TOO_FAR:
            raise RuntimeError(f"{calls.named(choice)} {product}: off by {error:.2g}")
        graphs[calls.named(choice)] = timing.recorded(launches * again)
    return timing.replayed(graphs, len(sets) * again, rounds, generator)


if __name__ == "__main__":
    main()
