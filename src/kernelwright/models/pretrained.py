"""Folders of Hugging Face checkpoints: config.json and safetensors, read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelwright.support import durable
from kernelwright.support.errors import UsageError

from . import gpt2, llama, quantized, tensor_file
from .huggingface import gpt2 as stored_gpt2
from .huggingface import llama as stored_llama
from .huggingface import quantization
from .huggingface.stored import Weight


@dataclass(frozen=True)
class Format:
    """How a family of models is stored; its name is the `model_type` of a config.json."""

    model: Callable[[Any], nn.Module]
    config: Callable[[dict[str, Any]], Any]
    document: Callable[[Any], dict[str, Any]]
    weights: Callable[[Any], list[Weight]]


_GPT2 = Format(gpt2.Model, stored_gpt2.config, stored_gpt2.document, stored_gpt2.weights)
_LLAMA = Format(llama.Model, stored_llama.config, stored_llama.document, stored_llama.weights)
FORMATS = {"gpt2": _GPT2, **dict.fromkeys(stored_llama.FAMILIES, _LLAMA)}
CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def load(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Any:
    """A model with the weights of a folder.

    Args:
        folder: contains config.json and model.safetensors, or an index of several files.
        dtype: of the parameters; by default as they are stored.

    Raises:
        UsageError: a file is missing or damaged, the family is none of FORMATS, it uses a feature
            that our models do not have, or a tensor is missing or has another shape.
    """
    folder = Path(folder)
    config, given = read_config(folder), _tensors(folder)
    with torch.device("meta"):
        model = _format(config).model(config)
    replaced = _quantized_layers(model, given, folder)
    weights = ours(config, given, folder, without=replaced)
    kinds = {t.dtype for t in weights.values()}
    dtype = dtype or (kinds.pop() if len(kinds) == 1 else torch.float32)
    for name, layer in replaced.items():
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, layer.to(device, dtype))
    weights = {n: t.to(device, dtype) for n, t in weights.items()}
    model.load_state_dict({**model.state_dict(), **weights}, assign=True)
    for p in model.parameters():
        p.requires_grad_(True)
    return model.to(device).eval()  # moves the angles of a Llama from the meta device


def _quantized_layers(
    model: nn.Module, given: dict[str, torch.Tensor], folder: Path
) -> dict[str, nn.Module]:
    """Our layers that the checkpoint stores quantized, by their names."""
    scheme = quantization.scheme(_json(folder / CONFIG))
    if scheme is None:
        return {}
    if isinstance(model.config, gpt2.Config):
        raise UsageError(f"{folder}: quantized weights of GPT-2 are not supported")
    stored = {w.ours: w for w in _format(model.config).weights(model.config)}
    layers: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            bias = stored.get(f"{name}.bias")
            layer = _quantized_layer(scheme, module, stored[f"{name}.weight"], bias, given, folder)
            layers |= {} if layer is None else {name: layer}
    if not layers:
        raise UsageError(f"{folder}: no layer is quantized as config.json says")
    return layers


def _quantized_layer(
    scheme: quantization.Scheme,
    module: nn.Linear,
    weight: Weight,
    bias: Weight | None,
    given: dict[str, torch.Tensor],
    folder: Path,
) -> nn.Module | None:
    names = [name.removesuffix(".weight") for name in weight.theirs]
    try:
        parts = [scheme.weight(name, given) for name in names]
        quantized_parts = [p for p in parts if p is not None]
        if not quantized_parts:
            return None
        if len(quantized_parts) < len(parts):
            raise ValueError("only some of them are quantized")
        biases = [] if bias is None else [_find(name, given, folder) for name in bias.theirs]
        layer = quantized.layer(quantized_parts, torch.cat(biases) if biases else None)
    except (TypeError, ValueError) as e:
        raise UsageError(f"{folder}: {' and '.join(names)}: {e}") from None
    if layer.shape != (module.out_features, module.in_features):
        raise UsageError(
            f"{folder}: {' and '.join(names)} give shape {layer.shape}; "
            f"config.json asks for {(module.out_features, module.in_features)}"
        )
    return layer


def save(model: nn.Module, folder: str | Path) -> None:
    """Write config.json and model.safetensors, as transformers reads them.

    Args:
        folder: created if it does not exist.

    Raises:
        UsageError: the family in the model's Config lacks a feature of the model, or the model is
            quantized.
        WriteError: the disk is full, or the folder cannot be written.
    """
    folder, config = Path(folder), model.config
    if any(
        isinstance(m, (quantized.QuantizedLinear, quantized.ScaledLinear)) for m in model.modules()
    ):
        raise UsageError("a quantized model cannot be saved")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise durable.refused(folder, e) from None
    tensor_file.write(folder / WEIGHTS, theirs(config, model.state_dict()))
    durable.write(folder / CONFIG, [document(config)])


def read_config(folder: Path) -> Any:
    """Our Config for a folder's config.json."""
    d = _json(folder / CONFIG)
    kind = d.get("model_type")
    if kind not in FORMATS:
        known = ", ".join(FORMATS)
        raise UsageError(f"{folder / CONFIG}: model_type {kind!r} is not one of {known}")
    try:
        return FORMATS[kind].config(d)
    except ValueError as e:
        raise UsageError(f"{folder / CONFIG}: {e}") from None


