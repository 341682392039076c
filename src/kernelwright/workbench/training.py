"""Does a model train the same on our operators? A GPT-2 of four layers, bytes of a text, bfloat16.

Five orders of the data, trained with PyTorch's operators, give a band of loss curves. With one
operator swapped in alone, the curve of each order must stay inside the band, widened by WIDER.

    python -m kernelwright.workbench.training tinyshakespeare.txt --record
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from kernelwright.machine import here, slug
from kernelwright.models.gpt2 import GPT2, Config, Operators

from . import records

STEPS, EVERY, SEEDS, WIDER = 200, 10, 5, 0.10
MODEL = Config(layers=4, heads=4, width=256, context=256, vocabulary=256)
BATCH, LEARNING_RATE, CLIP = 16, 1e-3, 1.0
#: What is swapped in beside the model's own operators.
TRAINER = ("AdamW", "clip_grad_norm_")
SWAPS = (*(f.name for f in fields(Operators)), *TRAINER)

Curve = tuple[float, ...]  # the mean loss of each EVERY steps


@dataclass(frozen=True)
class Training:
    """Loss curves by seed: of PyTorch's operators, and of each operator of ours alone.

    Attributes:
        native: a curve for each seed.
        swapped: by operator, a curve for each seed.
        environment: of the run.
    """

    native: tuple[Curve, ...]
    swapped: dict[str, tuple[Curve, ...]]
    environment: dict[str, Any]

    def band(self) -> list[tuple[float, float]]:
        """Lowest and highest loss at each point, widened."""
        found: list[tuple[float, float]] = []
        for at in zip(*self.native, strict=True):
            more = WIDER * (max(at) - min(at))
            found.append((min(at) - more, max(at) + more))
        return found

    def outside(self) -> list[str]:
        """Every point of a swapped curve that is not inside the band, in a line."""
        band = self.band()
        return [
            f"{name}, order {seed}, steps to {(i + 1) * EVERY}: {loss:.4f} is outside "
            f"{low:.4f} to {high:.4f}"
            for name, curves in self.swapped.items()
            for seed, curve in enumerate(curves)
            for i, (loss, (low, high)) in enumerate(zip(curve, band, strict=True))
            if not low <= loss <= high
        ]


def train(text: Path, device: str, jobs: int = 5) -> Training:
    """Train every swap with every order of the data.

    Args:
        text: its bytes are the tokens.
        jobs: processes at once.
    """
    from .bench import environment, new_run

    asked = [(text, swap, seed, device) for swap in (None, *SWAPS) for seed in range(SEEDS)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        curves = list(pool.map(_train_one, asked))
    by_swap = [tuple(curves[i : i + SEEDS]) for i in range(0, len(curves), SEEDS)]
    return Training(
        by_swap[0],
        dict(zip(SWAPS, by_swap[1:], strict=True)),
        environment(new_run(), here()),
    )


def _train_one(asked: tuple[Path, str | None, int, str]) -> Curve:
    text, swap, seed, device = asked
    data = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long().to(device)
    return curve(data, swap, seed, STEPS)


def curve(data: torch.Tensor, swap: str | None, seed: int, steps: int) -> Curve:
    """Train once, on the device of the data; the weights start the same for every seed."""
    torch.manual_seed(0)
    operators = Operators.with_kernels(swap) if swap and swap not in TRAINER else Operators()
    model = GPT2(MODEL, operators).to(data.device, torch.bfloat16)
    optimizer, clip = _trainer(model, swap)
    order = torch.Generator().manual_seed(seed)
    losses: list[torch.Tensor] = []
    for _ in range(steps):
        starts = torch.randint(len(data) - MODEL.context - 1, (BATCH,), generator=order)
        at = starts[:, None] + torch.arange(MODEL.context + 1)
        batch = data[at.to(data.device)]
        hidden = model.hidden(batch[:, :-1])
        loss = model.loss(hidden, batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        before = model.tokens.detach().clone()
        clip(model.parameters(), CLIP)
        optimizer.step()
        losses.append(_measured(hidden.detach(), before, batch[:, 1:]))
    return tuple(round(m, 5) for m in torch.stack(losses).view(-1, EVERY).mean(1).tolist())


def _measured(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss in float32 by PyTorch, whoever computed the gradient: a bfloat16 loss near 4 has
    steps of 1/64."""
    logits = (hidden @ weight.mT).float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _trainer(model: GPT2, swap: str | None) -> tuple[torch.optim.Optimizer, Callable[..., Any]]:
    import kernelwright as kw
    from kernelwright import optim

    adamw = optim.AdamW if swap == "AdamW" else torch.optim.AdamW
    clip = kw.clip_grad_norm_ if swap == "clip_grad_norm_" else torch.nn.utils.clip_grad_norm_
    return adamw(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1, betas=(0.9, 0.95)), clip


def path(machine: str, root: Path | None = None) -> Path:
    return (root or records.ROOT) / machine / "training.json"


def save(found: Training, machine: str, root: Path | None = None) -> Path:
    to = path(machine, root)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(asdict(found), indent=1) + "\n")
    return to


def load(machine: str, root: Path | None = None) -> Training | None:
    """What was recorded of a machine, or None."""
    at = path(machine, root)
    if not at.exists():
        return None
    d = json.loads(at.read_text())
    swapped = {name: tuple(map(tuple, curves)) for name, curves in d["swapped"].items()}
    return Training(tuple(map(tuple, d["native"])), swapped, d["environment"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kernelwright.workbench.training")
    parser.add_argument("text", type=Path, help="a text file, a few hundred thousand bytes")
    parser.add_argument("--record", action="store_true", help="keep the curves in the records")
    asked = parser.parse_args(arguments)
    found = train(asked.text, "cuda" if torch.cuda.is_available() else "cpu")
    if asked.record:
        print(save(found, slug(here()), records.settings().records))
    for i, (low, high) in enumerate(found.band()):
        print(f"steps to {(i + 1) * EVERY:3}: {low:.4f} to {high:.4f}")
    wrong = found.outside()
    print("\n".join(wrong) or f"{len(found.swapped)} operators, every curve inside the band")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
