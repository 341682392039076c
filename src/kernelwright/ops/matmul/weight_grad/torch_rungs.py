"""accumulate_weight_grad_ in PyTorch: a product, then an addition."""

import torch


@torch.no_grad()
def manual(total, gy, x):
    """Operands in float32 in memory."""
    wide = torch.promote_types(gy.dtype, torch.float32)
    total += gy.to(wide).t() @ x.to(wide)


@torch.no_grad()
def native(total, gy, x):
    """cuBLAS with float32 results, then an addition; on a CPU as `manual`."""
    if gy.is_cuda and gy.dtype in (torch.float16, torch.bfloat16):
        total += torch.mm(gy.t(), x, out_dtype=torch.float32)
    else:
        manual(total, gy, x)
