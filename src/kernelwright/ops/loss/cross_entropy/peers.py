"""Peers of cross entropy; imported only for timing.

The rung `native` also saves maxima and sums; the peer "torch" is F.cross_entropy itself, and
"torch.compile" the same compiled. Liger computes the gradient in its forward, in place of the
logits, and scales it in its backward.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelwright.contract import Peer

from .torch_rungs import manual


def _loss(fn):
    """An adapter of a whole loss. Results that it lacks come from `manual`, outside the timing."""

    def make(x, target, weight, reduction, ignore_index, label_smoothing, z_loss, softcap, smooth,
             cap, to):  # fmt: skip
        form = (ignore_index, label_smoothing, z_loss, softcap, smooth, cap)
        _, max_sum, totals = manual(x, target, weight, reduction, *form, to)
        logits, classes = x.view(-1, x.shape[-1]), target.view(-1)
        call = fn(logits, classes, reduction, ignore_index, label_smoothing)
        return lambda: (call(), max_sum, totals)

    return make


def _gradient(fn):
    """An adapter of the backward of a loss; the peer's own forward runs once and is not timed."""

    def make(gloss, x, target, ignore_index, label_smoothing, **others):
        logits = x.detach().view(-1, x.shape[-1]).requires_grad_()
        reduction = "none" if gloss.ndim else "mean"
        loss = fn(logits, target.view(-1), reduction, ignore_index, label_smoothing)()
        return lambda: torch.autograd.grad(loss, logits, gloss, retain_graph=True)[0].view(x.shape)

    return make


def _together(fn):
    """An adapter of forward and backward, one after another."""

    def make(x, target, reduction, ignore_index, label_smoothing, **others):
        logits = x.detach().view(-1, x.shape[-1]).requires_grad_()
        call = fn(logits, target.view(-1), reduction, ignore_index, label_smoothing)

        def both():
            loss = call()
            (gx,) = torch.autograd.grad(loss, logits)
            return loss.detach(), gx.view(x.shape)

        return both

    return make


def _torch(x, target, reduction, ignore_index, label_smoothing):
    return lambda: F.cross_entropy(
        x,
        target,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


def _compiled(x, target, reduction, ignore_index, label_smoothing):
    fn = torch.compile(F.cross_entropy, dynamic=False)
    return lambda: fn(
        x,
        target,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


def _liger(x, target, reduction, ignore_index, label_smoothing):
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    # it overwrites logits that require a gradient: it gets a copy, or it would be timed on other
    # values
    own = x if not x.requires_grad else x.detach().clone().requires_grad_()

    def call():
        return LigerCrossEntropyFunction.apply(
            own, target, None, ignore_index, 0.0, label_smoothing, reduction, None, False
        )[0]

    return call


def _liger_together(x, target, reduction, ignore_index, label_smoothing, **others):
    from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction

    leaf = x.detach().view(-1, x.shape[-1]).clone().requires_grad_()

    def both():
        loss = LigerCrossEntropyFunction.apply(
            leaf, target.view(-1), None, ignore_index, 0.0, label_smoothing, reduction, None, False
        )[0]
        (gx,) = torch.autograd.grad(loss, leaf)
        return loss.detach(), gx.view(x.shape)

    return both


PEERS = (
    Peer("torch", "cross_entropy", _loss(_torch), "torch"),
    Peer("torch.compile", "cross_entropy", _loss(_compiled), "torch"),
    Peer("liger", "cross_entropy", _loss(_liger), "liger_kernel", syncs_host=True),
    Peer("torch", "cross_entropy.backward", _gradient(_torch), "torch"),
    Peer("torch.compile", "cross_entropy.backward", _gradient(_compiled), "torch"),
    Peer("torch", "cross_entropy_with_grad", _together(_torch), "torch"),
    Peer("torch.compile", "cross_entropy_with_grad", _together(_compiled), "torch"),
    Peer("liger", "cross_entropy_with_grad", _liger_together, "liger_kernel", syncs_host=True),
)
