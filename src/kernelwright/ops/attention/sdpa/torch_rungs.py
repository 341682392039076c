"""Attention in PyTorch: the formula, and PyTorch's own kernels."""

from functools import cache

import torch

from . import spec

ATEN = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)


def manual(q, k, v, mask, seed, causal, mask_grad, scale, p):
    """The formula, in float32 or wider: scores and weights are tensors of L x S per head."""
    wide = spec.accumulated(q.dtype)
    given = mask if mask is None or mask.dtype == torch.bool else mask.to(wide)
    operands = (t.to(wide) for t in (q, k, v))
    y, lse = spec.reference(*operands, given, seed, causal, mask_grad, scale, p)
    return y.to(q.dtype), lse


def manual_backward(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    wide = spec.accumulated(q.dtype)
    given = mask if mask is None or mask.dtype == torch.bool else mask.to(wide)
    operands = (t.to(wide) for t in (gy, q, k, v, y))
    gq, gk, gv, gmask = spec.backward_reference(
        *operands, lse, given, seed, causal, mask_grad, scale, p
    )
    of_mask = mask.dtype if mask_grad else q.dtype
    return gq.to(q.dtype), gk.to(k.dtype), gv.to(v.dtype), gmask.to(of_mask)


def native(q, k, v, mask, seed, causal, mask_grad, scale, p):
    """PyTorch's cuDNN or FlashAttention-2 kernels, or the formula for calls that these do not
    support."""
    if _cudnn(q, k, v, mask, seed, causal):
        out = ATEN._scaled_dot_product_cudnn_attention.default(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        )
        return out[0], out[1].squeeze(-1)
    if _flash(q, k, v, mask, seed, causal):
        out = ATEN._scaled_dot_product_flash_attention.default(
            q, k, v, 0.0, causal, False, scale=scale
        )
        return out[0], out[1]
    return manual(q, k, v, mask, seed, causal, mask_grad, scale, p)


def native_backward(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    if _cudnn(q, k, v, mask, seed, causal):
        none = q.new_empty((), dtype=torch.int64)  # the seed of dropout, which is not read
        grads = ATEN._scaled_dot_product_cudnn_attention_backward.default(
            gy if gy.stride(3) == 1 else gy.contiguous(), q, k, v, y, lse.unsqueeze(-1), none,
            none, None, None, None, q.shape[2], k.shape[2], 0.0, causal, scale=scale,
        )  # fmt: skip
        return *grads, q.new_empty(0)
    if _flash(q, k, v, mask, seed, causal):
        none = q.new_empty(2, dtype=torch.uint64)
        grads = ATEN._scaled_dot_product_flash_attention_backward.default(
            gy, q, k, v, y, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, none, none,
            scale=scale,
        )  # fmt: skip
        return *grads, q.new_empty(0)
    return manual_backward(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p)


def _cudnn(q, k, v, mask, seed, causal) -> bool:
    """Whether cuDNN supports a call, on GPUs on which it is the faster of the two."""
    if not _fused(q, k, v, mask, seed) or _capability(q.get_device()) < (9, 0):
        return False
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, causal, q.shape[1] != k.shape[1])
    return torch.backends.cuda.can_use_cudnn_attention(params)


def _flash(q, k, v, mask, seed, causal) -> bool:
    """Whether FlashAttention-2 supports a call; if L and S differ, its causal mask is aligned
    differently."""
    return _fused(q, k, v, mask, seed) and not (causal and q.shape[2] != k.shape[2])


def _fused(q, k, v, mask, seed) -> bool:
    """Whether PyTorch's fused kernels may support a call."""
    if mask is not None or seed is not None or q.dtype not in HALF or not q.is_cuda:
        return False
    width = q.shape[3]
    if width != v.shape[3] or width > 256 or width % 8 or _capability(q.get_device()) < (8, 0):
        return False
    return _aligned(q) and _aligned(k) and _aligned(v)


def _aligned(t) -> bool:
    """Whether every row of a tensor begins at a multiple of 16 bytes."""
    batch, head, row, column = t.stride()
    steps = batch % 8 == head % 8 == row % 8 == 0 and min(batch, head, row) > 0
    return column == 1 and steps and t.data_ptr() % 16 == 0 and t.numel() > 0


@cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)
