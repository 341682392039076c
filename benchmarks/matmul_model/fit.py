"""Fits the constants of the ladder's cost model (ops/matmul/gemm/hopper/cost.py) by random search.

    python -m benchmarks.matmul_model.fit --steps 1500

Without --steps it shows what the model chooses.

The loss for the rungs' constants is the time lost by choosing with them, plus the model's error
near the best config; for cuBLAS's constants it is their error. `--held-out N` excludes every N-th
product from the fit and reports on those products only.
"""

from __future__ import annotations

import argparse
import math
import random
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernelwright.contract import H200
from kernelwright.ops.matmul.gemm.hopper import choice, cost
from kernelwright.ops.matmul.gemm.hopper.cost import CUBLAS, CUBLAS_TILES, OURS, Constants, Product

from . import calls, figures, sweep

RECORDS = Path(__file__).with_name("timings.jsonl")
FAR = 1.5  # configs that take longer than this many times the best say nothing of the choice
NAMED = {calls.named(choice): choice for choice in calls.SERVING}


@dataclass(frozen=True)
class Timed:
    """A product, microseconds of each config that is still there, and of cuBLAS."""

    product: Product
    ours: dict[str, float]
    cublas: float


def records(path: Path = RECORDS) -> list[Timed]:
    candidate = []
    for row in figures.rows(path):
        us = row["medians"]
        ours = {name: us[name] for name in NAMED.keys() & us.keys()}
        if ours:
            specs = sweep.specs((*row["shape"], row["layout"]))
            library = math.sqrt(us["cublas"] * us["cublas again"])
            candidate.append(Timed(calls.product(**specs), ours, library))
    return candidate


def estimate(name: str, p: Product, of: Constants) -> float:
    rung, config = NAMED[name]
    return cost.us(H200, rung.name, config, p, of)


def loss(of: Constants, timed: list[Timed]) -> float:
    lost, errors, weights = [], 0.0, 0.0
    for t in timed:
        best = min(t.ours.values())
        near = {n: estimate(n, t.product, of) for n, us in t.ours.items() if us < FAR * best}
        lost.append(math.log(t.ours[min(near, key=near.__getitem__)] / best))
        for name, us in near.items():
            weight = (best / t.ours[name]) ** 6
            if us < math.inf:
                errors += weight * math.log(us / t.ours[name]) ** 2
                weights += weight
    return sum(lost) / len(lost) + 0.4 * math.sqrt(errors / weights)


def loss_of_cublas(of: Constants, timed: list[Timed]) -> float:
    errors = [math.log(_cublas(t.product, of) / t.cublas) for t in timed]
    return math.sqrt(sum(e * e for e in errors) / len(errors))


def _cublas(p: Product, of: Constants) -> float:
    kinds = CUBLAS_TILES.items()
    return min(cost.us(H200, kind, c, p, of) for kind, cs in kinds for c in cs)


def search(
    start: Constants, cost: Callable[[Constants], float], steps: int, seed: int
) -> Constants:
    generator, best, least, width = random.Random(seed), start, cost(start), 0.15
    for _ in range(steps):
        changed = generator.sample(list(asdict(best)), generator.choice((1, 1, 2, 3)))
        moved = {x: getattr(best, x) * math.exp(generator.gauss(0, width)) for x in changed}
        candidate = replace(best, **moved)
        if (score := cost(candidate)) < least:
            best, least = candidate, score
        width = max(0.03, width * 0.998)
    return best


def report(timed: list[Timed], ours: Constants, cublas: Constants) -> None:
    """Ratios of the best time known to that of what is chosen: among configs, and with cuBLAS."""
    chosen, dispatched, beside = [], [], []
    for t in timed:
        estimates = {n: estimate(n, t.product, ours) for n in t.ours}
        first = min(estimates, key=estimates.__getitem__)
        theirs = _cublas(t.product, cublas) < estimates[first] * choice.CAUTION
        best = min(t.ours.values())
        chosen.append(best / t.ours[first])
        beside.append(t.cublas / t.ours[first])
        dispatched.append(min(best, t.cublas) / (t.cublas if theirs else t.ours[first]))
    for name, ratios in (("config", chosen), ("config beside cuBLAS", beside),
                         ("dispatch with cuBLAS", dispatched)):  # fmt: skip
        under = sum(r < 0.97 for r in ratios)
        print(f"{name}: {figures.line(ratios)}, {under} of {len(ratios)} under 0.97")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matmul_model.fit", description=__doc__
    )
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=0)
    asked = parser.parse_args()
    timed = records()
    judged = timed[:: asked.held_out] if asked.held_out else timed
    fitted = [t for t in timed if t not in judged] if asked.held_out else timed
    ours = search(OURS, lambda c: loss(c, fitted), asked.steps, asked.seed)
    cublas = search(CUBLAS, lambda c: loss_of_cublas(c, fitted), asked.steps, asked.seed)
    report(judged, ours, cublas)
    for of in (ours, cublas):
        print(re.sub(r"(\.\d{3})\d+", r"\1", repr(of)))


if __name__ == "__main__":
    main()
