"""Modules made of operators, which replace those of torch.nn and load their state_dicts.

Each module has the constructor, the parameters and the names of torch.nn's module. It is a subclass
of that module if every supported PyTorch has it, so that code which tests for `torch.nn.LayerNorm`,
for example a weight decay filter or a wrap policy, recognizes it.
"""

from .activation import GELU, SwiGLU
from .embedding import Embedding
from .loss import CrossEntropyLoss, LinearCrossEntropyLoss
from .norm import LayerNorm, RMSNorm

__all__ = [
    "GELU",
    "CrossEntropyLoss",
    "Embedding",
    "LayerNorm",
    "LinearCrossEntropyLoss",
    "RMSNorm",
    "SwiGLU",
]
