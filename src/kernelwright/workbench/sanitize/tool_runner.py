r"""Runs rungs without checks, each on its cases, for a tool that observes the process:
compute-sanitizer, Nsight Compute, gdb.

    compute-sanitizer python -m kernelwright.workbench.sanitize.tool_runner \
      cuda softmax.cuda_warp --case ID

Arguments are made on the CPU and copied, so that the tool sees a write to every byte that a kernel
may read. Before the launches of each call, a line on standard output announces it: `MARK` and a
JSON object with the rung, the config and the case.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from functools import cache

import torch

from kernelwright import toolchain
from kernelwright.contract import Case, Config, Ladder, Rung
from kernelwright.dispatch import device_of, launcher, plan_of, specs_of, unsupported
from kernelwright.workbench.verify.candidate import map_tensors
from kernelwright.workbench.verify.coverage import skip, thorough_cases
from kernelwright.workbench.verify.verify import chosen

MARK = "kernelwright-runs "


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kernelwright.workbench.sanitize.tool_runner")
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("rungs", nargs="+", metavar="OP.RUNG")
    parser.add_argument("--case", action="append", metavar="ID", help="default: watched_cases")
    asked = parser.parse_args(arguments)
    pairs = chosen(asked.rungs)
    for backend in {rung.backend for _, rung in pairs}:
        toolchain.prepare(backend)
    for ladder, rung in pairs:
        named = [ladder.operator.case(c) for c in asked.case or ()]
        for config, case in runs_of(ladder, rung, asked.device, named):
            run(ladder, rung, config, case, asked.device)


def runs_of(
    ladder: Ladder, rung: Rung, device: str, named: Iterable[Case] = ()
) -> Iterable[tuple[Config, Case]]:
    """The runs: the given cases with the first config, or every config on `watched_cases`."""
    if named:
        return [(rung.configs[0], case) for case in named]
    return [
        (config, case)
        for config in rung.configs
        for case in watched_cases(ladder)
        if skip(ladder, rung, config, case, device) is None
    ]


@cache
def watched_cases(ladder: Ladder) -> tuple[Case, ...]:
    """The thorough cases and, to have several blocks, the largest ordinary verify case of each
    dtype and of each set of parameters."""
    largest: dict[object, Case] = {}
    for c in ladder.operator.cases:
        if c.use == "verify" and c.values == "normal" and c.layout == "contiguous":
            for kind in (c.dtype, c.params):
                if kind not in largest or c.numel > largest[kind].numel:
                    largest[kind] = c
    return tuple(dict.fromkeys((*thorough_cases(ladder), *largest.values())))


def run(ladder: Ladder, rung: Rung, config: Config, case: Case, device: str) -> None:
    """Announce one call, run it and wait for it; nothing if the rung does not support the case."""
    inputs = ladder.operator.inputs(case, "cpu")
    args = ladder.operator.with_defaults(inputs)
    args = map_tensors(args, lambda t: apart(t, device))
    specs, _ = ladder.operator.normalise(specs_of(args))
    if unsupported(rung, specs, device_of(args)):
        return
    call = launcher(ladder, args, rung.name, config)
    plan = plan_of(ladder, rung, specs, device=torch.device(device), config=config)
    what = {
        "operator": ladder.name,
        "rung": rung.name,
        "config": config,
        "case": case.id,
        "launches": len(plan.launches),
    }
    if device == "cuda":
        torch.cuda.synchronize()
    print(MARK + json.dumps(what), flush=True)
    call(*args.values())
    if device == "cuda":
        torch.cuda.synchronize()


def apart(t: torch.Tensor, device: str, zone: int = 0) -> torch.Tensor:
    """A copy with the same strides and alignment in fully initialized memory, with `zone` bytes (a
    multiple of 16) of zeros around it."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    around = zone // t.itemsize
    lead = around + t.data_ptr() % 16 // t.itemsize
    flat = torch.zeros(lead + (extent if t.numel() else 0) + around, dtype=t.dtype)
    if t.numel():
        source = t.as_strided(
            [1 if s == 0 else n for n, s in zip(t.shape, t.stride(), strict=True)], t.stride()
        )
        flat.as_strided(source.shape, source.stride(), lead).copy_(source)
    return flat.to(device).as_strided(t.shape, t.stride(), lead)


if __name__ == "__main__":
    main(sys.argv[1:])
