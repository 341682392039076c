"""Makes the rungs that most ladders have.

A rung's name, entry and file follow from its technique: "warp" in CUDA is the rung `cuda_warp` of
cuda_warp.cu, planned by `cuda.warp`. `suffix` is appended to the entry if one module plans the
rungs of several ladders: "_backward", "_swiglu", "_swiglu_backward".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .operator import Config, Rung

Supports = Callable[..., str | None]


def pytorch(
    suffix: str = "",
    *,
    manual: str = "the formula, one kernel per line",
    native: str = "PyTorch's own operator",
    compiled: str | None = "the formula, fused by torch.compile",
    supports: Supports | None = None,
    syncs_host: bool = False,
) -> tuple[Rung, ...]:
    """The rungs of torch_rungs.py; the arguments are their ideas. `supports` applies to those that
    run the formula; if `compiled` is None there is no such rung."""
    formula, own = f"torch_rungs:manual{suffix}", f"torch_rungs:native{suffix}"
    bottom = (
        Rung(
            "manual",
            "torch",
            formula,
            manual,
            supports=supports,
            dispatchable=False,
            syncs_host=syncs_host,
        ),
        Rung("native", "torch", own, native, syncs_host=syncs_host),
    )
    if compiled is None:
        return bottom
    return *bottom, Rung("compiled", "inductor", formula, compiled, supports=supports)


def triton(
    trick: str,
    suffix: str,
    idea: str,
    supports: Supports,
    configs: tuple[Config, ...],
    **more: Any,
) -> Rung:
    """The rung `triton_<trick>`, planned by `plan<suffix>` of the module of that name. `more`: the
    other attributes of a Rung."""
    name = f"triton_{trick}"
    entry = f"{name}:plan{suffix}"
    return Rung(name, "triton", entry, idea, supports=supports, configs=configs, **more)


def numba(
    trick: str, suffix: str, idea: str, supports: Supports, configs: tuple[Config, ...]
) -> Rung:
    """The rung `numba_<trick>`, planned like a Triton rung; a teaching step."""
    name = f"numba_{trick}"
    entry = f"{name}:plan{suffix}"
    return Rung(name, "numba", entry, idea, supports=supports, configs=configs, dispatchable=False)


def cuda(
    trick: str,
    suffix: str,
    idea: str,
    supports: Supports,
    configs: tuple[Config, ...],
    *,
    sources: tuple[str, ...] = (),
    **more: Any,
) -> Rung:
    """The rung `cuda_<trick>` of cuda_<trick>.cu, planned by `cuda.<trick><suffix>`. `sources`:
    further files that it compiles."""
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"cuda:{trick}{suffix}",
        idea,
        supports=supports,
        configs=configs,
        sources=(f"cuda_{trick}.cu", *sources),
        **more,
    )
