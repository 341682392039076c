"""The work to profile: a training step, a decoding step, or a call of an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_VOCABULARY = 50257


@dataclass(frozen=True)
class Workload:
    """Something to profile.

    Attributes:
        step: runs it once, and returns its loss or None.
    """

    name: str
    step: Callable[[], Any]


def make(what: str, model: str, batch: int, context: int, device: torch.device) -> Workload:
    """A workload by its name: "train", "generate", or an operator on its first bench case.

    Args:
        model: a preset, for "train" and "generate".
        batch: the number of sequences.
        context: tokens per sequence; 0 for the model's.
    """
    if what == "train":
        return _train(model, batch, context, device)
    if what == "generate":
        return _generate(model, batch, device)
    return _operator(what, device)


def _train(model: str, batch: int, context: int, device: torch.device) -> Workload:
    from kernelwright.train.parallel import Processes
    from kernelwright.train.settings import Settings
    from kernelwright.train.trainer import Trainer

    precision = "bfloat16" if device.type == "cuda" else "float32"
    settings = Settings(model=model, batch=batch, context=context, precision=precision)
    trainer = Trainer(settings, _vocabulary(model), Processes("none", 0, 1, device))
    config = trainer.model.config
    draw = torch.Generator().manual_seed(0)
    both = torch.randint(_vocabulary(model), (batch, config.context + 1), generator=draw)
    inputs, targets = (t.contiguous().to(device) for t in (both[:, :-1], both[:, 1:]))
    name = f"a training step of {model}, {batch} x {config.context} tokens"
    return Workload(name, lambda: trainer.step(inputs, targets, 1e-4)[0])


def _generate(model: str, batch: int, device: torch.device) -> Workload:
    from kernelwright import models
    from kernelwright.infer.decoder import Decoder
    from kernelwright.infer.sampling import Sampling

    torch.manual_seed(0)
    with device:
        built = models.build(models.preset(model, vocabulary=_vocabulary(model))).eval()
    if device.type == "cuda":
        built = built.bfloat16()
    # kernels of a graph's replay cannot be attributed to operators
    decoder = Decoder(built, batch, Sampling(temperature=0.0), 0, _vocabulary(model), graphed=False)
    prompt = [1] * (built.config.context // 2)
    decoder.begin([prompt] * batch)
    return Workload(f"a token of {model}, {batch} rows, after {len(prompt)} others", decoder.step)


def _operator(name: str, device: torch.device) -> Workload:
    from kernelwright.workbench import listing
    from kernelwright.workbench.bench import workload

    (ladder,) = listing.named([name])[:1]
    (_, case), *_ = workload.chosen([ladder], None, device, quick=True)
    inputs = ladder.operator.inputs(case, device.type)
    call = getattr(torch.ops.kernelwright, ladder.operator.torch_name)
    return Workload(f"{ladder.name}, {case.label or case.id}", lambda: call(**inputs))


def _vocabulary(model: str) -> int:
    return 256 if model.endswith(("-tiny", "-mini")) else _VOCABULARY
