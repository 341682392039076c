"""Fit the cost model's constants by random search: `python -m matmul_hopper.fit --steps 1800`.

The loss is the time that choosing with the model loses, and the model's error near the best config.
Of records.jsonl, what later changes of the kernels made stale is left out: shapes that leave more
than 24 rows or columns of the last tile empty before run 7, stream-K before run 5.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from dataclasses import asdict, replace

from . import figures, model
from .candidates import CANDIDATES
from .configs import Config, StreamK
from .model import Constants
from .shapes import Product

NAMES = {str(config): config for config in CANDIDATES}
FAR = 1.5  # configs that take longer than this many times the best say nothing of the choice

#: Of each product, each config's time as a part of cuBLAS's in the same run.
Timed = dict[Product, dict[Config, float]]


def records() -> tuple[Timed, dict[Product, float]]:
    """Configs' times by product, and cuBLAS's microseconds."""
    parts, library = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    for row in figures.rows(figures.RECORDS):
        (m, n, k), layout, us = row["shape"], row["layout"], row["medians"]
        outside = max(-m % 128, -n % 128)
        padded = layout.endswith("p")  # rows further apart than k
        if row["kind"] != "plain" or padded or (row["run"] < 7 and outside > 24):
            continue
        for name in NAMES.keys() & us.keys():
            if row["run"] < 5 and isinstance(NAMES[name], StreamK):
                continue
            parts[m, n, k, layout][NAMES[name]].append(us[name] / us["cublas"])
        library[m, n, k, layout].append(us["cublas"])
    timed = {
        product: {config: sum(x) / len(x) for config, x in configs.items()}
        for product, configs in parts.items()
        if len(configs) > 1
    }
    return timed, {product: figures.median(library[product]) for product in timed}


def loss(constants: Constants, timed: Timed, library: dict[Product, float]) -> float:
    lost, squares, weights = [], 0.0, 0.0
    for product, parts in timed.items():
        estimated = {c: model.us(c, *product, of=constants) for c in parts}
        best, chosen = min(parts.values()), min(estimated, key=estimated.__getitem__)
        lost.append(math.log(parts[chosen] / best))
        for config, part in parts.items():
            if part > FAR * best or estimated[config] == math.inf:
                continue
            weight = (best / part) ** 6
            squares += weight * math.log(estimated[config] / part / library[product]) ** 2
            weights += weight
    return sum(lost) / len(lost) + 0.5 * math.sqrt(squares / weights) + 0.1 * max(lost)


def search(
    timed: Timed, library: dict[Product, float], seed: int, steps: int
) -> tuple[Constants, float]:
    generator = random.Random(seed)
    best, width = model.FITTED, 0.15
    least, names = loss(best, timed, library), list(asdict(best))
    for _ in range(steps):
        changed = generator.sample(names, generator.choice((1, 1, 2, 3)))
        moved = {x: getattr(best, x) * math.exp(generator.gauss(0, width)) for x in changed}
        found = replace(best, **moved)
        score = loss(found, timed, library)
        if score < least:
            best, least = found, score
        width = max(0.03, width * 0.998)
    return best, least


def report(constants: Constants, timed: Timed, library: dict[Product, float]) -> None:
    """Of each product cuBLAS's TFLOP/s, the chosen and the best config, its time over theirs."""
    ratios = {"aligned": ([], []), "slanted": ([], [])}
    for product, parts in sorted(timed.items(), key=lambda x: math.prod(x[0][:3])):
        m, n, k, layout = product
        chosen = min(parts, key=lambda c: model.us(c, *product, of=constants))
        best = min(parts, key=parts.__getitem__)
        kind = "aligned" if all(model.aligned(*product)) else "slanted"
        for config, found in zip((chosen, best), ratios[kind], strict=True):
            found.append(1 / parts[config])
        tflops = 2 * m * n * k / library[product] * 1e-6
        named = " | ".join(f"{c} | {1 / parts[c]:.3f}" for c in (chosen, best))
        print(f"| {m} x {n} x {k} | {layout} | {kind} | {tflops:.0f} | {named} |")
    for kind, (chosen, best) in ratios.items():
        print(
            f"{kind}: {len(best)} shapes; chosen {figures.line(chosen)}; best {figures.line(best)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m matmul_hopper.fit", description=__doc__)
    parser.add_argument(
        "--steps", type=int, default=0, help="of the search; 0 shows the model as is"
    )
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    timed, library = records()
    constants, score = search(timed, library, asked.seed, asked.steps)
    report(constants, timed, library)
    print(f"loss {score:.4f}", {name: round(x, 3) for name, x in asdict(constants).items()})


if __name__ == "__main__":
    main()
