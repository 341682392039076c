"""The operators. A new one is a folder here and a line below."""

from kernelwright import toolchain
from kernelwright.dispatch import use

from ._ask import explain, warmup
from .adamw import adamw
from .dropout import dropout
from .gelu import gelu
from .norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from .rope import rope
from .softmax import softmax
from .sum import sum

toolchain.claim()

__all__ = [
    "adamw",
    "add_layer_norm",
    "add_rms_norm",
    "dropout",
    "explain",
    "gelu",
    "layer_norm",
    "rms_norm",
    "rope",
    "softmax",
    "sum",
    "use",
    "warmup",
]
