"""cross_entropy for class probabilities: PyTorch's kernels, with z-loss and soft cap added.

If the target is as large as the logits, the ladder's savings do not apply: PyTorch's log_softmax,
its product with the target and the sum have the same traffic.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelwright.contract import arguments, autocast

from .. import _options, _terms


def cross_entropy(input, target, weight, reduction, label_smoothing, z_loss, softcap, dtype):
    """The loss and the errors of `kw.cross_entropy`."""
    arguments.floating("input", input)
    _options.not_jagged(input)
    if input.ndim == 0:
        raise ValueError("input: must have a dimension of classes")
    if target.shape != input.shape:
        raise ValueError(
            f"target: probabilities have shape {tuple(target.shape)}, should be "
            f"{tuple(input.shape)}"
        )
    classes = min(1, input.ndim - 1)
    _options.class_weight(weight, input.shape[classes])
    _options.check_reduction(reduction)
    form = _options.form(-100, label_smoothing, z_loss, softcap)
    z = _terms.capped(input, form)
    to = dtype or torch.promote_types(autocast.of_a_loss(input) or input.dtype, target.dtype)
    loss = F.cross_entropy(
        z, target, weight, reduction=reduction, label_smoothing=label_smoothing
    ).to(to)
    if not z_loss:
        return loss
    of_tokens = target if weight is None else target * _along(weight, input, classes)
    lse = torch.logsumexp(z.to(torch.promote_types(z.dtype, torch.float32)), classes)
    more = z_loss * of_tokens.sum(classes) * lse.square()
    if reduction != "none":
        more = more.sum()
        more = more / max(lse.numel(), 1) if reduction == "mean" else more
    return (loss + more).to(to)


def _along(weight, input, classes: int):
    """The weights of the classes, in their dimension of the input."""
    return weight.view([-1 if i == classes else 1 for i in range(input.ndim)])
