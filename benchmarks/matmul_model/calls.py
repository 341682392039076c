"""The ladder's rungs for Hopper: configs for a product, ranked by the cost model, and calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kernelwright.contract import H200, Config, CudaKernel, Rung, TensorSpec
from kernelwright.dispatch import launcher, specs_of
from kernelwright.ops.matmul.gemm.hopper import cost, cuda
from kernelwright.ops.matmul.gemm.hopper import ladder as hopper
from kernelwright.ops.matmul.gemm.ladder import LADDER

Choice = tuple[Rung, Config]

SERVING = tuple((r, c) for r in hopper.RUNGS if r.dispatchable for c in r.configs)


def named(choice: Choice) -> str:
    rung, config = choice
    numbers = " ".join(f"{k}{v}" for k, v in config.items() if k not in ("bm", "bn"))
    tile = f"{config['bm']}x{config['bn']}" if "bm" in config else ""
    return f"{rung.name.removeprefix('cuda_wgmma_')} {tile} {numbers}"


def product(a: TensorSpec, b: TensorSpec) -> cost.Product:
    return cost.Product(*cuda.operands(a, b))


def ranked(specs: dict[str, Any]) -> list[Choice]:
    """The configs that take a product, the fastest by the model first."""
    p = product(specs["a"], specs["b"])
    fit = [c for c in SERVING if c[0].supports(H200, **specs) is None]
    return sorted(fit, key=lambda c: cost.us(H200, c[0].name, c[1], p))


def call(choice: Choice, args: dict[str, Any]) -> Callable[[], Any]:
    rung, config = choice
    given = {a.name: args.get(a.name, a.default) for a in LADDER.operator.args}
    run = launcher(LADDER, given, rung.name, config)
    kept: list[Any] = []

    def again() -> Any:
        """Its results live until the next call, so that calls on other operands do not get the same
        memory, which would still be in L2."""
        kept[:] = [run(*given.values())]
        return kept[0]

    return again


def kernels(choices: Iterable[Choice], args: dict[str, Any]) -> list[CudaKernel]:
    specs, plans = specs_of(args), []
    for rung, config in choices:
        if rung.supports(H200, **specs) is None:
            entry = getattr(cuda, rung.entry.split(":")[1])
            plans += [step.kernel for step in entry(H200, config, **specs).launches]
    return plans
