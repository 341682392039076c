"""Fits which rung and config are dispatched for few rows, from times measured on a GPU.

    python -m tools.selection compile layer_norm rms_norm
    python -m tools.selection sweep FILE layer_norm rms_norm --seconds 40
    python -m tools.selection fit FILE

`compile` fills the cache with what a sweep launches, on all cores. A sweep times every proven rung
with every config on random shapes of few rows, until its seconds are spent; each is verified first.
The fit needs no GPU. It is a tree over rows and columns, whose leaves are a rung and config;
`dispatch/fitted.py` reads it. Shapes that were not used to make it say whether it generalizes. A
tree that is not better there than the ladder's own order is not written.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import random
import sys
import time
from functools import cache
from pathlib import Path

import torch

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import H200, Config, Ladder, case
from kernelwright.dispatch import fitted, ladders, plan_of, source_hash, specs_of
from kernelwright.dispatch.selection import config_for, proven_on, unsupported_on
from kernelwright.machine import clock, gpu_of, here
from kernelwright.toolchain import build, modes
from kernelwright.workbench.bench import tune_model
from kernelwright.workbench.bench.model_calls import Call
from kernelwright.workbench.bench.tune import Tried

ROWS = (1, 4, 16, 64, 128, 256)
COLUMNS = (1024, 1536, 2624, 4096, 5120, 6080, 7168, 9216, 11008, 13888, 16384)
PARTS = 4  # of the configs for one length of rows, each compiled by a worker
DTYPES = ("bfloat16", "float16", "float32")
RULE = clock.StoppingRule(least=4, most=8, width=0.03, candidate_s=0.02, seconds=0.4)
LEAST, LEAF = 2, 0.03  # shapes of a leaf; what it must gain, in sums of log regrets
HELD_OUT = 4  # every n-th shape is not used to make the tree


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.selection")
    commands = parser.add_subparsers(dest="command", required=True)
    compiling = commands.add_parser("compile", help="compile what a sweep will launch")
    compiling.add_argument("operators", nargs="+")
    compiling.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    sweeping = commands.add_parser("sweep", help="time every choice on random shapes of few rows")
    sweeping.add_argument("file", type=Path)
    sweeping.add_argument("operators", nargs="+")
    sweeping.add_argument("--seconds", type=float, default=60.0)
    sweeping.add_argument("--seed", type=int, default=0)
    sweeping.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    fitting = commands.add_parser("fit", help="make the tables of a sweep")
    fitting.add_argument("file", type=Path)
    asked = parser.parse_args(words)
    if asked.command == "compile":
        compile_all(asked.operators, asked.dtype)
    elif asked.command == "sweep":
        sweep(asked.file, asked.operators, asked.seconds, asked.seed, asked.dtype)
    else:
        fit(asked.file)
    return 0


def ladder(name: str) -> Ladder:
    return next(x for x in ladders() if x.name == name)


def shapes(seed: int) -> list[tuple[int, int]]:
    """Every pair of rows and columns, in a random order."""
    pairs = [(r, c) for r in ROWS for c in COLUMNS]
    random.Random(seed).shuffle(pairs)
    return pairs


def arguments(of: Ladder, rows: int, columns: int, dtype: str, device: str) -> dict:
    template = next(c for c in of.operator.cases if c.use == "bench")
    wanted = case((rows, columns), getattr(torch, dtype), **dict(template.params))
    return of.operator.with_defaults(of.operator.inputs(wanted, device))


# --- on a GPU ------------------------------------------------------------------------------------


def compile_all(names: list[str], dtype: str) -> None:
    modes.compile_only()
    work = [(name, c, dtype, part) for name in names for c in COLUMNS for part in range(PARTS)]
    # fork: a worker starts with everything imported
    with multiprocessing.get_context("fork").Pool(max(1, (os.cpu_count() or 1) - 2)) as pool:
        count = sum(pool.starmap(compiled, work, chunksize=1))
    print(f"{count} kernels compiled")


def compiled(name: str, columns: int, dtype: str, part: int) -> int:
    of, seen = ladder(name), 0
    for rows in (ROWS[0], ROWS[-1]):
        specs, _ = of.operator.normalise(specs_of(arguments(of, rows, columns, dtype, "meta")))
        every = [
            (rung, config)
            for rung in of.rungs
            if rung.is_gpu
            and rung.dispatchable
            and proven_on(of, rung)
            and unsupported_on(rung, specs, H200) is None
            for config in (*rung.configs, config_for(rung, H200, specs))
        ]
        for rung, config in every[part::PARTS]:
            plan = plan_of(of, rung, specs, config=config)
            tensors = build.Tensors(plan, of.operator, specs)
            for step in plan.launches:
                build.compile(step, tensors, H200.arch)
                seen += 1
    return seen


def sweep(path: Path, names: list[str], seconds: float, seed: int, dtype: str) -> None:
    start, device = time.monotonic(), here()
    rows: list[dict] = []
    work = [(ladder(n), *shape) for shape in shapes(seed) for n in names]
    for of, r, c in work:
        if time.monotonic() - start > seconds:
            break
        args = arguments(of, r, c, dtype, device.type)
        call = Call(of, f"{of.name} {r} x {c}", args, device)
        with clock.session(device):
            tried, _ = tune_model.try_all(call, math.inf, RULE)
        specs, _ = of.operator.normalise(specs_of(args))
        rows.append({
            "operator": of.name, "rows": r, "columns": c, "own": own(of, specs),
            "us": times(of, specs, tried),
            "trouble": {label(t.rung, t.config): t.why for t in tried if t.why},
        })  # fmt: skip
    gpu = gpu_of(device)
    assert gpu is not None
    sources = {f"{n}.{r.name}": source_hash(ladder(n), r) for n in names for r in ladder(n).rungs}
    document = {"dtype": dtype, "capability": gpu.capability, "sources": sources, "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(rows)} of {len(work)} shapes in {time.monotonic() - start:.0f} s")


def times(of: Ladder, specs: dict, tried: list[Tried]) -> dict[str, float]:
    """Microseconds of every choice. What launches the same as another one was timed once."""
    us_by_label = {label(t.rung, t.config): t.us for t in tried if t.us is not None}
    for name in {t.rung for t in tried}:
        rung = of.rung(name)
        planned = {label(name, c): plan_of(of, rung, specs, config=c).launches
                   for c in rung.configs if rung.is_gpu}  # fmt: skip
        for one, launches in planned.items():
            same = (
                us_by_label[x]
                for x, other in planned.items()
                if x in us_by_label and other == launches
            )
            if one not in us_by_label and (us := next(same, None)):
                us_by_label[one] = us
    return us_by_label


def own(of: Ladder, specs: dict) -> str:
    """What the ladder's order and heuristics choose."""
    gpu = gpu_of(here()) or H200
    for name in of.order(gpu, **specs):
        rung = of.rung(name)
        if proven_on(of, rung) and unsupported_on(rung, specs, gpu) is None:
            return label(name, config_for(rung, gpu, specs))
    return "native"


