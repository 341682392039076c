"""gelu elsewhere: torch.compile of PyTorch's operator. Liger has no plain gelu (its GEGLU is
another operator); PyTorch's own eager operator is the rung `native`."""

from __future__ import annotations

from kernelwright.contract.peer import Peer
from kernelwright.toolchain import inductor

from .torch_rungs import native, native_backward


def _forward(x, approximate):
    call = inductor.bind(native, x.device)
    return lambda: call(x, approximate)


def _backward(gy, x, approximate):
    call = inductor.bind(native_backward, x.device)
    return lambda: call(gy, x, approximate)


PEERS = (
    Peer("compile", "gelu", _forward, "torch"),
    Peer("compile", "gelu.backward", _backward, "torch"),
)
