"""Replacements of the experts of a mixture: grouped products over the tokens sorted by expert.

The router remains the model's own: the experts of each token, the router's logits and the
load-balancing loss do not change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import kernelwright as kw
from kernelwright.ops.matmul.moe import through_experts

from .binding import untouched

Forward = Callable[..., Any]
# transformers' own implementations; any other was chosen for its kernels
IMPLEMENTATIONS = (None, "eager", "grouped_mm", "batched_mm")


@dataclass(frozen=True)
class Experts:
    """How a module stores the weights of its experts, and what is between their products.

    Attributes:
        transposed: weights are (E, inputs, outputs), else (E, outputs, inputs).
        bias: both products have a bias.
        gates: the class's own `_apply_gate` is between the products, else the product of up and
            the activation of gate.
    """

    transposed: bool = False
    bias: bool = False
    gates: bool = False


def forward_of(
    experts: Experts, by: tuple[str, ...], activation: Forward | None, names: tuple[str, ...]
) -> Forward:
    """The forward that replaces that of experts.

    Args:
        by: the activation's name in kw and its further arguments; () if the class's own code
            is between the products.
        activation: the forward of its class; see mlps.forward_of.
        names: the names of the forward's arguments: tokens, indices of their experts, weights.
    """
    fused = by == ("swiglu",) and not experts.bias and not experts.transposed

    def forward(self, *args, **named):
        if by and not untouched(self.act_fn, (activation,)):
            return self.unpatched_forward(*args, **named)
        given = dict(zip(names, args, strict=False)) | named
        x, indices, weights = (given[name] for name in names)
        if fused:
            y = kw.moe_ffn(x, self.gate_up_proj, self.down_proj, weights, indices)
        else:
            count = self.gate_up_proj.shape[0]
            y = through_experts(x, weights, indices, count, lambda *rows: mlp(self, *rows))
        return y.to(x.dtype)

    def mlp(self, rows, offsets, expert):
        both = product(self, "gate_up_proj", rows, offsets, expert)
        if by:
            hidden = getattr(kw, by[0])(*both.chunk(2, -1), *by[1:])
        else:
            hidden = self._apply_gate(both)
        return product(self, "down_proj", hidden, offsets, expert)

    def product(self, name, rows, offsets, expert):
        weight = getattr(self, name).to(rows.dtype)
        y = kw.grouped_mm(rows, weight if experts.transposed else weight.mT, offsets)
        if experts.bias:
            y = y + kw.embedding(expert, getattr(self, f"{name}_bias").to(y.dtype))
        return y

    return forward


def unfit(module: nn.Module) -> str:
    """Why experts with known code are not replaced, or ""."""
    for name in ("gate_up_proj", "down_proj"):
        weight = getattr(module, name, None)
        if not isinstance(weight, torch.Tensor) or weight.ndim != 3:
            return f"its {name} is not one tensor of all experts"
        if not weight.is_floating_point() or weight.itemsize < 2:
            return f"its {name} is quantized, to {weight.dtype}"
    chosen = getattr(getattr(module, "config", None), "_experts_implementation", None)
    if chosen not in IMPLEMENTATIONS:
        return f"the experts implementation {chosen!r} was chosen for it"
    return ""


def arguments_of(forward: Forward) -> tuple[str, ...]:
    """Names of the arguments of a forward, without self."""
    return tuple(inspect.signature(inspect.unwrap(forward)).parameters)[1:]


# transformers' class to the storage of its experts
EXPERTS: dict[str, Experts] = {
    "mixtral.MixtralExperts": Experts(),
    "gpt_oss.GptOssExperts": Experts(transposed=True, bias=True, gates=True),
    "deepseek_v4.DeepseekV4Experts": Experts(gates=True),
    "glm5_next.Glm5NextTextExperts": Experts(gates=True),
    "minimax_m3_vl.MiniMaxM3VLExperts": Experts(gates=True),
    "step3p7.Step3p7Experts": Experts(gates=True),
}
