"""scaled_mm in PyTorch: operands in float32, and cuBLAS's product of 8-bit operands."""

import torch

from .spec import FP8, dequantized


def manual(a, b, scale_a, scale_b, kind, fast):
    """Both operands as float32 in memory: four times the bytes, and products on CUDA cores."""
    x, w = dequantized(a, b, scale_a, scale_b, kind, torch.float32)
    return (x @ w.t()).to(torch.bfloat16)


def native(a, b, scale_a, scale_b, kind, fast):
    """cuBLAS if it supports the operands: rows of multiples of 16 bytes, k contiguous, on a GPU
    with 8-bit products, scales per tensor or per row. Otherwise as `manual`."""
    if kind == "block" or not _taken(a, b):
        return manual(a, b, scale_a, scale_b, kind, fast)
    by_row = kind == "row"
    scales = (
        (scale_a.contiguous(), scale_b.contiguous().t())
        if by_row
        else (scale_a.view(()), scale_b.view(()))
    )
    return torch._scaled_mm(a, b.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast)


def _taken(a, b) -> bool:
    if not a.is_cuda or 0 in (*a.shape, *b.shape) or a.dtype != FP8:
        return False
    if torch.cuda.get_device_capability(a.device) < (8, 9):
        return False
    even = all(t.stride(1) == 1 and t.stride(0) % 16 == 0 and t.data_ptr() % 16 == 0
               and t.stride(0) >= t.shape[1] for t in (a, b))  # fmt: skip
    return even and a.shape[1] % 16 == 0 and b.shape[0] % 16 == 0
