"""Folders of Hugging Face checkpoints: config.json and safetensors, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn

from kernelwright.support import durable
from kernelwright.support.errors import UsageError

from . import tensor_file

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


class Pretrained(nn.Module):
    """A model that is read from and written to a folder."""

    config: Any

    @classmethod
    def from_pretrained(cls, folder: str | Path, **options: Any) -> Self:
        """Like `load`, for this class's architecture.

        Raises:
            UsageError: the folder holds another architecture.
        """
        found = load(folder, **options)
        if not isinstance(found, cls):
            raise UsageError(
                f"{folder} holds a {_architecture(type(found))}, not a {_architecture(cls)}"
            )
        return found

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors, as transformers reads them.

        Args:
            folder: created if it does not exist.

        Raises:
            WriteError: the disk is full, or the folder cannot be written.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise durable.refused(folder, e) from None
        tensor_file.write(folder / WEIGHTS, theirs(self.config, self.state_dict()))
        durable.write(folder / CONFIG, [document(self.config)])


def load(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Any:
    """A model with the weights of a folder.

    Args:
        folder: contains config.json and model.safetensors, or an index of several files.
        dtype: of the parameters; by default as they are stored.

    Raises:
        UsageError: a file is missing or damaged, the architecture is not GPT-2 or Llama, it
            uses a feature that our models do not have, or a tensor is missing or has another shape.
    """
    folder = Path(folder)
    config = read_config(folder)
    weights = ours(config, _tensors(folder), folder)
    module = _module(config)
    with torch.device("meta"):
        model = module.Model(config)
    kinds = {t.dtype for t in weights.values()}
    dtype = dtype or (kinds.pop() if len(kinds) == 1 else torch.float32)
    model.load_state_dict({n: t.to(device, dtype) for n, t in weights.items()}, assign=True)
    for p in model.parameters():
        p.requires_grad_(True)
    return model.to(device).eval()  # moves the angles of a Llama from the meta device


def read_config(folder: Path) -> Any:
    """Our Config for a folder's config.json."""
    d = _json(folder / CONFIG)
    known = _known()
    kind = d.get("model_type")
    if kind not in known:
        raise UsageError(f"{folder / CONFIG}: model_type {kind!r} is not one of {', '.join(known)}")
    try:
        return known[kind][0](d)
    except ValueError as e:
        raise UsageError(f"{folder / CONFIG}: {e}") from None


def document(config: Any) -> bytes:
    """The contents of a config.json."""
    _, write, _ = _known()[_architecture(type(config))]
    return (json.dumps(write(config), indent=2) + "\n").encode()


def theirs(config: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A checkpoint's tensors, made from a model's state_dict."""
    from . import huggingface

    found: dict[str, torch.Tensor] = {}
    for weight in _weights(config):
        t = state[weight.ours].detach()
        t = t.T if weight.transposed else t
        if len(weight.theirs) == 1:
            found[weight.theirs[0]] = t.contiguous()
            continue
        parts = t.split(huggingface.rows(weight, config))
        found |= {n: p.contiguous() for n, p in zip(weight.theirs, parts, strict=True)}
    return found


def ours(config: Any, given: dict[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        shapes = {n: p.shape for n, p in _module(config).Model(config).named_parameters()}
    found: dict[str, torch.Tensor] = {}
    for weight in _weights(config):
        parts = [_find(name, given, folder) for name in weight.theirs]
        t = torch.cat(parts) if len(parts) > 1 else parts[0]
        t = t.T.contiguous() if weight.transposed else t
        if t.shape != shapes[weight.ours]:
            raise UsageError(
                f"{folder}: {' and '.join(weight.theirs)} give shape {tuple(t.shape)}; "
                f"config.json asks for {tuple(shapes[weight.ours])}"
            )
        found[weight.ours] = t
    return found


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
    found: dict[str, torch.Tensor] = {}
    for name in files:
        found |= tensor_file.read(folder / name)
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist: {path.parent} is not a checkpoint") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} is damaged ({e})") from None


def _known() -> dict[str, tuple[Any, Any, Any]]:
    from . import huggingface as hf

    return {
        "gpt2": (hf.gpt2_config, hf.gpt2_document, hf.gpt2_weights),
        "llama": (hf.llama_config, hf.llama_document, hf.llama_weights),
    }


def _architecture(kind: type) -> str:
    return kind.__module__.rpartition(".")[2]


def _weights(config: Any) -> list[Any]:
    return _known()[_architecture(type(config))][2](config)


def _module(config: Any) -> Any:
    import importlib

    return importlib.import_module(type(config).__module__)
