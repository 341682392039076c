"""GroupNorm, InstanceNorm, BatchNorm and SyncBatchNorm."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.ops import comm
from kernelwright.ops.norm.batch_norm import batch_norm
from kernelwright.ops.norm.batch_norm.sync import sync_batch_norm
from kernelwright.ops.norm.group_norm import group_norm
from kernelwright.ops.norm.instance_norm import instance_norm


class GroupNorm(torch.nn.GroupNorm):
    """torch.nn.GroupNorm with `kw.group_norm`: the same arguments, parameters and state_dict.

    Shape:
        input: (N, C, *); the result has the same shape, dtype and memory format.

    Raises:
        TypeError: in the forward, if the input is not floating point.
        ValueError: in the forward, if it does not have num_channels channels.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _InstanceNorm:
    """The forward of torch.nn's modules, with `kw.instance_norm`."""

    def _apply_instance_norm(self: Any, input: torch.Tensor) -> torch.Tensor:
        return instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d with `kw.instance_norm`: the same arguments and state_dict."""


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d with `kw.instance_norm`: the same arguments and state_dict."""


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d with `kw.instance_norm`: the same arguments and state_dict."""


class _BatchNorm:
    """The forward of torch.nn's modules, with `kw.batch_norm`."""

    def forward(self: Any, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        momentum = _count_batch(self)
        from_batch = self.training or (self.running_mean is None and self.running_var is None)
        return batch_norm(
            input, *_running(self), self.weight, self.bias, from_batch, momentum, self.eps
        )


def _count_batch(module: Any) -> float | torch.Tensor:
    """Count a batch in training. Returns the weight of its statistics in the running statistics:
    momentum, or if that is None 1 / batches, on the device."""
    counts = module.training and module.track_running_stats
    if counts:
        module.num_batches_tracked.add_(1)
    if module.momentum is not None:
        return module.momentum
    return module.num_batches_tracked.float().reciprocal() if counts else 0.0


def _running(module: Any) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The running statistics if they are used or updated, else None."""
    used = not module.training or module.track_running_stats
    return (module.running_mean, module.running_var) if used else (None, None)


class BatchNorm1d(_BatchNorm, torch.nn.BatchNorm1d):
    """torch.nn.BatchNorm1d with `kw.batch_norm`: the same arguments and state_dict."""


class BatchNorm2d(_BatchNorm, torch.nn.BatchNorm2d):
    """torch.nn.BatchNorm2d with `kw.batch_norm`: the same arguments and state_dict."""


class BatchNorm3d(_BatchNorm, torch.nn.BatchNorm3d):
    """torch.nn.BatchNorm3d with `kw.batch_norm`: the same arguments and state_dict."""


class SyncBatchNorm(_BatchNorm, torch.nn.SyncBatchNorm):
    """torch.nn.SyncBatchNorm: in training the statistics are those of all processes' inputs, whose
    batches may differ in size. It needs one collective in the forward and one in the backward.

    It takes the same arguments and state_dict and also runs on CPUs (Gloo). The gradients of weight
    and bias are those of the process's own samples; DistributedDataParallel averages them.

    Shape:
        input: (N, C, *); the result has the same shape, dtype and memory format.

    Raises:
        TypeError: in the forward, if the input is not floating point.
        ValueError: in the forward, if it does not have num_features channels.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training or comm.processes(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        momentum = _count_batch(self)
        return sync_batch_norm(
            input, *_running(self), self.weight, self.bias, momentum, self.eps, self.process_group
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module, process_group: Any = None):
        """Replace each torch.nn.BatchNorm in the module by a `kw.nn.SyncBatchNorm` with the same
        parameters and buffers, in place, and return the module (or its replacement).

        Args:
            process_group: of the new modules; None for all processes.
        """
        converted = module
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            converted = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.train(module.training)
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
