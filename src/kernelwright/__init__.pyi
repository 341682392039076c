# Written by `make tables` from the table in ops/__init__.py.

from . import nn as nn
from . import optim as optim
from .integrations.transformers import patch as patch
from .integrations.transformers import unpatch as unpatch
from .integrations.transformers.attention import register_attention as register_attention
from .ops.attention.linear import linear_attention as linear_attention
from .ops.attention.paged import paged_attention as paged_attention
from .ops.attention.paged import reshape_and_cache as reshape_and_cache
from .ops.attention.sdpa import scaled_dot_product_attention as scaled_dot_product_attention
from .ops.attention.varlen import attention_varlen as attention_varlen
from .ops.elementwise.bias_gelu import bias_gelu as bias_gelu
from .ops.elementwise.gelu import gelu as gelu
from .ops.elementwise.glu import geglu as geglu
from .ops.elementwise.glu import swiglu as swiglu
from .ops.elementwise.pointwise import add as add
from .ops.elementwise.pointwise import mul as mul
from .ops.elementwise.pointwise import relu as relu
from .ops.elementwise.pointwise import sigmoid as sigmoid
from .ops.elementwise.pointwise import silu as silu
from .ops.elementwise.pointwise import squared_relu as squared_relu
from .ops.elementwise.pointwise import tanh as tanh
from .ops.embedding.lookup import embedding as embedding
from .ops.embedding.rope import rope as rope
from .ops.index.gather import gather as gather
from .ops.index.gather import scatter_add as scatter_add
from .ops.index.index_add import index_add as index_add
from .ops.index.index_select import index_select as index_select
from .ops.introspect import explain as explain
from .ops.introspect import use as use
from .ops.introspect import warmup as warmup
from .ops.layout.cat import cat as cat
from .ops.layout.pad import pad as pad
from .ops.layout.permute_copy import permute_copy as permute_copy
from .ops.layout.permute_copy import transpose_copy as transpose_copy
from .ops.loss.cross_entropy import cross_entropy as cross_entropy
from .ops.loss.cross_entropy import cross_entropy_with_grad as cross_entropy_with_grad
from .ops.loss.cross_entropy import cross_entropy_with_grad_ as cross_entropy_with_grad_
from .ops.loss.kl_div import kl_div as kl_div
from .ops.loss.linear_cross_entropy import linear_cross_entropy as linear_cross_entropy
from .ops.matmul.conv2d import conv2d as conv2d
from .ops.matmul.gemm import linear as linear
from .ops.matmul.gemm import matmul as matmul
from .ops.matmul.grouped import grouped_mm as grouped_mm
from .ops.matmul.grouped import grouped_swiglu as grouped_swiglu
from .ops.matmul.moe import moe_ffn as moe_ffn
from .ops.matmul.moe import moe_route as moe_route
from .ops.matmul.quantized import quantized_linear as quantized_linear
from .ops.matmul.quantized.weights import quantize as quantize
from .ops.matmul.quantized.weights import read_awq as read_awq
from .ops.matmul.quantized.weights import read_gptq as read_gptq
from .ops.matmul.scaled import quantize_fp8 as quantize_fp8
from .ops.matmul.scaled import scaled_mm as scaled_mm
from .ops.matmul.spmv import spmv as spmv
from .ops.matmul.weight_grad import accumulate_weight_grad_ as accumulate_weight_grad_
from .ops.norm.layer_norm import add_layer_norm as add_layer_norm
from .ops.norm.layer_norm import add_rms_norm as add_rms_norm
from .ops.norm.layer_norm import layer_norm as layer_norm
from .ops.norm.layer_norm import rms_norm as rms_norm
from .ops.norm.layer_norm_residual_dropout_gelu import (
    layer_norm_residual_dropout_gelu as layer_norm_residual_dropout_gelu,
)
from .ops.optimizer.adamw import adamw as adamw
from .ops.optimizer.clip_grad_norm import clip_grad_norm_ as clip_grad_norm_
from .ops.optimizer.clip_grad_norm import clip_grads_with_norm_ as clip_grads_with_norm_
from .ops.optimizer.clip_grad_norm import get_total_norm as get_total_norm
from .ops.random.dropout import bias_dropout_add as bias_dropout_add
from .ops.random.dropout import dropout as dropout
from .ops.random.dropout import dropout_with_mask as dropout_with_mask
from .ops.reduce.log_softmax import log_softmax as log_softmax
from .ops.reduce.softmax import softmax as softmax
from .ops.reduce.sum import sum as sum
from .ops.scan.cumsum import cumprod as cumprod
from .ops.scan.cumsum import cumsum as cumsum
from .ops.sort.topk import topk as topk

__version__: str
