"""What stands in for the forwards of a transformers model's modules, on Kernelwright's operators.

Each function is a `forward`: bound to one module, it reads that module's parameters and attributes.
What fuses two modules (a sum and the norm after it, a product and the loss after it) passes more
to the second one's `__call__`, so that hooks run and FSDP gathers its weights where it always does.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch.nn import functional as F

import kernelwright as kw

from .recompute import gated_linear


def takes(module: torch.nn.Module, forward: Any) -> bool:
    """Is the module's forward this one? Adapters put around a module after `patch` take no more
    arguments than the module itself did."""
    bound = module.forward
    # not getattr(bound, "__func__", None): traced by torch.compile of torch 2.11, that is None
    return isinstance(bound, MethodType) and bound.__func__ is forward


# norms: with a residual, normalise the sum and return it too


def llama_norm(self, hidden_states, residual=None):
    return _rms_norm(self, hidden_states, residual, self.variance_epsilon, 0.0, _wider)


def gemma_norm(self, x, residual=None):
    return _rms_norm(self, x, residual, self.eps, 1.0, None)


def _wider(x, weight):
    """A weight wider than the input makes the result as wide, as a product does."""
    wide = torch.promote_types(x.dtype, weight.dtype)
    return x if x.dtype == wide else x.to(wide)


def _rms_norm(self, x, residual, eps, offset, cast):
    weight, shape = self.weight, self.weight.shape
    if residual is not None:
        h = torch.promote_types(x.dtype, residual.dtype)
        if cast is None or torch.promote_types(h, weight.dtype) == h:
            return kw.add_rms_norm(x, residual, shape, weight, eps, offset=offset)
        residual = x = residual + x
    if cast is not None:
        x = cast(x, weight)
    # these modules compute in float32 themselves, whatever autocast says of rms_norm
    if torch.is_autocast_enabled():
        with torch.autocast(x.device.type, enabled=False):
            y = kw.rms_norm(x, shape, weight, eps, offset=offset)
    else:
        y = kw.rms_norm(x, shape, weight, eps, offset=offset)
    return y if residual is None else (y, residual)


def layer_norm(self, input, residual=None):
    if residual is None:
        return kw.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
    return kw.add_layer_norm(
        input, residual, self.normalized_shape, self.weight, self.bias, self.eps
    )


# residual streams: the sum before a norm is the norm's


def llama_layer(self, hidden_states, attention_mask=None, only_causal=False, **kwargs):
    residual = hidden_states
    hidden_states, _ = self.self_attn(
        hidden_states=self.input_layernorm(hidden_states),
        attention_mask=_mask(self.self_attn, residual, attention_mask, only_causal),
        **kwargs,
    )
    hidden_states, residual = _add_norm(self.post_attention_layernorm, hidden_states, residual)
    return residual + self.mlp(hidden_states)


def gemma2_layer(
    self,
    hidden_states,
    position_embeddings=None,
    attention_mask=None,
    only_causal=False,
    **kwargs,
):
    residual = hidden_states
    hidden_states, _ = self.self_attn(
        hidden_states=self.input_layernorm(hidden_states),
        position_embeddings=position_embeddings,
        attention_mask=_mask(self.self_attn, residual, attention_mask, only_causal),
        **kwargs,
    )
    hidden_states = self.post_attention_layernorm(hidden_states)
    hidden_states, residual = _add_norm(self.pre_feedforward_layernorm, hidden_states, residual)
    return residual + self.post_feedforward_layernorm(self.mlp(hidden_states))


def gpt2_layer(
    self,
    hidden_states,
    past_key_values=None,
    attention_mask=None,
    encoder_hidden_states=None,
    encoder_attention_mask=None,
    use_cache=False,
    only_causal=False,
    **kwargs,
):
    residual = hidden_states
    hidden_states, _ = self.attn(
        self.ln_1(hidden_states),
        past_key_values=past_key_values,
        attention_mask=_mask(self.attn, residual, attention_mask, only_causal),
        use_cache=use_cache,
        **kwargs,
    )
    if encoder_hidden_states is not None:
        hidden_states, residual = _add_norm(self.ln_cross_attn, hidden_states, residual)
        hidden_states, _ = self.crossattention(
            hidden_states,
            past_key_values=past_key_values,
            attention_mask=attention_mask,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=encoder_attention_mask,
        )
    hidden_states, residual = _add_norm(self.ln_2, hidden_states, residual)
    return residual + self.mlp(hidden_states)


LAYERS = (llama_layer, gemma2_layer, gpt2_layer)


def _mask(attention, hidden_states, attention_mask, only_causal):
    """The mask that attention needs: none if it is only causal and no window is shorter than the
    sequence."""
    if not only_causal:
        return attention_mask
    window = getattr(attention.config, "sliding_window", None)
    window = getattr(attention, "sliding_window", window)  # of this layer, or of all
    return None if window is None or hidden_states.shape[1] <= window else attention_mask


def _add_norm(norm, x, residual):
    if any(takes(norm, forward) for forward in NORMS):
        return norm(x, residual)
    residual = residual + x
    return norm(residual), residual


NORMS = (llama_norm, gemma_norm, layer_norm)


# MLPs


def swiglu_mlp(self, x):
    gate, up = self.gate_proj(x), self.up_proj(x)
    if takes(self.down_proj, linear_of_swiglu):
        return self.down_proj(gate, up)
    return self.down_proj(kw.swiglu(gate, up))


def geglu_mlp(self, x):
    return _geglu_mlp(self, x, "none", linear_of_geglu)


def geglu_tanh_mlp(self, x):
    return _geglu_mlp(self, x, "tanh", linear_of_geglu_tanh)


def _geglu_mlp(self, x, approximate, linear):
    gate, up = self.gate_proj(x), self.up_proj(x)
    if takes(self.down_proj, linear):
        return self.down_proj(gate, up)
    return self.down_proj(kw.geglu(gate, up, approximate))


def linear_of_swiglu(self, gate, up=None):
    if up is None:
        return F.linear(gate, self.weight, self.bias)
    return gated_linear(gate, up, self.weight, self.bias, "swiglu")


def linear_of_geglu(self, gate, up=None):
    if up is None:
        return F.linear(gate, self.weight, self.bias)
    return gated_linear(gate, up, self.weight, self.bias, "geglu", "none")


def linear_of_geglu_tanh(self, gate, up=None):
    if up is None:
        return F.linear(gate, self.weight, self.bias)
    return gated_linear(gate, up, self.weight, self.bias, "geglu", "tanh")


def gpt2_gelu_mlp(self, hidden_states):
    return _gpt2_mlp(self, hidden_states, "none")


def gpt2_gelu_tanh_mlp(self, hidden_states):
    return _gpt2_mlp(self, hidden_states, "tanh")


def _gpt2_mlp(self, hidden_states, approximate):
    if takes(self.c_fc, conv1d_gelu):
        hidden_states = self.c_fc(hidden_states, approximate)
    else:
        hidden_states = kw.gelu(self.c_fc(hidden_states), approximate)
    return self.dropout(self.c_proj(hidden_states))


def conv1d_gelu(self, x, approximate=None):
    """GPT-2's first linear layer; with `approximate`, its bias and gelu are one pass."""
    rows = x.view(-1, x.size(-1))
    if approximate is None:
        y = torch.addmm(self.bias, rows, self.weight)
    else:
        y = kw.bias_gelu(product := rows @ self.weight, self.bias.to(product.dtype), approximate)
    return y.view(*x.shape[:-1], self.nf)


# the loss


def head_and_loss(self, input, labels=None, shift_labels=None, items=None, ignore_index=-100,
                  softcap=None):  # fmt: skip
    """The language model's head; with labels, its loss as transformers' ForCausalLMLoss computes
    it, in float32 at least, without the logits."""
    if labels is None and shift_labels is None:
        return F.linear(input, self.weight, self.bias)
    if shift_labels is None:
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    if shift_labels.numel() != input.shape[:-1].numel():
        raise ValueError(
            f"labels: has shape {tuple(shift_labels.shape)}, should be {tuple(input.shape[:-1])}"
        )
    loss = kw.linear_cross_entropy(
        input,
        self.weight,
        shift_labels.reshape(input.shape[:-1]).to(input.device),
        linear_bias=self.bias,
        reduction="mean" if items is None else "sum",
        ignore_index=ignore_index,
        softcap=softcap,
        dtype=torch.promote_types(input.dtype, torch.float32),
    )
    if items is None:
        return loss
    return loss / (items.to(loss.device) if torch.is_tensor(items) else items)
