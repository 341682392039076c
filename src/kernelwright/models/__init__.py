"""Language models made of the operators; each file reads from top to bottom.

from kernelwright import models
model = models.build("gpt2-124m")
model = models.from_pretrained("folder of a Hugging Face checkpoint")
"""

from __future__ import annotations

import importlib
from typing import Any

#: Presets, and the file of each.
PRESETS = {
    "gpt2-tiny": "gpt2",
    "gpt2-mini": "gpt2",
    "gpt2-124m": "gpt2",
    "gpt2-350m": "gpt2",
    "gpt2-774m": "gpt2",
    "gpt2-1.5b": "gpt2",
    "llama-tiny": "llama",
    "llama-mini": "llama",
    "llama-124m": "llama",
    "llama-350m": "llama",
    "llama-1.2b": "llama",
}


def preset(name: str, **changes: Any) -> Any:
    """The Config of a preset.

    Args:
        changes: the fields of the Config that differ from the preset.

    Raises:
        ValueError: there is no such preset or field, or sizes do not fit together.
    """
    if name not in PRESETS:
        raise ValueError(f"model: {name!r} is not one of {', '.join(PRESETS)}")
    module = importlib.import_module(f"{__name__}.{PRESETS[name]}")
    return module.config(name, **changes)


def build(config: Any) -> Any:
    """A model with new weights, drawn from PyTorch's generator.

    Args:
        config: the name of a preset, or a Config of gpt2.py or llama.py.
    """
    config = preset(config) if isinstance(config, str) else config
    return importlib.import_module(type(config).__module__).Model(config)


def from_pretrained(folder: Any, **options: Any) -> Any:
    """A model with the weights of a Hugging Face checkpoint; see `pretrained.load`."""
    from .pretrained import load

    return load(folder, **options)


def save_pretrained(model: Any, folder: Any) -> None:
    """Write a Hugging Face checkpoint; see `pretrained.save`."""
    from .pretrained import save

    save(model, folder)
