"""The operators that the models are made of.

On a CPU each would dispatch PyTorch's own function, with a host time that is significant for small
models. There the function is called directly, unless `kw.use` selects a rung of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.dispatch import override, select, specs_of
from kernelwright.nn.recompute import recomputed_product
from kernelwright.ops.attention import decode as _decode
from kernelwright.ops.attention import varlen as _varlen
from kernelwright.ops.elementwise import bias_gelu as _bias_gelu
from kernelwright.ops.elementwise import glu as _glu
from kernelwright.ops.embedding import lookup as _lookup
from kernelwright.ops.embedding import rope as _rope
from kernelwright.ops.loss import linear_cross_entropy as _loss
from kernelwright.ops.matmul import gemm as _gemm
from kernelwright.ops.norm import layer_norm as _norm
from kernelwright.ops.random import dropout as _dropout

from .norm import RMSNorm

# PyTorch has no such functions
rope = _rope.rope
attention_with_kv_cache = _decode.attention_with_kv_cache
attention_varlen = _varlen.attention_varlen


def _direct(x: torch.Tensor, *operators: str) -> bool:
    """Whether to call PyTorch's function directly."""
    return x.is_cpu and not any(override(name) for name in operators)


def decodes_in_one_kernel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor,
) -> bool:
    """Whether `attention_with_kv_cache` dispatches a kernel for this call, or `kw.use` selects one
    of its rungs. Otherwise PyTorch's operators with a mask that all layers share are faster."""
    if override("attention_with_kv_cache"):
        return True
    args = {"q": q, "k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "lengths": lengths,
            "scale": 1.0}  # fmt: skip
    return not q.is_cpu and select(_decode.LADDER, specs_of(args), q.device, None).rung.is_gpu


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x weight^T + bias."""
    if _direct(x, "linear", "matmul"):
        return F.linear(x, weight, bias)
    return _gemm.linear(x, weight, bias)


def product(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """layer(x), of an nn.Linear or a layer of quantized.py."""
    if isinstance(layer, nn.Linear):
        return linear(x, layer.weight, layer.bias)
    return layer(x)


def activated_linear(
    activate: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    layer: nn.Module,
    recompute: bool,
) -> torch.Tensor:
    """layer(activate(*inputs)).

    Args:
        activate: an operator without randomness.
        recompute: whether the backward recomputes its result, the largest tensor of a block that
            only the weight's gradient needs. The same bits, if `kw.use` then selects the same rung.
    """

    if recompute:
        return recomputed_product(lambda hidden: product(hidden, layer), activate, inputs)
    return product(activate(*inputs), layer)


def linear_before_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x weight^T, the argument of `gelu_after_linear`, which is given the same bias.

    On a GPU the gelu adds the bias, and its backward sums the bias's gradient in the same pass; on
    a CPU the product adds it.
    """
    if _direct(x, "linear", "matmul", "bias_gelu"):
        return F.linear(x, weight, bias)
    return linear(x, weight)


def gelu_after_linear(z: torch.Tensor, bias: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(x weight^T + bias)."""
    if _direct(z, "linear", "matmul", "bias_gelu"):
        return F.gelu(z, approximate=approximate)
    # under autocast the product has 16 bits and the bias 32
    return _bias_gelu.bias_gelu(z, bias.to(z.dtype), approximate)


def linear_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, approximate: str
) -> torch.Tensor:
    """gelu(x weight^T + bias) if no gradient is needed: one kernel on a GPU."""
    if _direct(x, "linear"):
        return F.gelu(F.linear(x, weight, bias), approximate=approximate)
    activation = "gelu_tanh" if approximate == "tanh" else "gelu"
    return _gemm.linear(x, weight, bias, activation=activation)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up."""
    if _direct(gate, "swiglu"):
        return F.silu(gate) * up
    return _glu.swiglu(gate, up)


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(gate) * up."""
    if _direct(gate, "geglu"):
        return F.gelu(gate, approximate=approximate) * up
    return _glu.geglu(gate, up, approximate)


def embedding(
    tokens: torch.Tensor, weight: torch.Tensor, padding: int | None = None
) -> torch.Tensor:
    """Rows of weight; the row `padding` has no gradient."""
    if _direct(weight, "embedding"):
        return F.embedding(tokens, weight, padding)
    return _lookup.embedding(tokens, weight, padding)


def add_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, norm: nn.LayerNorm
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the norm of the sum, the sum)."""
    if _direct(x, "add_layer_norm"):
        total = x + residual
        return F.layer_norm(total, norm.normalized_shape, norm.weight, norm.bias, norm.eps), total
    return _norm.add_layer_norm(
        x, residual, norm.normalized_shape, norm.weight, norm.bias, norm.eps
    )


def rms_norm(x: torch.Tensor, norm: RMSNorm) -> torch.Tensor:
    given = x, norm.normalized_shape, norm.weight, norm.eps
    if _direct(x, "rms_norm") and not norm.offset:
        return F.rms_norm(*given)
    return _norm.rms_norm(*given, offset=norm.offset)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, norm: RMSNorm
) -> tuple[torch.Tensor, torch.Tensor]:
    """(the norm of the sum, the sum)."""
    shape = norm.normalized_shape
    if _direct(x, "add_rms_norm") and not norm.offset:
        total = x + residual
        return F.rms_norm(total, shape, norm.weight, norm.eps), total
    return _norm.add_rms_norm(x, residual, shape, norm.weight, norm.eps, offset=norm.offset)


def dropout(x: torch.Tensor, p: float, training: bool = True) -> torch.Tensor:
    if _direct(x, "dropout"):
        return F.dropout(x, p, training) if p else x
    return _dropout.dropout(x, p, training)


def softcapped(x: torch.Tensor, cap: float) -> torch.Tensor:
    """cap tanh(x / cap), rounded once; x if cap is 0."""
    if not cap:
        return x
    wide = torch.promote_types(x.dtype, torch.float32)
    return (cap * torch.tanh(x.to(wide) / cap)).to(x.dtype)


def linear_cross_entropy(
    x_BTC: torch.Tensor, weight_VC: torch.Tensor, targets_BT: torch.Tensor, softcap: float = 0.0
) -> torch.Tensor:
    """The mean cross entropy of x weight^T, in float32 or wider; targets of -100 do not count.

    Args:
        softcap: if above 0, logits become softcap tanh(logit / softcap).
    """
    if _direct(x_BTC, "linear_cross_entropy"):
        logits_NV = F.linear(x_BTC, weight_VC).flatten(0, -2)
        wide = torch.promote_types(logits_NV.dtype, torch.float32)
        return F.cross_entropy(softcapped(logits_NV.to(wide), softcap), targets_BT.flatten())
    wide = torch.promote_types(x_BTC.dtype, torch.float32)
    return _loss.linear_cross_entropy(
        x_BTC, weight_VC, targets_BT, softcap=softcap or None, dtype=wide
    )
