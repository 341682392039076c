"""An MLP (linear, gelu, repeated) on Kernelwright's operators, swept over its sizes.

    python examples/mlp.py                  sizes for this machine, one picture for each sweep
    python examples/mlp.py --widths 512 1024 2048 --steps 1 2 4

Each sweep changes one of width, depth, batch and steps and leaves the others at their smallest. A
point is the median time of `steps` training steps (forward, backward, AdamW), beside the same MLP
of PyTorch's operators, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

import kernelwright as kw
from kernelwright.machine import here
from kernelwright.train.picture import Curve, curves

REPEATS = 7


@dataclass(frozen=True)
class Sizes:
    """Of an MLP and of what is timed."""

    width: int
    depth: int
    batch: int
    steps: int


class MLP(nn.Module):
    """linear, then gelu, `depth` times, width to width.

    Args:
        linear, gelu: Kernelwright's, or PyTorch's.
    """

    def __init__(self, sizes: Sizes, linear: Callable, gelu: Callable):
        super().__init__()
        self.linear, self.gelu = linear, gelu
        layers = (nn.Linear(sizes.width, sizes.width) for _ in range(sizes.depth))
        self.layers = nn.ModuleList(layers)

    def forward(self, x_BC: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x_BC = self.gelu(self.linear(x_BC, layer.weight, layer.bias))
        return x_BC


class Training:
    """An MLP, its optimizer, and a batch of random numbers."""

    def __init__(self, sizes: Sizes, ours: bool, device: torch.device):
        torch.manual_seed(0)
        operators = (kw.linear, kw.gelu) if ours else (nn.functional.linear, nn.functional.gelu)
        self.model = MLP(sizes, *operators).to(device)
        optimizer = kw.optim.AdamW if ours else torch.optim.AdamW
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)
        self.x_BC = torch.randn(sizes.batch, sizes.width, device=device)
        self.sizes, self.device = sizes, device

    def seconds(self) -> float:
        """Of `steps` training steps."""
        self._wait()
        begun = time.perf_counter()
        for _ in range(self.sizes.steps):
            self.optimizer.zero_grad()
            self.model(self.x_BC).square().mean().backward()
            self.optimizer.step()
        self._wait()
        return time.perf_counter() - begun

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def milliseconds(sizes: Sizes, device: torch.device) -> tuple[float, float]:
    """Median (Kernelwright's, PyTorch's), timed in turns."""
    both = [Training(sizes, ours, device) for ours in (True, False)]
    samples: list[list[float]] = [[], []]
    for i in range(REPEATS + 2):
        for training, found in zip(both, samples, strict=True):
            seconds = training.seconds()
            if i >= 2:  # the first ones compile and warm up
                found.append(seconds * 1e3)
    return statistics.median(samples[0]), statistics.median(samples[1])


def sweep(name: str, values: list[int], base: Sizes, device: torch.device) -> str:
    """A picture of the times as one size grows."""
    times = []
    for value in values:
        ours, theirs = milliseconds(replace(base, **{name: value}), device)
        print(
            f"{name} {value:6}: Kernelwright {ours:9.3f} ms, PyTorch {theirs:9.3f} ms", flush=True
        )
        times.append((ours, theirs))
    lines = [
        Curve("Kernelwright", values, [t[0] for t in times]),
        Curve("PyTorch", values, [t[1] for t in times], colour=1),
    ]
    others = ", ".join(f"{n} {v}" for n, v in vars(base).items() if n != name)
    return curves(
        f"MLP by {name}", lines, caption=f"milliseconds; {others}; {device.type}", x_name=name,
        log_x=True, log_y=True,
    )  # fmt: skip


def main() -> None:
    device = here()
    large = device.type == "cuda"
    widths = [1024, 2048, 4096, 8192] if large else [64, 128, 256, 512]
    batches = [1024, 4096, 16384] if large else [32, 128, 512]
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--widths", type=int, nargs="+", default=widths)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--batches", type=int, nargs="+", default=batches)
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--out", type=Path, default=Path("mlp"), help="folder of the pictures")
    asked = parser.parse_args()
    values = {"width": asked.widths, "depth": asked.depths, "batch": asked.batches,
              "steps": asked.steps}  # fmt: skip
    base = Sizes(**{name: min(found) for name, found in values.items()})
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, found in values.items():
        path = asked.out / f"{name}.svg"
        path.write_text(sweep(name, found, base, device))
        print(path)


if __name__ == "__main__":
    main()
