"""Attention in PyTorch: the formula, and PyTorch's own kernels."""

import torch

from . import spec


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
        out = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q, k, v, None, True, 0.0, causal, False, scale=scale
        )
        return out[0], out[1].squeeze(-1)
    if _flash(q, k, v, mask, seed, causal):
        out = torch.ops.aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, causal, False, scale=scale
        )
        return out[0], out[1]
    return manual(q, k, v, mask, seed, causal, mask_grad, scale, p)


def native_backward(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    if _cudnn(q, k, v, mask, seed, causal):
        none = torch.zeros((), dtype=torch.int64, device=q.device)
        grads = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            gy if gy.stride(3) == 1 else gy.contiguous(), q, k, v, y, lse.unsqueeze(-1), none,
            none, None, None, None, q.shape[2], k.shape[2], 0.0, causal, scale=scale,
        )  # fmt: skip
        return *grads, q.new_empty(0)
    if _flash(q, k, v, mask, seed, causal):
        none = torch.zeros(2, dtype=torch.uint64, device=q.device)
        grads = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            gy, q, k, v, y, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, none, none,
            scale=scale,
        )  # fmt: skip
        return *grads, q.new_empty(0)
    return manual_backward(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p)


def _cudnn(q, k, v, mask, seed, causal) -> bool:
    """Whether cuDNN supports a call, on GPUs on which it is the faster of the two."""
    if not _fused(q, k, v, mask, seed) or torch.cuda.get_device_capability(q.device) < (9, 0):
        return False
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, causal, q.shape[1] != k.shape[1])
    return torch.backends.cuda.can_use_cudnn_attention(params)


def _flash(q, k, v, mask, seed, causal) -> bool:
    """Whether FlashAttention-2 supports a call; if L and S differ, its causal mask is aligned
    differently."""
    return _fused(q, k, v, mask, seed) and not (causal and q.shape[2] != k.shape[2])


def _fused(q, k, v, mask, seed) -> bool:
    """Whether PyTorch's fused kernels may support a call."""
    tensors = (q, k, v)
    return (
        q.is_cuda
        and torch.cuda.get_device_capability(q.device) >= (8, 0)
        and q.dtype in (torch.float16, torch.bfloat16)
        and mask is None
        and seed is None
        and q.shape[3] == v.shape[3] <= 256
        and q.shape[3] % 8 == 0
        and all(t.numel() and t.stride(3) == 1 and t.data_ptr() % 16 == 0 for t in tensors)
        and all(s % 8 == 0 and s > 0 for t in tensors for s in t.stride()[:3])
    )
