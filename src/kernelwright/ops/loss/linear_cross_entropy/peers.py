"""Peers of linear_cross_entropy; imported only for timing.

Each is a loss and its backward through autograd. They return a mean; the losses per token, which
the operator returns too, are computed by our formula outside the timing.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelwright.contract import Peer


def _trained(loss_of):
    def make(x, w, bias, target, g, ignore_index, label_smoothing, **others):
        leaves = [t.detach().requires_grad_() for t in (x, w)]
        logits = (x @ w.t()).float()
        losses = F.cross_entropy(logits, target, reduction="none", ignore_index=ignore_index)
        del logits
        none = w.new_empty(0)
        call = loss_of(*leaves, target, ignore_index, label_smoothing)

        def run():
            return losses, *torch.autograd.grad(call(), leaves), none

        return run

    return make


def _plain(x, w, target, ignore_index, label_smoothing):
    return F.cross_entropy(
        F.linear(x, w), target, ignore_index=ignore_index, label_smoothing=label_smoothing
    )


def _torch(*args):
    return lambda: _plain(*args)


def _compiled(*args):
    fn = torch.compile(_plain, dynamic=False)
    return lambda: fn(*args)


def _liger(x, w, target, ignore_index, label_smoothing):
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    def call():
        return LigerFusedLinearCrossEntropyFunction.apply(
            x, w, target, None, None, ignore_index, 0.0, label_smoothing, "mean"
        )[0]

    return call


PEERS = (
    Peer("torch", "linear_cross_entropy", _trained(_torch), "torch"),
    Peer("torch.compile", "linear_cross_entropy", _trained(_compiled), "torch"),
    Peer("liger", "linear_cross_entropy", _trained(_liger), "liger_kernel", syncs_host=True),
)
