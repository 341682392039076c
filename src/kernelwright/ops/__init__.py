"""The operators. A new one is a folder here and a line below."""

from kernelwright import toolchain
from kernelwright.dispatch import use
from kernelwright.ops.elementwise.bias_gelu import bias_gelu
from kernelwright.ops.elementwise.gelu import gelu
from kernelwright.ops.elementwise.glu import geglu, swiglu
from kernelwright.ops.elementwise.pointwise import add, mul, relu, sigmoid, silu, squared_relu, tanh
from kernelwright.ops.embedding.lookup import embedding
from kernelwright.ops.embedding.rope import rope
from kernelwright.ops.introspect import explain, warmup
from kernelwright.ops.loss.cross_entropy import (
    cross_entropy,
    cross_entropy_with_grad,
    cross_entropy_with_grad_,
)
from kernelwright.ops.loss.linear_cross_entropy import linear_cross_entropy
from kernelwright.ops.norm.layer_norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from kernelwright.ops.norm.layer_norm_residual_dropout_gelu import layer_norm_residual_dropout_gelu
from kernelwright.ops.optimizer.adamw import adamw
from kernelwright.ops.optimizer.clip_grad_norm import (
    clip_grad_norm_,
    clip_grads_with_norm_,
    get_total_norm,
)
from kernelwright.ops.random.dropout import bias_dropout_add, dropout, dropout_with_mask
from kernelwright.ops.reduce.softmax import softmax
from kernelwright.ops.reduce.sum import sum

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
