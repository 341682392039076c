"""What `kw.patch` brings a Llama: tokens a second and peak memory of a training step.

Layers of Llama 3 8B (Grattafiori et al. 2024), bfloat16, random weights and tokens; a step is
forward, backward and PyTorch's fused AdamW. Unpatched, patched by Liger where it is installed, and
patched here: three models of the same weights take turns, step by step, in random order.

    python -m kernelwright.workbench.patched --record
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelwright.machine import here, slug

from . import records

WARM_UP, STEPS = 3, 20
SHAPE = {
    "layers": 4, "hidden": 4096, "intermediate": 14336, "heads": 32, "kv_heads": 8,
    "vocabulary": 128256, "batch": 4, "tokens": 2048,
}  # fmt: skip
UNPATCHED, LIGER, OURS = "transformers", "Liger", "kernelwright"


@dataclass
class Variant:
    """One model's steps.

    Attributes:
        step_ms: GPU time of each step that counts.
        peak_bytes: most memory that was allocated in a step, other models' left out.
        held_bytes: of that, parameters and the optimizer's states.
        losses: of the first steps, which are not timed.
    """

    step_ms: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    held_bytes: int = 0
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Patched:
    """Every variant on one shape and machine, and the rungs that served."""

    shape: dict[str, int]
    variants: dict[str, Variant]
    rungs: dict[str, str]
    environment: dict[str, Any]

    def tokens_per_second(self, name: str) -> float:
        step = records.median(self.variants[name].step_ms)
        return self.shape["batch"] * self.shape["tokens"] / step * 1e3


class _Trained:
    """A model in training: its steps, and what they take."""

    def __init__(self, model: nn.Module, turn: Callable[[], Any]):
        self.model, self.turn, self.found = model, turn, Variant()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step(self, tokens: torch.Tensor, timed: bool) -> None:
        self.turn()
        others = _allocated(tokens.device) - self._held()
        ms, loss = _timed(lambda: self._train(tokens), tokens.device)
        if timed:
            peak = _allocated(tokens.device, peak=True) - others
            self.found.step_ms.append(round(ms, 4))
            self.found.peak_bytes = max(self.found.peak_bytes, peak)
            self.found.held_bytes = self._held()
        else:
            self.found.losses.append(loss.item())

    def _train(self, tokens: torch.Tensor) -> torch.Tensor:
        loss = self.model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def _held(self) -> int:
        states = [t for s in self.optimizer.state.values() for t in s.values()]
        held = [*self.model.parameters(), *self.model.buffers(), *states]
        device = next(self.model.parameters()).device
        return sum(t.untyped_storage().nbytes() for t in held if t.device == device)


def _allocated(device: torch.device, peak: bool = False) -> int:
    """Bytes of the GPU's memory that tensors hold, or held at most since they were last asked for;
    0 on a CPU."""
    if device.type != "cuda":
        return 0
    if peak:
        return torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _timed(fn: Callable[[], torch.Tensor], device: torch.device) -> tuple[float, torch.Tensor]:
    """(milliseconds, result)."""
    if device.type != "cuda":
        begun = time.perf_counter()
        result = fn()
        return (time.perf_counter() - begun) * 1e3, result
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = fn()
    end.record()
    end.synchronize()
    return start.elapsed_time(end), result


def measure(seconds: float = 60.0, rungs: dict[str, str] | None = None) -> Patched:
    """Time the variants where `here()` is.

    Args:
        seconds: about how long the timed steps may take together.
        rungs: as `kw.use` takes them; by default what serves.
    """
    import kernelwright as kw

    from .bench import environment, new_run

    device = here()
    model = _llama(device)
    trained = {name: _Trained(m, turn) for name, (m, turn) in _variants(model).items()}
    vocabulary, shape = SHAPE["vocabulary"], (SHAPE["batch"], SHAPE["tokens"])
    draw = torch.Generator(device).manual_seed(0)
    with kw.use(rungs or {}):
        for _ in range(WARM_UP):
            tokens = torch.randint(vocabulary, shape, device=device, generator=draw)
            for one in trained.values():
                one.step(tokens, timed=False)
        names, order, spent = list(trained), random.Random(0), 0.0
        for i in range(STEPS):
            tokens = torch.randint(vocabulary, shape, device=device, generator=draw)
            order.shuffle(names)
            for name in names:
                trained[name].step(tokens, timed=True)
                spent += trained[name].found.step_ms[-1] / 1e3
            if spent > seconds and i >= 4:
                break
        serving = _serving(device)
    found = {name: one.found for name, one in trained.items()}
    return Patched(SHAPE, found, serving, environment(new_run(), device))


def _llama(device: torch.device) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=SHAPE["vocabulary"],
        hidden_size=SHAPE["hidden"],
        intermediate_size=SHAPE["intermediate"],
        num_hidden_layers=SHAPE["layers"],
        num_attention_heads=SHAPE["heads"],
        num_key_value_heads=SHAPE["kv_heads"],
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        dtype=torch.bfloat16,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return LlamaForCausalLM(config).train()
    finally:
        torch.set_default_dtype(before)


def _variants(model: nn.Module) -> dict[str, tuple[nn.Module, Callable[[], Any]]]:
    """Each model with what must be done before each of its steps: Liger's patch changes
    transformers' module, which the other models run too."""
    from transformers.models.llama import modeling_llama

    import kernelwright as kw

    rope = modeling_llama.apply_rotary_pos_emb

    def means(function: Any) -> Callable[[], Any]:
        return lambda: setattr(modeling_llama, "apply_rotary_pos_emb", function)

    ours = copy.deepcopy(model)
    kw.patch(ours)
    variants: dict[str, tuple[nn.Module, Callable[[], Any]]] = {
        UNPATCHED: (model, means(rope)),
        OURS: (ours, means(rope)),
    }
    if importlib.util.find_spec("liger_kernel") is None:
        print("Liger is not installed: it is left out", file=sys.stderr)
        return variants
    liger = copy.deepcopy(model)
    importlib.import_module("liger_kernel.transformers").apply_liger_kernel_to_llama(model=liger)
    return variants | {LIGER: (liger, means(modeling_llama.apply_rotary_pos_emb))}


