"""The files that a run writes at its end: the model, samples, and a picture of the losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from kernelwright import models
from kernelwright.infer import generate
from kernelwright.infer.sampling import Sampling
from kernelwright.models import tokenizer
from kernelwright.models.tokenizer import Tokenizer
from kernelwright.support import durable

from . import log, picture

PICTURE, SAMPLES, MODEL = "loss.svg", "samples.txt", "model"
SAMPLE_TOKENS = 240


def write(
    run: Path,
    config: Any,
    weights: dict[str, torch.Tensor],
    encoder: Tokenizer | None,
    device: torch.device,
    seed: int,
) -> tuple[str, ...]:
    """Write a run's files and return the samples.

    Args:
        weights: the model's, on the CPU.
        encoder: the tokenizer; there are no samples without one.

    Raises:
        WriteError: the disk is full.
    """
    with torch.device("meta"):
        model = models.build(config)
    model.load_state_dict(weights, assign=True)
    models.save_pretrained(model, run / MODEL)
    samples: tuple[str, ...] = ()
    if encoder is not None:
        tokenizer.save(encoder, run / MODEL)
        samples = _samples(run / MODEL, encoder, device, seed)
    text = "\n\n".join(f"--- {i + 1} ---\n{x}" for i, x in enumerate(samples))
    durable.write(run / SAMPLES, [text.encode()])
    durable.write(run / PICTURE, [loss_picture(run).encode()])
    return samples


def _samples(folder: Path, encoder: Tokenizer, device: torch.device, seed: int) -> tuple[str, ...]:
    model = models.from_pretrained(folder, device=device)
    how, prompts = Sampling(temperature=0.8, top_k=200), ["\n", "\n"]
    steps = generate.texts(model, encoder, prompts, SAMPLE_TOKENS, how, seed=seed)
    return tuple("".join(parts).strip("\n") for parts in zip(*steps, strict=True))


def loss_picture(folder: Path) -> str:
    """The losses of a run by step."""
    events = log.read(folder)
    train = [(e["step"], e["loss"]) for e in events if e["event"] == "step" and e["loss"]]
    held = [(e["step"], e["loss"]) for e in events if e["event"] == "validation" and e["loss"]]
    x, y = [s for s, _ in train], [v for _, v in train]
    smoothed = picture.smooth(y, max(1, len(y) // 50))
    curves = [picture.Curve("", x, y, faint=True), picture.Curve("training", x, smoothed)]
    if held:
        curves.append(
            picture.Curve("validation", [s for s, _ in held], [v for _, v in held], colour=1)
        )
    settings = next(e for e in events if e["event"] == "start")
    caption = f"{settings['settings']['model']}, {settings['parameters']:,} parameters, " + (
        f"{settings['data']}; nats per token"
    )
    return picture.curves("Loss", curves, caption=caption, x_name="step")
