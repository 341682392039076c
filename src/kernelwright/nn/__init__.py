"""Modules made of operators, which replace those of torch.nn and load their state_dicts.

Each module has the constructor, the parameters and the names of torch.nn's module. It is a subclass
of that module if every supported PyTorch has it, so that code which tests for `torch.nn.LayerNorm`,
for example a weight decay filter or a wrap policy, recognizes it.
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
