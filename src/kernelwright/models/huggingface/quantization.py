"""Quantized weights in Hugging Face checkpoints: AWQ, GPTQ, compressed-tensors, and fp8 in blocks.

A layer `name` of N outputs and K inputs, with groups of 128 inputs, is stored as

    AWQ                  name.qweight (K, N / 8), name.qzeros, name.scales
    GPTQ                 name.qweight (K bits / 32, N), name.qzeros, name.scales, name.g_idx
    pack-quantized       name.weight_packed (N, K bits / 32), name.weight_scale (N, K / 128),
                         name.weight_zero_point (N bits / 32, K / 128) if not symmetric
    float-quantized      name.weight (N, K) of float8_e4m3fn, name.weight_scale
    fp8                  the same, with name.weight_scale_inv (N / 128, K / 128)

Values of pack-quantized are stored plus 2^(bits - 1), from the lowest bits of a word on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.ops.matmul.quantized import QuantizedWeight, read_awq, read_gptq
from kernelwright.ops.matmul.quantized.weights import GROUP, packed_of
from kernelwright.support.errors import UsageError

from ..quantized import BLOCK, ScaledWeight
from .stored import Document

Tensors = Mapping[str, torch.Tensor]
Read = Callable[[Tensors], QuantizedWeight | ScaledWeight]


@dataclass(frozen=True)
class Scheme:
    """How a checkpoint stores its quantized layers.

    Attributes:
        marks: the tensor that only quantized layers have.
        read: the weight of a layer, from its tensors without the layer's name.
    """

    marks: str
    read: Read

    def weight(self, name: str, given: Tensors) -> QuantizedWeight | ScaledWeight | None:
        """The weight of a layer; None if it is not quantized.

        Raises:
            ValueError: its tensors do not fit together, or the operators cannot multiply it.
        """
        if f"{name}.{self.marks}" not in given:
            return None
        prefix = f"{name}."
        parts = {n.removeprefix(prefix): t for n, t in given.items() if n.startswith(prefix)}
        try:
            return self.read(parts)
        except KeyError as e:
            raise ValueError(f"it has no tensor {e.args[0]}") from None


def scheme(d: Document) -> Scheme | None:
    """The Scheme of a config.json; None if its weights are not quantized.

    Raises:
        UsageError: our operators cannot multiply such weights.
    """
    given = d.get("quantization_config") or d.get("compression_config")
    if not given:
        return None
    method = given.get("quant_method")
    if method not in _METHODS:
        raise _unsupported("quant_method", method, *_METHODS)
    return _METHODS[method](given)


def _awq(d: Document) -> Scheme:
    _only("bits", d.get("bits", d.get("w_bit")), 4)
    _only("group_size", d.get("group_size", d.get("q_group_size")), GROUP)
    _only("version", str(d.get("version", "gemm")).lower(), "gemm")
    _only("zero_point", d.get("zero_point", True), True)
    return Scheme("qweight", lambda t: read_awq(t["qweight"], t["qzeros"], t["scales"]))


def _gptq(d: Document) -> Scheme:
    _only("bits", d.get("bits"), 4, 8)
    _only("group_size", d.get("group_size"), GROUP)
    form = d.get("checkpoint_format") or "gptq"
    _only("checkpoint_format", form, "gptq", "gptq_v2")
    _only("dynamic", d.get("dynamic") or None, None)

    def read(t: Tensors) -> QuantizedWeight:
        tensors = t["qweight"], t["qzeros"], t["scales"], t.get("g_idx")
        return read_gptq(*tensors, checkpoint_format=form)

    return Scheme("qweight", read)


def _fp8(d: Document) -> Scheme:
    _only("weight_block_size", d.get("weight_block_size", [BLOCK, BLOCK]), [BLOCK, BLOCK])
    _only("activation_scheme", d.get("activation_scheme", "dynamic"), "dynamic")
    _only("scale_fmt", d.get("scale_fmt") or "float", "float")
    return Scheme("weight_scale_inv", lambda t: _scaled(t["weight"], t["weight_scale_inv"], True))


def _compressed(d: Document) -> Scheme:
    form = d.get("format")
    _only("format", form, "pack-quantized", "float-quantized")
    for name in ("kv_cache_scheme", "transform_config"):
        _only(name, d.get(name) or None, None)
    sparsity = (d.get("sparsity_config") or {}).get("format", "dense")
    _only("sparsity_config.format", sparsity, "dense")
    kinds = {_checked_group(group, form) for group in (d.get("config_groups") or {}).values()}
    if len(kinds) != 1:
        raise UsageError(f"config.json: quantization_config: {len(kinds)} kinds of config_groups")
    bits, blocked = kinds.pop()
    if form == "pack-quantized":
        return Scheme("weight_packed", lambda t: _unpacked_weight(t, bits))
    return Scheme("weight_scale", lambda t: _scaled(t["weight"], t["weight_scale"], blocked))


def _checked_group(group: Document, form: str) -> tuple[int, bool]:
    """(bits, whether scales are per block) of an entry of config_groups."""
    weights, inputs = group.get("weights") or {}, group.get("input_activations") or {}
    _only("format", group.get("format") or form, form)
    _only("output_activations", group.get("output_activations"), None)
    if form == "pack-quantized":
        _only("weights.type", weights.get("type", "int"), "int")
        _only("weights.num_bits", weights.get("num_bits"), 4, 8)
        _only("weights.strategy", weights.get("strategy"), "group", "channel")
        if weights["strategy"] == "group":
            _only("weights.group_size", weights.get("group_size"), GROUP)
        _only("weights.actorder", weights.get("actorder") or None, None, "weight", "static")
        _only("input_activations", inputs or None, None)
        return weights["num_bits"], False
    _only("weights.type", weights.get("type"), "float")
    _only("weights.num_bits", weights.get("num_bits"), 8)
    _only("weights.strategy", weights.get("strategy"), "tensor", "channel", "block")
    blocked = weights["strategy"] == "block"
    if blocked:
        _only("weights.block_structure", weights.get("block_structure"), [BLOCK, BLOCK])
    _only("input_activations.type", inputs.get("type"), "float")
    _only("input_activations.num_bits", inputs.get("num_bits"), 8)
    _only("input_activations.dynamic", inputs.get("dynamic"), True)
    _only("input_activations.strategy", inputs.get("strategy"), "group" if blocked else "token")
    if blocked:
        _only("input_activations.group_size", inputs.get("group_size"), BLOCK)
    return 8, blocked


def _unpacked_weight(t: Tensors, bits: int) -> QuantizedWeight:
    if "weight_g_idx" in t:
        raise ValueError("weight_g_idx: groups are not consecutive inputs (actorder)")
    n, k = t["weight_shape"].tolist()
    if k % GROUP:
        raise ValueError(f"weight_shape: {k} inputs are not a multiple of {GROUP}")
    groups = t["weight_scale"].shape[-1]  # 1 if a channel has one scale
    _check_shape(t, "weight_packed", n, k * bits // 32)
    _check_shape(t, "weight_scale", n, 1 if groups == 1 else k // GROUP)
    scale_NG = t["weight_scale"]
    zero_NG = torch.full_like(scale_NG, 2.0 ** (bits - 1))
    if "weight_zero_point" in t:
        _check_shape(t, "weight_zero_point", -(-n * bits // 32), groups)
        zero_GN = _values(t["weight_zero_point"].t(), bits).flatten(1)[:, :n]
        zero_NG = zero_GN.t().to(scale_NG.dtype)
    scales_NG2 = torch.stack((scale_NG, zero_NG), -1).expand(n, k // GROUP, 2)
    v_NK = _values(t["weight_packed"], bits).flatten(1).to(torch.uint8)
    return QuantizedWeight(packed_of(v_NK, bits), scales_NG2.transpose(0, 1).contiguous(), bits)


def _check_shape(t: Tensors, name: str, *shape: int) -> None:
    if tuple(t[name].shape) != shape:
        raise ValueError(f"{name}: has shape {tuple(t[name].shape)}, should be {shape}")


def _values(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The values in int32 words, from the lowest bits on, in one more dimension."""
    if words.dtype != torch.int32:
        raise ValueError(f"packed values must be int32, are {words.dtype}")
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    return words.unsqueeze(-1) >> shifts & 2**bits - 1


def _scaled(values_NK: torch.Tensor, scale: torch.Tensor, blocked: bool) -> ScaledWeight:
    if values_NK.dtype != torch.float8_e4m3fn or values_NK.ndim != 2:
        raise ValueError(f"weight: must be a matrix of float8_e4m3fn, is of {values_NK.dtype}")
    n, k = values_NK.shape
    shape = (-(-n // BLOCK), -(-k // BLOCK)) if blocked else (n, 1)
    if not blocked and scale.numel() == 1:  # of the whole tensor
        scale = scale.view(1, 1).expand(shape)
    if tuple(scale.shape) != shape:
        raise ValueError(f"its scales have shape {tuple(scale.shape)}, should be {shape}")
    return ScaledWeight(values_NK, scale.float().contiguous(), blocked)


_METHODS = {"awq": _awq, "gptq": _gptq, "compressed-tensors": _compressed, "fp8": _fp8}


def _only(name: str, value: Any, *supported: Any) -> None:
    if value not in supported:
        raise _unsupported(name, value, *supported)


def _unsupported(name: str, value: Any, *supported: Any) -> UsageError:
    known = " or ".join(map(repr, supported))
    return UsageError(f"config.json: quantization_config: {name} must be {known}, is {value!r}")