def end_tokens(folder: Path) -> frozenset[int]:
    """The tokens that end a text: `eos_token_id` of generation_config.json and of config.json.

    Raises:
        UsageError: a file is damaged, or there is no config.json.
    """
    documents = [_json(folder / CONFIG)]
    if (folder / GENERATION).exists():
        documents.append(_json(folder / GENERATION))
    ends: set[int] = set()
    for d in documents:
        given = d.get("eos_token_id")
        ends |= set(given) if isinstance(given, list) else {given} - {None}
    return frozenset(ends)


def document(config: Any) -> bytes:
    """The contents of a config.json."""
    written = _format(config).document(config)
    return (json.dumps(written, indent=2) + "\n").encode()


def theirs(config: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors, made from a model's state_dict."""
    tensors: dict[str, torch.Tensor] = {}
    for weight in _format(config).weights(config):
        t = state[weight.ours].detach()
        t = t.T if weight.transposed else t
        if len(weight.theirs) == 1:
            tensors[weight.theirs[0]] = t.contiguous()
            continue
        parts = t.split(weight.rows)
        tensors |= {n: p.contiguous() for n, p in zip(weight.theirs, parts, strict=True)}
    return tensors


def ours(
    config: Any,
    given: dict[str, torch.Tensor],
    folder: Path,
    without: Collection[str] = (),
) -> dict[str, torch.Tensor]:
    """A model's parameters, made from a checkpoint's tensors.

    Args:
        without: layers that are left out.
    """
    with torch.device("meta"):
        model = _format(config).model(config)
    shapes = {n: p.shape for n, p in model.named_parameters()}
    tensors: dict[str, torch.Tensor] = {}
    for weight in _format(config).weights(config):
        if weight.ours.rpartition(".")[0] in without:
            continue
        parts = [_find(name, given, folder) for name in weight.theirs]
        t = torch.cat(parts) if len(parts) > 1 else parts[0]
        t = t.T.contiguous() if weight.transposed else t
        if t.shape != shapes[weight.ours]:
            raise UsageError(
                f"{folder}: {' and '.join(weight.theirs)} give shape {tuple(t.shape)}; "
                f"config.json asks for {tuple(shapes[weight.ours])}"
            )
        tensors[weight.ours] = t
    return tensors


def _find(name: str, given: dict[str, torch.Tensor], folder: Path) -> torch.Tensor:
    # in a checkpoint of the bare model, names lack the model's prefix
    for candidate in (name, name.removeprefix("transformer.").removeprefix("model.")):
        if candidate in given:
            return given[candidate]
    raise UsageError(f"{folder}: the checkpoint has no tensor {name}")


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    if not (folder / INDEX).exists():
        return tensor_file.read(folder / WEIGHTS)
    files = sorted(set(_json(folder / INDEX)["weight_map"].values()))
    tensors: dict[str, torch.Tensor] = {}
    for name in files:
        tensors |= tensor_file.read(folder / name)
    return tensors


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: {path.parent} is not a checkpoint") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} is damaged ({e})") from None


def _format(config: Any) -> Format:
    return _GPT2 if isinstance(config, gpt2.Config) else _LLAMA
