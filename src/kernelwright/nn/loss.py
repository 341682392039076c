"""CrossEntropyLoss and LinearCrossEntropyLoss."""

from __future__ import annotations

import math

import torch

from kernelwright.ops.loss.cross_entropy import cross_entropy
from kernelwright.ops.loss.linear_cross_entropy import linear_cross_entropy


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss with `kw.cross_entropy`: the same arguments and state_dict.

    Shape:
        input, target: as in `kw.cross_entropy`; the loss is one number, or one for each target if
            reduction is "none".

    Raises:
        See `kw.cross_entropy`; in the forward.
    """

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class LinearCrossEntropyLoss(torch.nn.Module):
    """The last linear layer and its loss, with `kw.linear_cross_entropy`, which never stores all
    logits.

    Like torch.nn.LinearCrossEntropyLoss of PyTorch 2.13, whose state_dict it loads, but without
    `options`: the size of the chunks is always chosen automatically.

    Args:
        in_features: H.
        num_classes: C.
        out_features: d1, ...: further dimensions of the loss. If there are any, all logits are
            computed.
        bias: whether the linear layer has a bias.
        weight: the weight of each class, shape (C,).
        reduction, ignore_index, label_smoothing: as in `kw.linear_cross_entropy`.

    Shape:
        input: (*, H); target: class indices, (*), or (*, d1, ...) with out_features.

    Raises:
        ValueError: weight is not (C,).
        See `kw.linear_cross_entropy`; in the forward.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device=None,
        dtype=None,
        reduction: str = "mean",
        weight: torch.Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if weight is not None and weight.shape != (num_classes,):
            raise ValueError(f"weight: has shape {tuple(weight.shape)}, should be ({num_classes},)")
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.reduction, self.ignore_index = reduction, ignore_index
        self.label_smoothing = label_smoothing
        self.register_buffer("weight", weight)
        rows = num_classes * math.prod(self.out_features)
        self.linear = torch.nn.Linear(in_features, rows, bias, device, dtype)

    def forward(self, input: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        rows = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return linear_cross_entropy(
            input,
            self.linear.weight.view(*rows, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.view(rows),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction}, label_smoothing={self.label_smoothing}"