def label(rung: str, config: Config) -> str:
    return f"{rung} {json.dumps(config, sort_keys=True)}" if config else rung


# --- the fit -------------------------------------------------------------------------------------

Row = dict


def fit(path: Path) -> None:
    document = json.loads(path.read_text())
    dtype, capability = document["dtype"], document["capability"]
    for name in dict.fromkeys(r["operator"] for r in document["rows"]):
        rows = [r for r in document["rows"] if r["operator"] == name and r["own"] in r["us"]]
        rows.sort(key=lambda r: (r["rows"] * 7919 + r["columns"] * 104729) % 1000003)
        used = [r for i, r in enumerate(rows) if i % HELD_OUT]
        held = rows[::HELD_OUT]
        leaves = grown(used)
        regrets_of = {
            "own order": regrets(held, [r["own"] for r in held]),
            "tree": regrets(held, [choice(leaves, r) for r in held]),
        }
        print(f"{name}: {len(used)} shapes, {len(leaves)} leaves; on {len(held)} others,"
              f" geometric mean and 95th percentile of the time over the best:")  # fmt: skip
        for who, values in regrets_of.items():
            print(f"  {who:9} {geometric(values):.3f} {percentile(values, 95):.3f}")
        for leaf in leaves:
            print(f"  {told(leaf)}")
        if geometric(regrets_of["tree"]) >= geometric(regrets_of["own order"]):
            print("  not better than the ladder's own order: not written")
            continue
        leaves = grown(rows)
        sources = {x["rung"]: document["sources"][f"{name}.{x['rung']}"] for x in leaves}
        validated = {who: round(percentile(v, 95), 3) for who, v in regrets_of.items()}
        table = {"shapes": len(rows), "validated": validated,
                 "sources": sources, "leaves": leaves}  # fmt: skip
        target = fitted.path(name, dtype, capability)
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(table, indent=1) + "\n")
        print(f"  {target}")


