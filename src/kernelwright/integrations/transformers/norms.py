"""Replacements of the norms of transformers models by one fused pass each, sum included.

If a norm is called with a residual, it adds the residual to the input, normalizes the sum and
returns the sum as well. The norms of the families differ in the attributes that hold eps and
weight, in what is added to the weight, and in the dtype of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import kernelwright as kw

from .binding import constant
from .norm_recompute import WANTED, note

Forward = Callable[..., Any]


def weight_of(module: nn.Module):
    return module.weight


def no_weight(module: nn.Module):
    return None


def weight_if_scaled(module: nn.Module):
    """Gemma 4's norms have a weight only if `with_scale` is set."""
    return module.weight if module.with_scale else None


def wider(x, weight):
    """The result's dtype by type promotion, as in a product."""
    return torch.promote_types(x.dtype, weight.dtype)


def of_weight(x, weight):
    """T5: the dtype of a 16-bit weight; with any other weight, float32 or wider."""
    if weight.dtype in (torch.float16, torch.bfloat16):
        return weight.dtype
    return torch.promote_types(torch.float32, weight.dtype)


def rms_norm(eps: str, weight=weight_of, offset: float = 0.0, dtype=None) -> Forward:
    """The forward that replaces an RMS norm's.

    Args:
        eps: the name of the module's attribute.
        weight: returns the weight of the module.
        offset: added to the weight.
        dtype: returns the result's dtype from the input and the weight; by default the input's.
    """

    def forward(self, *args, residual=None, **named):
        x, residual = _given(args, residual, named)
        w, e, plus = weight(self), getattr(self, eps), offset
        notes = False
        if torch.compiler.is_compiling():
            e, plus = constant(e), constant(plus)
        else:
            notes = WANTED.now
        shape = x.shape[-1:] if w is None else w.shape
        if residual is not None:
            h = torch.promote_types(x.dtype, residual.dtype)
            if dtype is None or dtype(x.new_empty(0, dtype=h), w) == h:
                y, residual = kw.add_rms_norm(x, residual, shape, w, e, offset=plus)
                if notes:
                    note(y, residual, w, e, plus)
                return y, residual
            residual = x = residual + x
        y = _rms_norm(x, shape, w, e, plus, x.dtype if dtype is None else dtype(x, w))
        if notes:
            note(y, x, w, e, plus)
        return y if residual is None else (y, residual)

    return forward


def _rms_norm(x, shape, weight, eps, offset, dtype):
    wide = torch.promote_types(x.dtype, dtype)
    x = x if x.dtype == wide else x.to(wide)
    y = _without_autocast(kw.rms_norm, x, shape, weight, eps, offset=offset)
    return y if y.dtype == dtype else y.to(dtype)


def cohere_norm(self, *args, residual=None, **named):
    """layer_norm without a bias, computed in float32 and rounded to the input's dtype."""
    x, residual = _given(args, residual, named)
    weight, eps = self.weight, constant(self.variance_epsilon)
    if residual is not None:
        return kw.add_layer_norm(x, residual, weight.shape, weight, None, eps)
    return _without_autocast(kw.layer_norm, x, weight.shape, weight, None, eps)


def olmo_norm(self, *args, residual=None, **named):
    """layer_norm without weight and bias, computed like `cohere_norm`."""
    x, residual = _given(args, residual, named)
    if residual is not None:
        return kw.add_layer_norm(x, residual, self.normalized_shape, eps=1e-5)
    return _without_autocast(kw.layer_norm, x, self.normalized_shape, eps=1e-5)


def nemotron_norm(self, *args, residual=None, **named):
    """layer_norm with 1 added to the weight; under autocast, all in autocast's dtype."""
    x, residual = _given(args, residual, named)
    shape, weight, bias = self.normalized_shape, self.weight + 1.0, self.bias
    eps = constant(self.eps)
    if not torch.is_autocast_enabled():
        if residual is not None:
            return kw.add_layer_norm(x, residual, shape, weight, bias, eps)
        return kw.layer_norm(x, shape, weight, bias, eps)
    h = x if residual is None else residual + x
    to = torch.get_autocast_dtype(x.device.type)
    weight, bias = weight.to(to), None if bias is None else bias.to(to)
    y = _without_autocast(kw.layer_norm, h.to(to), shape, weight, bias, eps)
    return y if residual is None else (y, h)


def layer_norm(self, *args, residual=None, **named):
    x, residual = _given(args, residual, named)
    given = self.normalized_shape, self.weight, self.bias, constant(self.eps)
    if residual is None:
        return kw.layer_norm(x, *given)
    return kw.add_layer_norm(x, residual, *given)


def torch_rms_norm(self, *args, residual=None, **named):
    x, residual = _given(args, residual, named)
    # nn.RMSNorm's eps is None by default
    eps = self.eps if self.eps is None else constant(self.eps)
    if residual is None:
        return kw.rms_norm(x, self.normalized_shape, self.weight, eps)
    return kw.add_rms_norm(x, residual, self.normalized_shape, self.weight, eps)


llama_norm = rms_norm("variance_epsilon", dtype=wider)
gemma_norm = rms_norm("eps", offset=1.0)
olmo2_norm = rms_norm("variance_epsilon")
moshi_norm = rms_norm("eps")
t5_norm = rms_norm("variance_epsilon", dtype=of_weight)
llama4_norm = rms_norm("eps", dtype=wider)
weightless_norm = rms_norm("eps", no_weight)
gemma4_norm = rms_norm("eps", weight_if_scaled)

# transformers' or PyTorch's class to (operator as named in the report, forward)
NORMS: dict[str, tuple[str, Forward]] = {
    "llama.LlamaRMSNorm": ("rms_norm", llama_norm),
    "gemma.GemmaRMSNorm": ("rms_norm(offset=1)", gemma_norm),
    "olmo2.Olmo2RMSNorm": ("rms_norm", olmo2_norm),
    "helium.HeliumRMSNorm": ("rms_norm", olmo2_norm),
    "moshi.MoshiRMSNorm": ("rms_norm", moshi_norm),
    "t5.T5LayerNorm": ("rms_norm", t5_norm),
    "llama4.Llama4TextRMSNorm": ("rms_norm", llama4_norm),
    "llama4.Llama4TextL2Norm": ("rms_norm", weightless_norm),
    "deepseek_v4.DeepseekV4UnweightedRMSNorm": ("rms_norm", weightless_norm),
    "gemma4.Gemma4RMSNorm": ("rms_norm", gemma4_norm),
    "torch.nn.RMSNorm": ("rms_norm", torch_rms_norm),
    "torch.nn.LayerNorm": ("layer_norm", layer_norm),
    "cohere.CohereLayerNorm": ("layer_norm", cohere_norm),
    "olmo.OlmoLayerNorm": ("layer_norm", olmo_norm),
    "nemotron.NemotronLayerNorm1P": ("layer_norm", nemotron_norm),
}
FORWARDS = frozenset(forward for _, forward in NORMS.values())


def _given(args, residual, named):
    """(x, residual) from a call's arguments; the name of x differs between families."""
    x, *more = (*args, *named.values())
    return x, more[0] if more else residual


def _without_autocast(norm, x, *args, **more):
    """These modules compute in float32 themselves, with or without autocast."""
    if not torch.is_autocast_enabled():
        return norm(x, *args, **more)
    with torch.autocast(x.device.type, enabled=False):
        return norm(x, *args, **more)
