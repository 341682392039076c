"""The norm of a list and its scaling in PyTorch: tensor by tensor, and PyTorch's own functions."""

import torch

from .spec import result_dtype


def manual_norm(tensors, norm_type):
    """One kernel per tensor and three more."""
    p = float(norm_type)
    norms = [torch.linalg.vector_norm(t, p) for t in tensors]
    return torch.linalg.vector_norm(torch.stack(norms), p)


def native_norm(tensors, norm_type):
    total = torch.nn.utils.get_total_norm(list(tensors), float(norm_type))
    return total.to(tensors[0].device, result_dtype(tensors))


@torch.no_grad()
def manual_clip(grads, total_norm, max_norm):
    factor = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    for g in grads:
        g.mul_(factor)


@torch.no_grad()
def native_clip(grads, total_norm, max_norm):
    """The part of torch.nn.utils.clip_grads_with_norm_ that works on the gradients."""
    factor = torch.clamp(max_norm / (total_norm + 1e-6), max=1.0)
    torch._foreach_mul_(grads, factor)
