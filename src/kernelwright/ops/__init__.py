"""The operators. A new one is a folder here and a line below."""

from kernelwright import toolchain
from kernelwright.dispatch import use

from ._ask import explain, warmup
from .adamw import adamw
from .bias_gelu import bias_gelu
from .clip_grad_norm import clip_grad_norm_, clip_grads_with_norm_, get_total_norm
from .cross_entropy import cross_entropy, cross_entropy_with_grad, cross_entropy_with_grad_
from .dropout import bias_dropout_add, dropout, dropout_with_mask
from .elementwise import add, mul, relu, sigmoid, silu, squared_relu, tanh
from .embedding import embedding
from .gelu import gelu
from .glu import geglu, swiglu
from .layer_norm_residual_dropout_gelu import layer_norm_residual_dropout_gelu
from .linear_cross_entropy import linear_cross_entropy
from .norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from .rope import rope
from .softmax import softmax
from .sum import sum

toolchain.claim()
toolchain.warn_of_untested()

__all__ = [
    "adamw",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "bias_dropout_add",
    "bias_gelu",
    "clip_grad_norm_",
    "clip_grads_with_norm_",
    "cross_entropy",
    "cross_entropy_with_grad",
    "cross_entropy_with_grad_",
    "dropout",
    "dropout_with_mask",
    "embedding",
    "explain",
    "geglu",
    "gelu",
    "get_total_norm",
    "layer_norm",
    "layer_norm_residual_dropout_gelu",
    "linear_cross_entropy",
    "mul",
    "relu",
    "rms_norm",
    "rope",
    "sigmoid",
    "silu",
    "softmax",
    "squared_relu",
    "sum",
    "swiglu",
    "tanh",
    "use",
    "warmup",
]
