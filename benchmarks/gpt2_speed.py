"""A training step of GPT-2 124M and a step of decoding, beside a model shaped as nanoGPT's.

    python -m benchmarks.gpt2_speed --batch 32

Variants take turns in one run: random tokens, the same for all; a step is forward, backward,
clipping and AdamW. The baseline is plain_gpt2.py under autocast, with PyTorch's fused AdamW.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.plain_gpt2 import PlainGPT2
from kernelwright import models
from kernelwright.infer.decoder import Decoder
from kernelwright.infer.sampling import Sampling
from kernelwright.ops.introspect import use
from kernelwright.train.parallel import Processes
from kernelwright.train.settings import Settings
from kernelwright.train.trainer import Trainer

DEVICE = torch.device("cuda", 0)
VOCABULARY = 50257
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Variant:
    """Something that takes training steps.

    Attributes:
        first_s: seconds to the end of the first step.
        ms: of each step that counts.
        peak: most bytes while it was the only one in memory.
    """

    name: str
    build: Callable[[], Callable[[Batch], Any]]
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    first_s: float = 0.0
    ms: list[float] = field(default_factory=list)
    peak: int = 0
    loss: float = 0.0
    kernels: str = ""


def plain(compiled: bool) -> Callable[[Batch], Any]:
    torch.manual_seed(0)
    with DEVICE:
        model = PlainGPT2(models.preset("gpt2-124m"))
    optimizer = torch.optim.AdamW(model.parameters(), 6e-4, (0.9, 0.95), fused=True)
    called = torch.compile(model) if compiled else model

    def step(batch: Batch) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = called(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def ours(batch: int, **changes: Any) -> Callable[[Batch], Any]:
    settings = Settings(model="gpt2-124m", batch=batch, lr=6e-4, beta2=0.95, **changes)
    trainer = Trainer(settings, VOCABULARY, Processes("none", 0, 1, DEVICE))
    return lambda both: trainer.step(*both, 6e-4)[0]


def products(q, k, v, mask, *, scale, enable_gqa):
    """Attention of one token as two products and a softmax."""
    B, H, _, D = q.shape
    S = k.shape[2]
    bias = mask.expand(B, H, 1, S).reshape(B * H, 1, S)
    scores = torch.baddbmm(bias, q.reshape(B * H, 1, D), k.reshape(B * H, S, D).mT, alpha=scale)
    y = torch.bmm(scores.softmax(-1), v.reshape(B * H, S, D))
    return y.view(B, H, 1, D)


@contextmanager
def by_products() -> Iterator[None]:
    usual = F.scaled_dot_product_attention

    def chosen(q, *args: Any, **options: Any) -> torch.Tensor:
        return (products if q.shape[2] == 1 else usual)(q, *args, **options)

    F.scaled_dot_product_attention = chosen
    try:
        yield
    finally:
        F.scaled_dot_product_attention = usual


CUBLAS = {"linear": "native", "matmul": "native"}


def cublas() -> AbstractContextManager[Any]:
    return use(CUBLAS)


def measure(variant: Variant, batches: list[Batch], steps: int, rows: int) -> None:
    """Warm up, then time, one variant alone in memory; note its `rows` longest kernels."""
    gc.collect()  # of the variant before
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    with variant.around():
        step = variant.build()
        torch.cuda.reset_peak_memory_stats()
        step(batches[0])
        torch.cuda.synchronize()
        variant.first_s = time.perf_counter() - begun
        for i in range(5):
            step(batches[i % len(batches)])
        variant.peak = torch.cuda.max_memory_allocated()
        for i in range(steps):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            loss = step(batches[i % len(batches)])
            end.record()
            end.synchronize()
            variant.ms.append(start.elapsed_time(end))
        variant.loss = float(loss)
        if rows:
            variant.kernels = kernels(lambda: step(batches[0]), rows)


def decode(batch: int, prompt: int, count: int, around: Any, rows: int) -> str:
    """Microseconds of a token on the GPU, and with every token read; the longest kernels."""
    torch.manual_seed(0)
    with DEVICE:
        model = models.build("gpt2-124m").bfloat16().eval()
    with around():
        decoder = Decoder(model, batch, Sampling(temperature=0.0), 0, VOCABULARY)

        def begin() -> None:
            decoder.begin([[1] * prompt] * batch)

        begin()
        for _ in range(count):  # captures every graph
            decoder.step()
        begin()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            decoder.step()
        end.record()
        end.synchronize()
        on_gpu = start.elapsed_time(end) / count * 1e3
        begin()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            decoder.step()
            decoder.token_B.tolist()
        read = (time.perf_counter() - begun) / count * 1e6
        table = kernels(decoder.step, rows) if rows else ""
    return f"{on_gpu:.0f} us a token, {read:.0f} us with each read\n{table}"


def kernels(step: Callable[[], Any], rows: int) -> str:
    """Kernels of a step by time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events) / 1e3
    lines = [f"{total:.2f} ms of kernels"]
    lines += [
        f"{e.self_device_time_total / 1e3:8.3f} ms {e.count:5} {e.key[:110]}" for e in events[:rows]
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt2_speed")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no variant after these")
    parser.add_argument("--profile", help="write kernels of a step of each variant to this file")
    asked = parser.parse_args()
    begun, B = time.perf_counter(), asked.batch
    make = partial(ours, B, precision="bfloat16")
    graph = partial(make, compile="graph")
    first = [Variant("ours, graph", graph)]
    then = [
        Variant("plain, compiled", partial(plain, True)),
        Variant("ours, graph, keep all", partial(graph, recompute="none")),
        Variant("ours, graph, selective", partial(graph, recompute="selective")),
    ]
    rest = [
        Variant("ours, eager", make),
        Variant("ours, block", partial(make, compile="block")),
        Variant("ours, graph, cuBLAS", graph, cublas),
        Variant("plain, eager", partial(plain, False)),
        Variant("ours, autocast", partial(ours, B, precision="autocast")),
        Variant("ours, model", partial(make, compile="model")),
    ]
    torch.manual_seed(1)
    tokens = torch.randint(VOCABULARY, (4, B, 1025), device=DEVICE)
    batches = [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]
    print(f"{'variant':24} {'ms':>8} {'tokens/s':>9} {'GiB':>6} {'first s':>8} {'loss':>8}")

    def over() -> bool:
        return time.perf_counter() - begun > asked.seconds

    def show(variants: list[Variant]) -> None:
        for v in variants:
            if asked.only and v.name not in asked.only:
                continue
            if over():
                print(f"{v.name:24} not timed: {asked.seconds} s are over")
                continue
            measure(v, batches, asked.steps, 40 if asked.profile else 0)
            ms = statistics.median(v.ms)
            print(f"{v.name:24} {ms:8.2f} {B * 1024 / ms * 1e3:9,.0f} {v.peak / 2**30:6.2f} "
                  f"{v.first_s:8.1f} {v.loss:8.4f}", flush=True)  # fmt: skip
            if asked.profile:
                with open(asked.profile, "a") as file:
                    file.write(f"\n{v.name}\n{v.kernels}\n")

    show(first)
    decoders = {"dispatched": nullcontext, "cuBLAS": cublas, "products": by_products}
    for batch in (1, 8):
        for name, around in decoders.items():
            if not asked.only and not over() and (batch == 1 or name == "dispatched"):
                found = decode(batch, 64, 180, around, 16 if asked.profile and batch == 1 else 0)
                print(f"decode, batch {batch}, {name}: {found}", flush=True)
    show(then)
    show(rest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
