"""The model and the tokenizer of a folder: a training run's, a checkpoint's, or Hugging Face's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kernelwright import models
from kernelwright.models import pretrained, tokenizer
from kernelwright.models.tokenizer import Tokenizer
from kernelwright.support.errors import UsageError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(folder: Path, device: torch.device, precision: str = "") -> tuple[Any, Tokenizer]:
    """A model for generation, and its tokenizer.

    Args:
        folder: a run's, of which the finished model or newest checkpoint is used; or a model's.
        precision: "float32" or "bfloat16"; "" for bfloat16 on a GPU, float32 on a CPU.

    Raises:
        UsageError: there is no model, or no tokenizer.
    """
    kind = dtype(precision, device)
    folder = checkpoint(folder)
    encoder = tokenizer.load(folder)
    if encoder is None:
        raise UsageError(
            f"{folder} has no tokenizer: put GPT-2's vocab.json and merges.txt, or a "
            "tokenizer.json, next to the weights"
        )
    return models.from_pretrained(folder, device=device, dtype=kind), encoder


def dtype(precision: str, device: torch.device) -> torch.dtype:
    """The dtype of weights: see `load`."""
    precision = precision or ("bfloat16" if device.type == "cuda" else "float32")
    if precision not in _DTYPES:
        raise UsageError(f"precision: {precision!r} is neither float32 nor bfloat16")
    return _DTYPES[precision]


def checkpoint(folder: Path) -> Path:
    """The folder of the weights: itself, or in a run's folder the finished model's or newest
    checkpoint's.

    Raises:
        UsageError: there is none.
    """
    if (folder / pretrained.CONFIG).exists():
        return folder
    if (folder / "model" / pretrained.CONFIG).exists():
        return folder / "model"
    steps = sorted(folder.glob("checkpoints/step-*/COMMITTED"), key=lambda p: p.parent.name)
    if not steps:
        raise UsageError(f"{folder} contains neither a model nor a checkpoint of a training run")
    return steps[-1].parent
