"""Steps of a small GPT-2 on a CPU: our trainer beside the same model in plain PyTorch.

    python -m benchmarks.cpu_speed --threads 1

nanoGPT's CPU setting by default: 4 layers of width 128, 12 sequences of 64 tokens, float32. They
take turns, one step at a time, on the same random tokens; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.plain_gpt2 import PlainGPT2
from kernelwright import models
from kernelwright.train.parallel import Processes
from kernelwright.train.settings import Settings
from kernelwright.train.trainer import Trainer

Batch = tuple[torch.Tensor, torch.Tensor]
VOCABULARY = 65  # of the characters of Tiny Shakespeare


def ours(batch: int) -> Callable[[Batch], Any]:
    settings = Settings(model="gpt2-tiny", batch=batch, lr=1e-3)
    trainer = Trainer(settings, VOCABULARY, Processes("none", 0, 1, torch.device("cpu")))
    return lambda both: trainer.step(*both, 1e-3)[0].item()


def plain(fused: bool) -> Callable[[Batch], Any]:
    model = PlainGPT2(models.preset("gpt2-tiny", vocabulary=VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, (0.9, 0.99), fused=fused)

    def step(batch: Batch) -> float:
        loss = model(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_speed")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    steps = {
        "ours": ours(asked.batch),
        "plain, fused AdamW": plain(True),
        "plain, AdamW": plain(False),
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    tokens = torch.randint(VOCABULARY, (8, asked.batch, 65))
    batches = [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]
    for step in steps.values():
        for both in batches[:3]:
            step(both)
    begun, i = time.perf_counter(), 0
    while time.perf_counter() - begun < asked.seconds:
        for name, step in steps.items():
            # time of this process: other processes share the cores
            start = time.process_time()
            step(batches[i % len(batches)])
            taken[name].append(time.process_time() - start)
        i += 1
    mine = statistics.median(taken["ours"])
    print(f"{i} steps each, {asked.threads} threads; milliseconds of processor time of a step")
    for name, times in taken.items():
        middle = statistics.median(times)
        print(f"{name:20} {middle * 1e3:8.2f} ms  ours is {middle / mine:.3f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
