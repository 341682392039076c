"""Modules made of operators; they stand where torch.nn's stood and load its state_dicts.

Each module keeps the constructor, the parameters and the names of torch.nn's module, and is a
subclass of it where every supported PyTorch has it, so that a check for `torch.nn.LayerNorm` (a
weight decay filter, a wrap policy) finds it.
"""

from .activation import GELU, SwiGLU
from .channel_norm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    SyncBatchNorm,
)
from .embedding import Embedding
from .loss import CrossEntropyLoss, LinearCrossEntropyLoss
from .norm import LayerNorm, RMSNorm

__all__ = [
    "GELU",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CrossEntropyLoss",
    "Embedding",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LinearCrossEntropyLoss",
    "RMSNorm",
    "SwiGLU",
    "SyncBatchNorm",
]
