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
    """The settings of a run. Batch sizes are per step, for any number of processes.

    Attributes:
        data, tokenizer, vocabulary: see `dataset.open_`.
        model: the name of a preset.
        context: tokens per sequence; 0 for the preset's.
        dropout: None for the preset's.
        steps: steps of the optimizer.
        batch: sequences per step.
        micro: sequences per forward on one process; gradients of several are accumulated.
            0 for as many as a step needs.
        lr, schedule, warm_up, weight_decay, beta2, clip: AdamW's; clip 0 does not clip.
        precision: "autocast" computes products in bfloat16; "bfloat16" also stores parameters in
            it, with float32 copies in the optimizer.
        compile: "block" or "model" by torch.compile; "graph" captures a step in a CUDA graph.
        recompute: activations that the backward recomputes: "none", "light", "selective", "full";
            "auto" is "light" on a GPU, "none" on a CPU and under torch.compile.
        parallel: how the processes of torchrun share a step.
        deterministic: reject rungs and operations whose results may differ between runs.
        save_every, keep: steps between checkpoints (0: only at the end), and how many are kept.
        eval_every, eval_batches: steps between validations, and batches per validation.
        max_bad_steps: the run stops after this many steps with gradients that are not finite.
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
                raise UsageError(
                    f"{name}: {getattr(self, name)!r} is not one of {', '.join(known)}"
                )
        if self.compile == "graph" and self.parallel != "none":
            raise UsageError("compile: a CUDA graph of a step is captured in one process only")

    def micro_batch(self, processes: int) -> tuple[int, int]:
        """(sequences per forward, forwards per step) in each process.

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
                f"micro: {micro} sequences do not divide the {share} of each process in a step"
            )
        return micro, share // micro

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _at_least(settings: Settings, name: str, least: float) -> None:
    if not getattr(settings, name) >= least:
        raise UsageError(f"{name}: must be at least {least}, is {getattr(settings, name)}")
