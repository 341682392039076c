"""Selects the rung that a call is dispatched to: the override, then the tuned table, then the
fitted choices, then the ladder's order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernelwright.contract import H200, Config, Gpu, Ladder, Rung, TensorSpec, Unsupported
from kernelwright.contract.symbolic_int import printed
from kernelwright.machine import gpu_of, slug_of
from kernelwright.support.settings import DATA, PACKAGE, settings
from kernelwright.toolchain import availability

from . import data, fitted
from .proof import proven_on, source_hash

Specs = dict[str, Any]  # argument name to TensorSpec, list of them, None, or a plain value


@dataclass(frozen=True)
class Choice:
    """A rung, its config, and why it was chosen."""

    rung: Rung
    config: Config
    why: str


def specs_of(args: dict[str, Any]) -> Specs:
    """The arguments without their data."""

    def spec(v):
        if isinstance(v, torch.Tensor):
            return TensorSpec.of(v)
        if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor):
            return [TensorSpec.of(t) for t in v]
        return v

    return {k: spec(v) for k, v in args.items()}


def select(ladder: Ladder, specs: Specs, device: torch.device, override: str | None) -> Choice:
    """The rung that the call is dispatched to.

    Raises:
        Unsupported: the override does not support the call.
    """
    gpu = gpu_of(device)
    if override is not None:
        rung = ladder.rung(override)
        reason = unsupported(rung, specs, device)
        if reason:
            raise Unsupported(f"{ladder.name}.{rung.name} does not support this call: {reason}")
        return Choice(rung, config_of(ladder, rung, gpu or H200, specs), "chosen by kw.use")
    if gpu is None:
        return Choice(ladder.rung("native"), {}, f"the tensors are on {device.type}")
    tuned = tuned_table(ladder, gpu).get(_bucket(ladder, specs))
    if tuned:
        rung = ladder.rung(tuned["rung"])
        if rejected(ladder, rung, specs, device) is None:
            config = config_of(ladder, rung, gpu, specs)
            return Choice(
                rung,
                config,
                f"measured fastest by kernelwright tune on {_measured_on(ladder, gpu)}",
            )
    fits = fitted.choice(ladder, gpu, specs)
    if fits and rejected(ladder, fits[0], specs, device) is None:
        return Choice(*fits, "fitted to times measured on this architecture")
    with printed("told"):  # an order may use the reason why a rung does not support a call
        names = ladder.order(gpu, **specs)
    for name in names:
        rung = ladder.rung(name)
        if rejected(ladder, rung, specs, device) is None:
            config = config_of(ladder, rung, gpu, specs)
            return Choice(rung, config, "derived: first eligible rung in the ladder's order")
    return Choice(ladder.rung("native"), {}, "no other rung is eligible")


def _bucket(ladder: Ladder, specs: Specs) -> str:
    with printed("fixed"):
        return ladder.bucket(**specs)


def rejected(ladder: Ladder, rung: Rung, specs: Specs, device: torch.device) -> str | None:
    """Why a rung may not be dispatched by default, or None."""
    if not rung.dispatchable:
        return "a teaching step, never dispatched by default"
    reason = unsupported(rung, specs, device)
    if reason:
        return reason
    if rung.is_gpu and not proven_on(ladder, rung):
        return "unproven: its current source has no passing GPU record"
    return None


def unsupported(rung: Rung, specs: Specs, device: torch.device) -> str | None:
    """Why a rung cannot run a call on a device, or None."""
    if rung.backend == "torch":
        return unsupported_on(rung, specs, gpu_of(device) or H200)
    missing = availability.missing(rung.backend, device.type)
    if missing:
        return missing
    return unsupported_on(rung, specs, gpu_of(device) or H200)


def unsupported_on(rung: Rung, specs: Specs, gpu: Gpu) -> str | None:
    """Why a rung cannot run a call on the given GPU, or None; independent of this machine."""
    if rung.is_gpu and any(t.numel() == 0 for t in _tensors(specs)):
        return "GPU rungs do not support empty tensors"
    if rung.supports is None:
        return None
    with printed("told"):
        return rung.supports(gpu, **specs)


def config_of(ladder: Ladder, rung: Rung, gpu: Gpu, specs: Specs) -> Config:
    """A rung's config for a call: the one measured fastest at this size, else the heuristic's."""
    tuned = tuned_table(ladder, gpu).get(_bucket(ladder, specs), {"configs": {}})
    return tuned["configs"].get(rung.name) or config_for(rung, gpu, specs)


def config_for(rung: Rung, gpu: Gpu, specs: Specs) -> Config:
    """A rung's config for a call by its heuristic alone."""
    return rung.heuristic(gpu, **specs) if rung.heuristic else rung.configs[0]


