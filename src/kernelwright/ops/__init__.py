"""The operators. A new one is a folder here and a line below."""

from kernelwright import toolchain
from kernelwright.dispatch import use

from ._ask import explain, warmup
from .adamw import adamw
from .dropout import dropout
from .gelu import gelu
from .rms_norm import rms_norm
from .softmax import softmax
from .sum import sum

toolchain.claim()

__all__ = ["adamw", "dropout", "explain", "gelu", "rms_norm", "softmax", "sum", "use", "warmup"]
