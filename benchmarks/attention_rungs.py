"""GPU times of attention without masks, by rung.

    python -m benchmarks.attention_rungs [SECONDS]

Heads, lengths, head sizes and causality are combined in a random order, narrow heads last. A time
is the least of five replays of a CUDA graph, in microseconds of a call; cuDNN is `native`.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable

import torch

import kernelwright as kw
from kernelwright.support.errors import UserError

RUNGS = ("native", "cuda_wgmma", "cuda_wgmma_persistent", "cuda_wgmma_dynamic")
WIDTHS, LENGTHS = (64, 128, 80, 96), (64, 128, 197, 256, 384, 512, 768, 1024, 1536, 2048)
HEADS = (8, 24, 64, 192, 512, 1024)
LARGEST = 2**37  # products of a case: heads x length x length x width


def main() -> None:
    end = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else 120)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {' / '.join(RUNGS)}")
    cases = list(itertools.product(WIDTHS, (True, False), LENGTHS, HEADS))
    random.Random(1).shuffle(cases)
    cases.sort(key=lambda case: case[0] in (80, 96))
    for width, causal, length, heads in cases:
        work = heads * length * length * width
        if work <= LARGEST and time.monotonic() < end:
            q, k, v = torch.randn(3, heads // 8, 8, length, width, device="cuda").bfloat16()
            calls = 20 if work < LARGEST // 16 else 6
            times = [timed(rung, q, k, v, causal, calls) for rung in RUNGS]
            masking = "causal" if causal else "full"
            print(f"{heads}x{length}x{width} {masking}", *times, flush=True)


@torch.no_grad()
def timed(rung: str, q, k, v, causal: bool, calls: int) -> str:
    with kw.use(scaled_dot_product_attention=rung):
        try:
            run = captured(
                lambda: kw.scaled_dot_product_attention(q, k, v, is_causal=causal), calls
            )
        except UserError:
            return "-"
    run()
    return f"{min(elapsed(run) for _ in range(5)) / calls:.2f}"


def captured(call: Callable, calls: int) -> Callable[[], None]:
    """A replay of a CUDA graph of so many calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
    return graph.replay


def elapsed(run: Callable[[], None]) -> float:
    """Microseconds on the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


if __name__ == "__main__":
    main()
