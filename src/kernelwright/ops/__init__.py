"""The operators. A new operator is a folder here and a line in the table below.

Importing this package imports none of them. `kernelwright` imports a ladder when one of its
functions is first accessed; `kernelwright.ops.every` imports all, which fills
torch.ops.kernelwright (needed, for example, to load an exported program).
"""

#: Public functions of each ladder; tables and lists show ladders in this order.
LADDERS: dict[str, tuple[str, ...]] = {
    "optimizer.adamw": ("adamw",),
    "elementwise.bias_gelu": ("bias_gelu",),
    "optimizer.clip_grad_norm": ("clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm"),
    "loss.cross_entropy": (
        "cross_entropy",
        "cross_entropy_with_grad",
        "cross_entropy_with_grad_",
    ),
    "random.dropout": ("bias_dropout_add", "dropout", "dropout_with_mask"),
    "random.rand": ("bernoulli", "rand", "randn"),
    "random.sample": ("sample",),
    "elementwise.pointwise": ("add", "mul", "relu", "sigmoid", "silu", "squared_relu", "tanh"),
    "embedding.lookup": ("embedding",),
    "elementwise.gelu": ("gelu",),
    "elementwise.glu": ("geglu", "swiglu"),
    "norm.layer_norm_residual_dropout_gelu": ("layer_norm_residual_dropout_gelu",),
    "loss.linear_cross_entropy": ("linear_cross_entropy",),
    "norm.batch_norm": ("batch_norm",),
    "norm.group_norm": ("group_norm",),
    "norm.layer_norm": ("add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm"),
    "embedding.rope": ("rope",),
    "reduce.softmax": ("softmax",),
    "reduce.sum": ("sum",),
    "reduce.dot": ("dot",),
    "matmul.gemm": ("linear", "matmul"),
    "matmul.conv2d": ("conv2d",),
    "matmul.weight_grad": ("accumulate_weight_grad_",),
    "matmul.quantized": ("quantized_linear",),
    "matmul.grouped": ("grouped_mm", "grouped_swiglu"),
    "matmul.spmv": ("spmv",),
    "matmul.scaled": ("quantize_fp8", "scaled_mm"),
    "scan.cumsum": ("cumprod", "cumsum"),
    "index.index_add": ("index_add",),
    "index.gather": ("gather", "scatter_add"),
    "sort.histogram": ("bincount", "histc"),
    "sort.sort": ("argsort", "msort", "sort"),
    "sort.topk": ("topk",),
    "layout.permute_copy": ("permute_copy", "transpose_copy"),
    "layout.cat": ("cat",),
    "layout.pad": ("pad",),
    "vision.upsample_nearest2d": ("upsample_nearest2d",),
    "vision.max_pool2d": ("max_pool2d",),
    "vision.avg_pool2d": ("avg_pool2d",),
    "vision.interpolate": ("interpolate",),
    "vision.nms": ("nms",),
    "vision.roi_align": ("roi_align",),
    "attention.sdpa": ("scaled_dot_product_attention",),
    "attention.varlen": ("attention_varlen",),
    "attention.varlen_paged": ("attention_varlen_paged",),
    "attention.paged": ("paged_attention", "reshape_and_cache"),
    "attention.decode": ("attention_with_kv_cache",),
    "attention.linear": ("linear_attention",),
}

# Public functions without a ladder, by module: they call other operators or PyTorch's.
COMPOSED: dict[str, tuple[str, ...]] = {
    "index.index_select": ("index_select",),
    "loss.kl_div": ("kl_div",),
    "norm.instance_norm": ("instance_norm",),
    "reduce.log_softmax": ("log_softmax",),
    "matmul.moe": ("moe_ffn", "moe_route"),
    "matmul.quantized.weights": ("quantize", "read_awq", "read_gptq"),
}

#: The module of each public function.
PUBLIC = {
    name: f"{__name__}.{module}" for module, names in (LADDERS | COMPOSED).items() for name in names
}