def _serving(device: torch.device) -> dict[str, str]:
    """Which rung serves each operator that the patch calls, on its largest shape here."""
    import kernelwright as kw

    rows, hidden = SHAPE["batch"] * SHAPE["tokens"], SHAPE["hidden"]
    width = hidden // SHAPE["heads"]

    def bf16(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device=device)

    def heads(count: str) -> torch.Tensor:
        return bf16(SHAPE["batch"], SHAPE["tokens"], SHAPE[count], width).transpose(1, 2)

    x, gate = bf16(rows, hidden), bf16(rows, SHAPE["intermediate"])
    cos = bf16(1, SHAPE["tokens"], width)
    calls: dict[str, tuple[Any, ...]] = {
        "rms_norm": (x, (hidden,), x[0]),
        "add_rms_norm": (x, x, (hidden,), x[0]),
        "swiglu": (gate, gate),
        "rope": (heads("heads"), heads("kv_heads"), cos, cos),
        "linear_cross_entropy": (
            x, bf16(SHAPE["vocabulary"], hidden), torch.zeros(rows, device=device).long()
        ),
    }  # fmt: skip
    return {name: kw.explain(name, *args).serves.rung.name for name, args in calls.items()}


def path(machine: str, root: Path | None = None) -> Path:
    return (root or records.ROOT) / machine / "llama.json"


def load(machine: str, root: Path | None = None) -> Patched | None:
    """What was recorded of a machine, or None."""
    at = path(machine, root)
    if not at.exists():
        return None
    d = json.loads(at.read_text())
    variants = {name: Variant(**v) for name, v in d["variants"].items()}
    return Patched(d["shape"], variants, d["rungs"], d["environment"])


def save(found: Patched, to: Path) -> Path:
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return to


def rows(found: Patched) -> list[list[str]]:
    """A line a variant: tokens a second, memory, and both beside the unpatched model's."""
    from .figures import percent, times

    head = ["", "tokens/s", "over unpatched", "peak memory", "beyond weights and AdamW",
            "of unpatched", "loss of the first steps"]  # fmt: skip
    plain, out = found.variants[UNPATCHED], [head]
    for name in (n for n in (UNPATCHED, LIGER, OURS) if n in found.variants):
        one = found.variants[name]
        beyond = one.peak_bytes - one.held_bytes
        out.append(
            [
                name,
                f"{found.tokens_per_second(name):,.0f}",
                times(found.tokens_per_second(name) / found.tokens_per_second(UNPATCHED)),
                f"{one.peak_bytes / 2**30:.2f} GiB",
                f"{beyond / 2**30:.2f} GiB",
                percent(one.peak_bytes / plain.peak_bytes),
                ", ".join(f"{x:.4f}" for x in one.losses),
            ]
        )
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernelwright.workbench.patched")
    parser.add_argument("--record", action="store_true", help="keep it in the records")
    parser.add_argument("-o", type=Path, metavar="FILE", help="write it there")
    parser.add_argument("--seconds", type=float, default=60.0, help="of timed steps, about")
    parser.add_argument(
        "--use", nargs="*", default=[], metavar="OP=RUNG", help="rungs that serve, as kw.use"
    )
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no GPU here: a model of this size is not trained on a CPU")
        return 1
    found = measure(asked.seconds, dict(pair.split("=") for pair in asked.use))
    if asked.record:
        print(save(found, path(slug(here()), records.settings().records)))
    if asked.o:
        print(save(found, asked.o))
    print("rungs:", ", ".join(f"{op} {rung}" for op, rung in found.rungs.items()))
    table = rows(found)
    wide = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(f"{cell:{w}}" for cell, w in zip(row, wide, strict=True)).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
