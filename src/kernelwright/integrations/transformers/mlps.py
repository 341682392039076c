"""Replacements of MLP forwards: one pass for the activation and its product with up.

If the last layer is a plain Linear, it receives the activation's inputs and computes the activation
itself, so that its hooks run and FSDP gathers its weight as before. Written as
linear(swiglu(gate, up)), three tensors of the MLP's width would be saved; the product's backward
recomputes the third.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

import kernelwright as kw
from kernelwright.dispatch import override
from kernelwright.nn.recompute import recomputed_product

from .binding import untouched

Forward = Callable[..., Any]
GATED = {"silu": ("swiglu",), "gelu": ("geglu", "none"), "gelu_tanh": ("geglu", "tanh")}
PLAIN = {
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "silu": ("silu",),
    "relu2": ("squared_relu",),
}


@dataclass(frozen=True)
class MLP:
    """The order of an MLP's children, each given by the name of its attribute.

    Attributes:
        up: the layers before the activation: gate and up, or one layer for both, or a single one.
        gated: whether the activation of gate is multiplied by up.
        down, act: the layer after the activation, and the activation.
        up_first: whether up is the first half of the result of one layer for both.
        limit: the attribute that bounds gate from above and up on both sides, or "".
    """

    up: tuple[str, ...] = ("gate_proj", "up_proj")
    gated: bool = True
    down: str = "down_proj"
    act: str = "act_fn"
    up_first: bool = False
    limit: str = ""


def forward_of(mlp: MLP, by: tuple[str, ...], activation: Forward) -> Forward:
    """The forward that replaces an MLP's.

    Args:
        by: the activation's name in kw, and its further arguments.
        activation: the forward of its class. If another module has taken its place since, or hooks
            see its call, the MLP's own forward runs.
    """
    linear = linear_of(by)
    activate = getattr(kw, by[0])

    def forward(self, *args, **named):
        if not untouched(getattr(self, mlp.act), (activation,)):
            return self.unpatched_forward(*args, **named)
        (x,) = (*args, *named.values())  # its name differs between families
        inputs = tuple(getattr(self, name)(x) for name in mlp.up)
        if mlp.gated and len(inputs) == 1:
            inputs = inputs[0].chunk(2, dim=-1)
            inputs = inputs[::-1] if mlp.up_first else inputs
        if mlp.limit:
            (gate, up), limit = inputs, getattr(self, mlp.limit)
            inputs = gate.clamp(max=limit), up.clamp(-limit, limit)
        down = getattr(self, mlp.down)
        if untouched(down, (linear,)):
            return down(*inputs, activates=True)
        return down(activate(*inputs, *by[1:]))

    return forward


@cache
def linear_of(by: tuple[str, ...]) -> Forward:
    """A Linear's forward that also applies the activation to its input if `activates` is set."""

    def forward(self, input, up=None, activates=False):
        if not activates:
            return F.linear(input, self.weight, self.bias)
        inputs = (input,) if up is None else (input, up)
        return activated_linear(inputs, self.weight, self.bias, *by)

    return forward


def activated_linear(inputs, weight, bias, activation: str, *how):
    """linear(activation(*inputs, *how), weight, bias), whose backward recomputes the activation.

    Args:
        inputs: one tensor, or gate and up.
        activation: its name in kw.

    If the dtypes differ, the product saves a copy of the activation in any case.
    """
    device = weight.device.type
    if torch.is_autocast_enabled(device):
        to = torch.get_autocast_dtype(device)
        weight, bias = weight.to(to), None if bias is None else bias.to(to)
    rung = override(activation)

    def activate(*inputs):
        return getattr(kw, activation)(*inputs, *how)

    def again(*inputs):
        return getattr(torch.ops.kernelwright, activation)(*inputs, *how, rung=rung)

    def product(hidden):
        return F.linear(hidden, weight, bias)

    if weight.requires_grad and all(t.dtype == weight.dtype for t in inputs):
        return recomputed_product(product, activate, inputs, again)
    return product(activate(*inputs))


@cache
def gpt2_mlp(approximate: str, activation: Forward) -> Forward:
    """The forward that replaces GPT-2's MLP; see `forward_of`."""

    def forward(self, hidden_states):
        if not untouched(self.act, (activation,)):
            return self.unpatched_forward(hidden_states)
        if untouched(self.c_fc, (conv1d_gelu,)):
            hidden_states = self.c_fc(hidden_states, approximate)
        else:
            hidden_states = kw.gelu(self.c_fc(hidden_states), approximate)
        return self.dropout(self.c_proj(hidden_states))

    return forward


def conv1d_gelu(self, x, approximate=None):
    """GPT-2's first linear layer; with `approximate`, its bias and gelu are applied in one pass."""
    rows = x.view(-1, x.size(-1))
    if approximate is None:
        y = torch.addmm(self.bias, rows, self.weight)
    else:
        y = kw.bias_gelu(product := rows @ self.weight, self.bias.to(product.dtype), approximate)
    return y.view(*x.shape[:-1], self.nf)


GPT2_ORDER = MLP(("c_fc",), gated=False, down="c_proj", act="act")
GPT2 = {"gelu": "none", "gelu_tanh": "tanh"}

_FUSED = {"up": ("gate_up_proj",), "act": "activation_fn"}
# transformers' class to the order of its children
MLPS: dict[str, MLP] = {
    "llama.LlamaMLP": MLP(),
    "qwen2_5_vl.Qwen2_5_VLMLP": MLP(),
    "llama4.Llama4TextMLP": MLP(act="activation_fn"),
    "deepseek_v4.DeepseekV4MLP": MLP(limit="limit"),
    "phi3.Phi3MLP": MLP(**_FUSED),
    "granitemoeshared.GraniteMoeSharedMLP": MLP(
        ("input_linear",), down="output_linear", act="activation"
    ),
    "moonshine.MoonshineDecoderMLP": MLP(("fc1",), down="fc2", act="activation_fn", up_first=True),
    "nemotron.NemotronMLP": MLP(("up_proj",), gated=False),
    "clip.CLIPMLP": MLP(("fc1",), gated=False, down="fc2", act="activation_fn"),
    "dinov2.Dinov2MLP": MLP(("fc1",), gated=False, down="fc2", act="activation"),
    "qwen2_vl.VisionMlp": MLP(("fc1",), gated=False, down="fc2", act="act"),
    "qwen3_vl.Qwen3VLVisionMLP": MLP(("linear_fc1",), gated=False, down="linear_fc2", act="act_fn"),
    "gpt_neox.GPTNeoXMLP": MLP(("dense_h_to_4h",), gated=False, down="dense_4h_to_h", act="act"),
}
