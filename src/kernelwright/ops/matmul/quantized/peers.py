"""Peers of quantized_linear: PyTorch's own kernels; imported only for timing."""

from __future__ import annotations

import torch

from kernelwright.contract import Peer

from .weights import values_of

TILES = 8  # inner tiles along k of PyTorch's layout


def _int4pack(x, packed, scales, bias, bits):
    """torch._weight_int4pack_mm: (v - 8) scale + zero, where zero has a different meaning."""
    if bits != 4 or bias is not None or x.dtype != torch.bfloat16:
        raise NotImplementedError("it takes 4 bits, bfloat16, and no bias")
    v = values_of(packed, 4)
    pairs = (v[:, ::2] << 4 | v[:, 1::2]).contiguous()
    of_torch = torch._convert_weight_to_int4pack(pairs, TILES)
    scale, zero = scales.float().unbind(-1)
    both = torch.stack((scale, (8 - zero) * scale), -1).to(x.dtype).contiguous()
    return lambda: torch._weight_int4pack_mm(x, of_torch, 128, both)


PEERS = (Peer("int4pack", "quantized_linear", _int4pack, requires="torch"),)
