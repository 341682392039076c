"""softmax along one dimension: the ladder from five kernels to one pass at DRAM speed."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung
from kernelwright.dispatch import bind

from . import spec

RUNGS = (
    Rung("manual", "torch", "torch_rungs:manual", "the formula, a kernel a line"),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own operator"),
    Rung("compiled", "inductor", "torch_rungs:manual", "the formula, fused by torch.compile"),
)
