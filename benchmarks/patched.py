"""Measures `kw.patch` on a Llama: tokens per second and peak memory of a training step.

The model has layers of Llama 3 8B (Grattafiori et al. 2024), bfloat16, random weights and tokens. A
step is forward, backward and PyTorch's fused AdamW. Three models with the same weights are timed
alternately, in random order: unpatched, patched by Liger if it is installed, and patched here.

    python -m benchmarks.patched --record
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import importlib.util
import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelwright.dispatch import data
from kernelwright.machine import here, slug
from kernelwright.workbench.records import records

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
        failed: what it raised, "" where nothing. It takes no further step then.
    """

    step_ms: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    held_bytes: int = 0
    losses: list[float] = field(default_factory=list)
    failed: str = ""


@dataclass(frozen=True)
class Patched:
    """Every variant on one shape and machine, and by operator the rungs that served."""

    shape: dict[str, int]
    variants: dict[str, Variant]
    rungs: dict[str, str]
    environment: dict[str, Any]

    def tokens_per_second(self, name: str) -> float:
        step = records.median(self.variants[name].step_ms)
        return self.shape["batch"] * self.shape["tokens"] / step * 1e3


class _Trained:
    """A model in training: its steps, and what they take.

    Once it has raised it takes no further step: what the others did still counts.
    """

    model: nn.Module
    turn: Callable[[], Any]
    optimizer: torch.optim.Optimizer

    def __init__(self, build: Callable[[], tuple[nn.Module, Callable[[], Any]]]):
        self.found = Variant()

        def start():
            self.model, self.turn = build()
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)

        self._attempt(start)

    def step(self, tokens: torch.Tensor, timed: bool) -> None:
        if not self.found.failed:
            self._attempt(lambda: self._step(tokens, timed))

    def _attempt(self, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as e:  # noqa: BLE001 - whatever a variant raises is shown in its row
            traceback.print_exc()
            self.found.failed = " ".join([f"{type(e).__name__}:", *str(e).splitlines()[:1]])

    def _step(self, tokens: torch.Tensor, timed: bool) -> None:
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


def measure(
    seconds: float = 60.0,
    rungs: dict[str, str] | None = None,
    shape: dict[str, int] | None = None,
) -> Patched:
    """Time the variants where `here()` is.

    Args:
        seconds: about how long the timed steps may take together.
        rungs: as `kw.use` takes them; by default what serves.
        shape: what differs from SHAPE.
    """
    import kernelwright as kw
    from kernelwright.ops.introspect import Serving
    from kernelwright.workbench.bench.bench import environment, new_run

    device, sizes, serving = here(), SHAPE | (shape or {}), Serving()
    builds = _variants(_llama(device, sizes))
    trained = {name: _Trained(build) for name, build in builds.items()}
    draw = torch.Generator(device).manual_seed(0)

    def tokens() -> torch.Tensor:
        each = (sizes["batch"], sizes["tokens"])
        return torch.randint(sizes["vocabulary"], each, device=device, generator=draw)

    with kw.use(rungs or {}):
        for i in range(WARM_UP):
            batch = tokens()
            for name, one in trained.items():
                with serving if i == 0 and name == OURS else contextlib.nullcontext():
                    one.step(batch, timed=False)
        names, order, begun = list(trained), random.Random(0), time.perf_counter()
        for i in range(STEPS):
            batch = tokens()
            order.shuffle(names)
            for name in names:
                trained[name].step(batch, timed=True)
            if time.perf_counter() - begun > seconds and i >= 4:
                break
    variants = {name: one.found for name, one in trained.items()}
    served = {name: "/".join(by) for name, by in serving.calls.items()}
    return Patched(sizes, variants, served, environment(new_run(), device))


def _llama(device: torch.device, sizes: dict[str, int]) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=sizes["hidden"],
        intermediate_size=sizes["intermediate"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"],
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


def _variants(
    model: nn.Module,
) -> dict[str, Callable[[], tuple[nn.Module, Callable[[], Any]]]]:
    """By name, what makes each model and what must be done before each of its steps: Liger's patch
    changes transformers' module, which the other models run too."""
    from transformers.models.llama import modeling_llama

    import kernelwright as kw

    def means(function: Any) -> Callable[[], Any]:
        return lambda: setattr(modeling_llama, "apply_rotary_pos_emb", function)

    rope = means(modeling_llama.apply_rotary_pos_emb)

    def ours() -> tuple[nn.Module, Callable[[], Any]]:
        patched = copy.deepcopy(model)
        kw.patch(patched)
        return patched, rope

    def liger() -> tuple[nn.Module, Callable[[], Any]]:
        patched = copy.deepcopy(model)
        transformers = importlib.import_module("liger_kernel.transformers")
        transformers.apply_liger_kernel_to_llama(model=patched)
        turn = means(modeling_llama.apply_rotary_pos_emb)
        rope()
        return patched, turn

    found = {UNPATCHED: lambda: (model, rope), OURS: ours, LIGER: liger}
    if importlib.util.find_spec("liger_kernel") is None:
        print("Liger is not installed: it is left out", file=sys.stderr)
        del found[LIGER]
    return found


def path(machine: str, root: Path | None = None) -> Path:
    return (root or records.ROOT) / machine / "llama.json"


def load(machine: str, root: Path | None = None) -> Patched | None:
    """What was recorded of a machine, or None."""
    d = data.document(path(machine, root), None)
    if d is None:
        return None
    variants = {name: Variant(**v) for name, v in d["variants"].items()}
    return Patched(d["shape"], variants, d["rungs"], d["environment"])


def save(result: Patched, to: Path) -> Path:
    data.write(to, json.dumps(asdict(result), indent=1) + "\n")
    return to


def rows(result: Patched) -> list[list[str]]:
    """A line a variant: tokens a second, memory, and both beside the unpatched model's."""
    from kernelwright.workbench.records.metrics import percent, times

    head = ["", "tokens/s", "over unpatched", "peak memory", "beyond weights and AdamW",
            "of unpatched", "loss of the first steps"]  # fmt: skip
    plain, out = result.variants[UNPATCHED], [head]
    for name in (n for n in (UNPATCHED, LIGER, OURS) if n in result.variants):
        one = result.variants[name]
        if one.failed or not one.step_ms:
            out.append([name, one.failed or "no step was timed", *[""] * (len(head) - 2)])
            continue
        beyond = one.peak_bytes - one.held_bytes
        ratios = ["", ""]
        if plain.step_ms and not plain.failed:
            faster = result.tokens_per_second(name) / result.tokens_per_second(UNPATCHED)
            ratios = [times(faster), percent(one.peak_bytes / plain.peak_bytes)]
        out.append(
            [
                name,
                f"{result.tokens_per_second(name):,.0f}",
                ratios[0],
                f"{one.peak_bytes / 2**30:.2f} GiB",
                f"{beyond / 2**30:.2f} GiB",
                ratios[1],
                ", ".join(f"{x:.4f}" for x in one.losses),
            ]
        )
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patched")
    parser.add_argument("--record", action="store_true", help="keep it in the records")
    parser.add_argument("-o", type=Path, metavar="FILE", help="write it there")
    parser.add_argument("--seconds", type=float, default=60.0, help="of timed steps, about")
    parser.add_argument(
        "--use", nargs="*", default=[], metavar="OP=RUNG", help="rungs that serve, as kw.use"
    )
    parser.add_argument(
        "--shape", nargs="*", default=[], metavar="KEY=N", help=f"other sizes: {', '.join(SHAPE)}"
    )
    asked = parser.parse_args(arguments)
    shape = {key: int(n) for key, n in (pair.split("=") for pair in asked.shape)}
    if unknown := shape.keys() - SHAPE.keys():
        parser.error(f"--shape: there is no {', '.join(unknown)}")
    if here().type != "cuda" and not shape:
        print("no GPU here: a model of this size is not trained on a CPU; --shape makes a smaller")
        return 1
    result = measure(asked.seconds, dict(pair.split("=") for pair in asked.use), shape)
    if asked.record:
        print(save(result, path(slug(here()), records.settings().records)))
    if asked.o:
        print(save(result, asked.o))
    print("rungs:", ", ".join(f"{op} {rung}" for op, rung in result.rungs.items()))
    table = rows(result)
    wide = [max(len(r[i]) for r in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(f"{cell:{w}}" for cell, w in zip(row, wide, strict=True)).rstrip())
    return 1 if any(one.failed for one in result.variants.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