def grown(rows: list[Row]) -> list[dict]:
    """Leaves: ranges of rows and columns (last ones included), and their choice. Of all ways to cut
    the grid in two, and each part again, the one with the least sum of log regrets, where a leaf
    costs LEAF and has LEAST shapes."""
    ends = {axis: sorted({r[axis] for r in rows}) for axis in ("rows", "columns")}

    @cache
    def best(r0: int, r1: int, c0: int, c1: int) -> tuple[float, tuple[tuple, ...]]:
        """(cost, leaves) of a part, by indices of its first and last rows and columns."""
        box = (ends["rows"][r0], ends["rows"][r1]), (ends["columns"][c0], ends["columns"][c1])
        (low, high), (left, right) = box
        mine = [r for r in rows if low <= r["rows"] <= high and left <= r["columns"] <= right]
        if len(mine) < LEAST:
            return math.inf, ()
        cost, name = best_of(mine)
        trees = [(cost + LEAF, ((*box, name),))]
        cuts = [(best(r0, i, c0, c1), best(i + 1, r1, c0, c1)) for i in range(r0, r1)]
        cuts += [(best(r0, r1, c0, i), best(r0, r1, i + 1, c1)) for i in range(c0, c1)]
        trees += [(a[0] + b[0], (*a[1], *b[1])) for a, b in cuts]
        return min(trees, key=lambda x: x[0])

    _, parts = best(0, len(ends["rows"]) - 1, 0, len(ends["columns"]) - 1)
    leaves = []
    for (low, high), (left, right), name in sorted(parts):
        rung, _, config = name.partition(" ")
        # a part begins behind the one before it, also where no shape was measured
        box = {"rows": [behind(ends["rows"], low), high],
               "columns": [behind(ends["columns"], left), right]}  # fmt: skip
        leaves.append({**box, "rung": rung, "config": json.loads(config) if config else {}})
    return leaves


def behind(ends: list[int], first: int) -> int:
    i = ends.index(first)
    return ends[i - 1] + 1 if i else first


def best_of(rows: list[Row]) -> tuple[float, str]:
    """(the sum of log regrets, the choice) of the choice with the least, among those that every
    row was timed with."""
    common = set.intersection(*(set(r["us"]) for r in rows))
    return min((sum(math.log(r["us"][c] / min(r["us"].values())) for r in rows), c) for c in common)


def choice(leaves: list[dict], row: Row) -> str:
    leaf = fitted.leaf(leaves, row["rows"], row["columns"])
    return label(leaf["rung"], leaf["config"]) if leaf else row["own"]


def regrets(rows: list[Row], chosen: list[str]) -> list[float]:
    """Times of what is chosen over the best. What is not timed is not eligible: the ladder's own
    order serves."""
    pairs = zip(rows, chosen, strict=True)
    return [r["us"].get(c, r["us"][r["own"]]) / min(r["us"].values()) for r, c in pairs]


def told(leaf: dict) -> str:
    (r0, r1), (c0, c1) = leaf["rows"], leaf["columns"]
    return f"rows {r0:3}-{r1:3}, columns {c0:5}-{c1:5}: {label(leaf['rung'], leaf['config'])}"


def geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(percent * len(ordered) / 100) - 1]


if __name__ == "__main__":
    sys.exit(main())
