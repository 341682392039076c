"""The host's time of calls on a GPU, beside PyTorch's.

    python -m benchmarks.host_times [NAME ...]

Tensors are small and bfloat16, so that the host takes longer than the GPU. A time is the least mean
of 15 series of 300 calls (150 with gradients), in microseconds; each pair is timed twice. C++ is
loaded first (dispatch/native_calls.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.dispatch import native_calls
from kernelwright.toolchain import cpp_extension

#: By name: ours, PyTorch's, the shapes of the tensors.
CALLS: dict[str, tuple[Callable, Callable, list[tuple[int, ...]]]] = {
    "add": (kw.add, torch.add, [(16, 64), (16, 64)]),
    "gelu": (kw.gelu, F.gelu, [(16, 64)]),
    "softmax": (partial(kw.softmax, dim=-1), partial(F.softmax, dim=-1), [(16, 64)]),
    "layer_norm": (
        lambda x, w, b: kw.layer_norm(x, (64,), w, b),
        lambda x, w, b: F.layer_norm(x, (64,), w, b),
        [(16, 64), (64,), (64,)],
    ),
    "rms_norm": (
        lambda x, w: kw.rms_norm(x, (64,), w),
        lambda x, w: F.rms_norm(x, (64,), w),
        [(16, 64), (64,)],
    ),
    "matmul": (kw.matmul, torch.matmul, [(64, 64), (64, 64)]),
    "linear": (kw.linear, F.linear, [(64, 64), (64, 64)]),
    "linear bias": (kw.linear, F.linear, [(64, 64), (64, 64), (64,)]),
    "sdpa": (
        partial(kw.scaled_dot_product_attention, is_causal=True),
        partial(F.scaled_dot_product_attention, is_causal=True),
        [(1, 4, 128, 64)] * 3,
    ),
}


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("host_times: this machine has no GPU; tools/host_cost.py measures without one")
    cpp_extension.load()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {native_calls.calls()}")
    for name in sys.argv[1:] or CALLS:
        a, b, c, d = measured(*CALLS[name])
        print(f"{name:16} forward {a:6.2f} against {b:6.2f} = {a / b:4.2f}   "
              f"both {c:7.2f} against {d:7.2f} = {c / d:4.2f}", flush=True)  # fmt: skip


def measured(ours: Callable, theirs: Callable, shapes: list[tuple[int, ...]]) -> list[float]:
    """Microseconds of a call: ours and PyTorch's forward, ours and PyTorch's with gradients."""
    tensors = [torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shapes]
    leaves = [t.clone().requires_grad_() for t in tensors]
    gradient = torch.ones_like(ours(*tensors))

    def both(call: Callable) -> Callable:
        return lambda: torch.autograd.grad(call(*leaves), leaves, gradient)

    calls = (
        (lambda: ours(*tensors), 300),
        (lambda: theirs(*tensors), 300),
        (both(ours), 150),
        (both(theirs), 150),
    )
    rounds = [[timed(*call) for call in calls] for _ in range(2)]
    return [min(times) for times in zip(*rounds, strict=True)]


def timed(call: Callable, count: int, series: int = 15) -> float:
    for _ in range(30):
        call()
    times = []
    for _ in range(series):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count)
    return min(times) * 1e6


if __name__ == "__main__":
    main()
