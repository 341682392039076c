"""A model in training: its weights, its optimizer, and one step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kernelwright import models
from kernelwright.ops.optimizer.clip_grad_norm import clip_grads_with_norm_, get_total_norm
from kernelwright.optim import AdamW
from kernelwright.support.errors import UsageError

from . import parallel, recompute
from .parallel import Processes
from .settings import Settings

BETA1 = 0.9


class Trainer:
    """A model and its optimizer on one process.

    Args:
        settings: the run's.
        vocabulary: tokens are below it.
        processes: the processes that share a step.

    Attributes:
        model: the model, with its parameters by name; a step calls `called`.
        bad: float32 on the device, the number of steps with gradients that are not finite.
        recompute: the recomputation policy, with "auto" resolved.
        clips_in_adamw: whether AdamW's kernel scales the gradients as it reads them.
    """

    def __init__(self, settings: Settings, vocabulary: int, processes: Processes):
        self.settings, self.processes = settings, processes
        self.device = processes.device
        self.micro, self.forwards = settings.micro_batch(processes.count)
        torch.manual_seed(settings.seed)  # the same weights in every process
        self.model = build(settings, vocabulary, self.device)
        torch.manual_seed(settings.seed + 1 + processes.rank)  # dropout differs among them
        _compile(self.model, settings.compile)
        compiled = settings.compile in ("block", "model")
        self.recompute = recompute.resolved(settings.recompute, self.device, compiled)
        recompute.apply(self.model.blocks, self.recompute)
        self.called = parallel.share(self.model, processes)
        self._parameters = list(self.model.parameters())  # walking through the modules takes time
        self.optimizer = self._optimizer()
        # PyTorch's AdamW, which is dispatched on a CPU, would copy them first
        self.clips_in_adamw = self.device.type != "cpu"
        self.bad = torch.zeros((), device=self.device)
        self._graph: _Graph | None = None

    def step(
        self, inputs: torch.Tensor, targets: torch.Tensor, lr: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Execute a step, except for the update if the norm of the gradients is not finite.

        Args:
            inputs, targets: (forwards * micro, T), this process's part, on the device.

        Returns:
            (mean loss of this process's part, norm of the gradients before clipping), both
            0-dimensional and on the device.
        """
        self._set_rate(lr)
        if self.settings.compile != "graph":
            return self._step(inputs, targets)
        if self._graph is None:
            self._graph = _Graph(self._step, inputs, targets)
        return self._graph(inputs, targets)

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of one forward."""
        with self._autocast():
            return self.called(inputs, targets)

    def held(self) -> list[torch.Tensor]:
        """Parameters and the optimizer's states, which stay between steps."""
        states = [t for s in self.optimizer.state.values() for t in s.values()]
        return [*self._parameters, *states]

    def _step(self, inputs: torch.Tensor, targets: torch.Tensor) -> Any:
        total = torch.zeros((), device=self.device)
        parts = zip(inputs.split(self.micro), targets.split(self.micro), strict=True)
        for i, (x_BT, y_BT) in enumerate(parts):
            last = i == self.forwards - 1
            with parallel.accumulating(self.called, self.processes, last):
                loss = self.loss(x_BT, y_BT) / self.forwards
                loss.backward()
            total += loss.detach()
        norm = self._norm()
        # if the norm is not finite, weights and states stay unchanged, without waiting for the GPU
        self.optimizer.found_inf = (~torch.isfinite(norm)).float()
        if self.settings.clip:
            self._clip(norm)
        self.bad += self.optimizer.found_inf
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total, norm

    def _norm(self) -> torch.Tensor:
        norm = get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def _clip(self, norm: torch.Tensor) -> None:
        if self.clips_in_adamw:
            self.optimizer.grad_scale = ((norm.float() + 1e-6) / self.settings.clip).clamp(min=1.0)
        else:
            clip_grads_with_norm_(self._parameters, self.settings.clip, norm)

    def _set_rate(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def _autocast(self) -> Any:
        if self.settings.precision != "autocast":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _optimizer(self) -> AdamW:
        s = self.settings
        decayed = [p for p in self._parameters if p.ndim >= 2]
        others = [p for p in self._parameters if p.ndim < 2]
        # a captured step reads the rate from the device
        lr = torch.tensor(s.lr, device=self.device) if s.compile == "graph" else s.lr
        groups = [
            {"params": decayed, "weight_decay": s.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        masters = s.precision == "bfloat16"
        return AdamW(groups, lr=lr, betas=(BETA1, s.beta2), master_weights=masters)


def build(settings: Settings, vocabulary: int, device: torch.device) -> Any:
    """A run's model, with new weights."""
    changes: dict[str, Any] = {"vocabulary": padded(vocabulary)}
    if settings.context:
        changes["context"] = settings.context
    if settings.dropout is not None:
        changes["dropout"] = settings.dropout
    try:
        config = models.preset(settings.model, **changes)
    except ValueError as e:
        raise UsageError(str(e)) from None
    with device:
        model = models.build(config)
    if settings.precision == "bfloat16":
        for module in model.modules():  # Module.bfloat16() fails on tensors without storage
            for name, p in module._parameters.items():
                if p is not None:
                    setattr(module, name, nn.Parameter(p.detach().bfloat16()))
    return model


def padded(vocabulary: int) -> int:
    """Rows of the token embedding: a large one is padded to a multiple of 128, for tensor cores."""
    return vocabulary if vocabulary <= 1024 else -(-vocabulary // 128) * 128


def _compile(model: nn.Module, how: str) -> None:
    if how == "model":
        model.compile()
    elif how == "block":  # one compilation for all; the first block's input would need another
        for block in model.blocks[1:]:
            block.forward = torch.compile(block.forward)


class _Graph:
    """A step captured in a CUDA graph. The first steps run without it, so that everything is
    compiled and the optimizer's states exist."""

    WARM_UP = 3

    def __init__(self, step: Callable[..., Any], inputs: torch.Tensor, targets: torch.Tensor):
        if inputs.device.type != "cuda":
            raise UsageError("compile: a CUDA graph needs a GPU")
        self._step = step
        self._inputs, self._targets = inputs.clone(), targets.clone()
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._stream = torch.cuda.Stream()
        self._results: Any = None

    def __call__(self, inputs: torch.Tensor, targets: torch.Tensor) -> Any:
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        self._calls += 1
        if self._calls <= self.WARM_UP:
            return self._aside()
        if self._graph is None:
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            # on the stream of the first steps: each stream has a workspace of cuBLAS's
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._results = self._step(self._inputs, self._targets)
        self._graph.replay()
        return tuple(t.clone() for t in self._results)

    def _aside(self) -> Any:
        """A stream other than the default one, which capture requires."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            results = self._step(self._inputs, self._targets)
        torch.cuda.current_stream().wait_stream(self._stream)
        return results
