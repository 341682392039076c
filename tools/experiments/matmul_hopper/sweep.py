"""Check every candidate, then time the model's first choices beside cuBLAS, on one GPU in one run:
`python -m matmul_hopper.sweep`. Writes JSON lines: the environment, then a product each."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from kernelwright.contract import CudaKernel
from kernelwright.machine import facts, here

from . import build, check, figures, model, shapes, timing
from .epilogues import CPP, cpp


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m matmul_hopper.sweep", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("sweep.jsonl"))
    parser.add_argument("--seed", type=int, default=0, help="of the random shapes and the order")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--most", type=int, default=4, help="configs timed for a product")
    parser.add_argument("--seconds", type=float, default=300, help="of timing")
    asked = parser.parse_args()
    products = [("listed", s) for s in shapes.LISTED]
    products += [("layers", s) for s in shapes.layers(asked.seed, 24)]
    products += [("multiples of 8", s) for s in shapes.multiples(asked.seed + 1, 10)]
    generator = random.Random(asked.seed)
    generator.shuffle(products)  # what the time limit leaves out is of no one kind
    build.ahead(kernels())
    found = check.faults()
    if found:
        sys.exit("\n".join(["Nothing is timed: kernels are wrong.", *found]))
    start = time.monotonic()
    with asked.out.open("w") as file:
        print(json.dumps({"environment": facts(here()), **vars(asked)}, default=str), file=file)
        for done, (name, (*shape, layout)) in enumerate(products):
            if time.monotonic() - start > asked.seconds:
                print(f"out of time: {len(products) - done} of {len(products)} are not timed")
                break
            configs = model.ranked(*shape, layout)[: asked.most]
            row = {"set": name, "shape": shape, "layout": layout, "kind": "plain"}
            row |= {"first": str(configs[0])}
            row |= timing.times(tuple(shape), layout, configs, asked.rounds, generator)
            print(json.dumps(row), file=file, flush=True)
    timed = figures.rows(asked.out)
    print(*figures.by_set(timed), figures.control(timed), sep="\n")


def kernels() -> list[CudaKernel]:
    """All that the checks launch, those of every candidate among them."""
    return [
        build.kernel(config, layout, CPP[dtype], cpp(kind, CPP[dtype]))
        for config, _, layout, dtype, kind in check.checks()
    ]


if __name__ == "__main__":
    main()