@dataclass(frozen=True)
class Explanation:
    """The result of `kw.explain`: print it, or read its fields."""

    operator: str
    serves: Choice  # the dispatched rung
    others: dict[str, str]  # by rung: why it is not dispatched

    def __str__(self) -> str:
        s = self.serves
        lines = [f"{self.operator}: {s.rung.name} is dispatched ({s.why})"]
        if s.config:
            lines[0] += f" with {s.config}"
        lines += [f"  {name}: {why}" for name, why in self.others.items()]
        return "\n".join(lines)


def explain(
    ladder: Ladder, args: dict[str, Any], device: torch.device, override: str | None
) -> Explanation:
    specs, _ = ladder.operator.normalise(specs_of(args))
    chosen = select(ladder, specs, device, override)
    others = {}
    for rung in ladder.rungs:
        if rung is not chosen.rung:
            reason = rejected(ladder, rung, specs, device)
            others[rung.name] = reason or f"eligible, but {chosen.rung.name} is preferred"
    return Explanation(ladder.name, chosen, others)


@cache
def tuned_table(ladder: Ladder, gpu: Gpu) -> dict[str, dict]:
    """The tuned table of this compute capability, or of the nearest older one, or an empty one.
    The user's own entries take precedence over the shipped ones, and entries for the user's models
    over both."""
    buckets = _table(ladder, shipped_tables(ladder), gpu)["buckets"]
    mine = [model_tables(gpu)]
    if (own := tables_of(ladder)) != shipped_tables(ladder):
        mine.insert(0, own)
    for folder in mine:
        buckets = {**buckets, **_current(ladder, _table(ladder, folder, gpu))}
    return buckets


def _measured_on(ladder: Ladder, gpu: Gpu) -> str:
    """The architecture whose table `tuned_table` reads: this GPU's, or an older one's."""
    folders = {shipped_tables(ladder), tables_of(ladder), model_tables(gpu)}
    capabilities = [_newest(ladder, f, gpu) for f in folders]
    return f"sm_{max(c for c in capabilities if c)}"


def shipped_tables(ladder: Ladder) -> Path:
    """The folder of an operator's tuned tables: the package's for its own operators, else `tuned`
    in the operator's folder."""
    return DATA / "tuned" if _ours(ladder) else ladder.folder / "tuned"


def tables_of(ladder: Ladder) -> Path:
    """The folder that an operator's tuned tables are written to: the user's data directory if the
    operator is part of an installed package."""
    return (settings().tuned if _ours(ladder) else None) or shipped_tables(ladder)


def model_tables(gpu: Gpu) -> Path:
    """The folder of tables that `kw.tune` writes for the calls of the user's models on a GPU."""
    return settings().cache / "tuned" / (slug_of(gpu) or "unnamed")


def _ours(ladder: Ladder) -> bool:
    return ladder.folder.resolve().is_relative_to(PACKAGE)


def _table(ladder: Ladder, folder: Path, gpu: Gpu) -> dict[str, Any]:
    newest = _newest(ladder, folder, gpu)
    if newest is None:
        return {"buckets": {}}
    return data.document(folder / f"{ladder.name}.sm_{newest}.json", {})


def _newest(ladder: Ladder, folder: Path, gpu: Gpu) -> int | None:
    """The compute capability, "90", of the newest table that is no newer than the GPU."""
    known = (int(p.stem.rsplit("_", 1)[1]) for p in folder.glob(f"{ladder.name}.sm_*.json"))
    return max((c for c in known if c <= gpu.capability[0] * 10 + gpu.capability[1]), default=None)


def _current(ladder: Ladder, table: dict[str, Any]) -> dict[str, dict]:
    """The entries of a table whose rungs and configs are unchanged since they were timed. A user's
    table may be older than the installed package."""
    buckets = {}
    for bucket, entry in table["buckets"].items():
        configs = {n: c for n, c in entry["configs"].items() if _as_timed(ladder, n, c, table)}
        if entry["rung"] in configs:
            buckets[bucket] = {"rung": entry["rung"], "configs": configs}
    return buckets


def _as_timed(ladder: Ladder, name: str, config: Config, table: dict[str, Any]) -> bool:
    if name not in ladder.names or config not in ladder.rung(name).configs:
        return False
    rung = ladder.rung(name)
    return not rung.is_gpu or table["sources"].get(name) == source_hash(ladder, rung)


def _tensors(specs: Specs):
    for v in specs.values():
        if isinstance(v, TensorSpec):
            yield v
        elif isinstance(v, list):
            yield from (t for t in v if isinstance(t, TensorSpec))
