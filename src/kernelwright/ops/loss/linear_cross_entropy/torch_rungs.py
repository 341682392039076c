"""linear_cross_entropy in PyTorch, all logits at once."""

import torch
import torch.nn.functional as F

from ..cross_entropy import torch_rungs as loss_rungs


def manual(x, w, bias, target, weight, g, of_x, of_w, of_bias, *form):
    """The formula: some twenty kernels over all logits at once."""
    return _whole(loss_rungs.manual, loss_rungs.manual_backward, x, w, bias, target, weight, g,
                  of_x, of_w, of_bias, *form)  # fmt: skip


def native(x, w, bias, target, weight, g, of_x, of_w, of_bias, *form):
    """PyTorch's linear, log_softmax and nll_loss, and their derivatives."""
    return _whole(loss_rungs.native, loss_rungs.native_backward, x, w, bias, target, weight, g,
                  of_x, of_w, of_bias, *form)  # fmt: skip


def _whole(forward, backward, x, w, bias, target, weight, g, of_x, of_w, of_bias, *form):
    wide = torch.promote_types(x.dtype, torch.float32)
    logits = F.linear(x, w, bias)
    loss, max_sum, totals = forward(logits, target, weight, "none", *form, wide)
    none = x.new_empty(0)
    if not (of_x or of_w or of_bias):
        return loss, none, none.clone(), none.clone()
    gz = backward(g, logits, target, weight, max_sum, totals, *form)
    return (
        loss,
        gz @ w if of_x else none,
        gz.t() @ x if of_w else none.clone(),
        gz.sum(0) if of_bias else none.clone(),
    )


def scale(x, g):
    x.mul_(g)
