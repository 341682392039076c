"""The settings of a training run, validated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kernelwright.models import PRESETS
from kernelwright.support.errors import UsageError

from . import recompute, schedule

PRECISIONS = ("float32", "autocast", "bfloat16")
COMPILE = ("none", "block", "model", "graph")
PARALLEL = ("none", "ddp", "fsdp")


@dataclass(frozen=True)
class Settings:
    """A run. Sizes of a batch are those of a step, whatever number of processes shares it.

    Attributes:
        data, tokenizer, vocabulary: as `dataset.open_` takes them.
        model: a preset.
        context: tokens of a sequence; 0 for the preset's.
        dropout: None for the preset's.
        steps: of the optimizer.
        batch: sequences of a step.
        micro: sequences of a forward on one process; gradients of several are accumulated.
            0 for as many as a step needs.
        lr, schedule, warm_up, weight_decay, beta2, clip: of AdamW; clip 0 does not clip.
        precision: "autocast" computes products in bfloat16; "bfloat16" keeps parameters in it too,
            and float32 copies of them in the optimizer.
        compile: "block" or "model" by torch.compile; "graph" captures a step in a CUDA graph.
        recompute: activations that the backward computes again: "none", "light", "selective",
            "full"; "auto" is "light" on a GPU, "none" on a CPU and under torch.compile.
        parallel: how processes of torchrun share a step.
        deterministic: refuse rungs and operations whose results may differ between runs.
        save_every, keep: steps between checkpoints (0: only at the end), and how many are kept.
        eval_every, eval_batches: steps between validations, and batches of one.
        max_bad_steps: the run stops after so many steps with a gradient that is not finite.
    """

    data: str | None = None
    tokenizer: str = "bytes"
    vocabulary: int = 4096
    model: str = "gpt2-tiny"
    context: int = 0
    dropout: float | None = None
    steps: int = 800
    batch: int = 16
    micro: int = 0
    lr: float = 2e-3
    schedule: str = "cosine"
    warm_up: int = 50
    weight_decay: float = 0.1
    beta2: float = 0.99
    clip: float = 1.0
    precision: str = "float32"
    compile: str = "none"
    recompute: str = "auto"
    parallel: str = "none"
    deterministic: bool = False
    seed: int = 0
    save_every: int = 250
    keep: int = 2
    eval_every: int = 250
    eval_batches: int = 8
    max_bad_steps: int = 10

    def __post_init__(self):
        for name in ("steps", "batch", "keep", "eval_batches", "max_bad_steps"):
            _at_least(self, name, 1)
        for name in ("context", "micro", "warm_up", "save_every", "eval_every", "seed"):
            _at_least(self, name, 0)
        for name in ("lr", "weight_decay", "clip"):
            _at_least(self, name, 0.0)
        for name, known in (
            ("model", tuple(PRESETS)),
            ("schedule", schedule.NAMES),
            ("precision", PRECISIONS),
            ("compile", COMPILE),
            ("recompute", recompute.POLICIES),
            ("parallel", PARALLEL),
        ):
            if getattr(self, name) not in known:
                raise UsageError(f"{name}: {getattr(self, name)!r} is none of {', '.join(known)}")
        if self.compile == "graph" and self.parallel != "none":
            raise UsageError("compile: a CUDA graph of a step is captured in one process only")

    def micro_batch(self, processes: int) -> tuple[int, int]:
        """(sequences of a forward, forwards of a step) in each process.

        Raises:
            UsageError: a step's sequences cannot be shared evenly.
        """
        if self.batch % processes:
            raise UsageError(
                f"batch: {self.batch} sequences cannot be shared evenly by {processes} processes"
            )
        share = self.batch // processes
        micro = self.micro or share
        if share % micro:
            raise UsageError(
                f"micro: {micro} sequences do not divide the {share} that a process has of a step"
            )
        return micro, share // micro

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _at_least(settings: Settings, name: str, least: float) -> None:
    if not getattr(settings, name) >= least:
        raise UsageError(f"{name}: must be at least {least}, is {getattr(settings, name)}")
