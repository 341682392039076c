"""Names by which the site's search finds a page: those of this package, of PyTorch, and of others.

Names of torch and of torch.nn are derived; OTHERS has what the field calls an operator: Liger's
classes, other libraries' functions, and names of methods.
"""

from __future__ import annotations

import torch

from kernelwright.ops import COMPOSED, LADDERS

#: The page of a public function that has no ladder: the ladder whose page describes it.
DESCRIBED = {
    "index.index_select": "index.index_add",
    "loss.kl_div": "loss.cross_entropy",
    "norm.instance_norm": "norm.group_norm",
    "reduce.log_softmax": "reduce.softmax",
    "matmul.moe": "matmul.grouped",
    "matmul.quantized.weights": "matmul.quantized",
}
#: By ladder, what other libraries and the literature call its operators.
OTHERS: dict[str, tuple[str, ...]] = {
    "optimizer.adamw": ("Adam", "optim.AdamW", "torch.optim.AdamW", "FusedAdam", "fused optimizer"),
    "elementwise.bias_gelu": ("fused bias gelu", "add bias gelu", "FastGELU"),
    "optimizer.clip_grad_norm": (
        "gradient clipping", "clip_grad_norm", "torch.nn.utils.clip_grad_norm_", "global norm",
    ),
    "loss.cross_entropy": (
        "LigerCrossEntropyLoss", "CrossEntropyLoss", "NLL loss", "log loss", "label smoothing",
        "z-loss", "LigerKLDIVLoss", "KL divergence", "KLDivLoss",
    ),
    "random.dropout": ("fused dropout", "bias dropout add", "Philox"),
    "random.rand": ("random numbers", "uniform", "normal", "Gaussian noise", "torch.rand_like"),
    "random.sample": (
        "sampling", "top-k sampling", "top-p", "nucleus sampling", "min-p", "multinomial",
        "torch.multinomial", "top_k_top_p_sampling",
    ),
    "elementwise.pointwise": (
        "elementwise", "ReLU", "SiLU", "swish", "Sigmoid", "Tanh", "vector add",
        "LigerReLUSquared", "squared relu", "relu2",
    ),
    "embedding.lookup": ("LigerEmbedding", "EmbeddingBag", "lookup table", "torch.nn.Embedding"),
    "elementwise.gelu": ("GELU", "gelu_tanh", "NewGELU"),
    "elementwise.glu": (
        "SwiGLU", "GEGLU", "gated MLP", "LigerSwiGLUMLP", "LigerGEGLUMLP", "LigerSiLUMulFunction",
        "LigerGELUMulFunction", "silu_and_mul", "gelu_and_mul",
    ),
    "norm.layer_norm_residual_dropout_gelu": ("fused residual block", "dropout layer norm"),
    "loss.linear_cross_entropy": (
        "LigerFusedLinearCrossEntropyLoss", "fused linear cross entropy", "cut cross entropy",
        "chunked loss",
    ),
    "norm.batch_norm": ("BatchNorm", "BatchNorm2d", "SyncBatchNorm", "torch.nn.SyncBatchNorm"),
    "norm.group_norm": ("LigerGroupNorm", "GroupNorm", "InstanceNorm", "InstanceNorm2d"),
    "norm.layer_norm": (
        "RMSNorm", "LayerNorm", "LigerRMSNorm", "LigerLayerNorm", "LigerFusedAddRMSNorm",
        "fused_add_rms_norm", "add bias residual layer norm", "Welford",
    ),
    "embedding.rope": (
        "rotary", "rotary embedding", "rotary position embedding", "LigerRopeFunction",
        "liger_rotary_pos_emb", "apply_rotary_pos_emb", "RoPE",
    ),
    "reduce.softmax": ("LigerSoftmax", "online softmax", "safe softmax", "Softmax"),
    "reduce.sum": ("reduction", "reduce", "parallel reduction", "mean", "block reduce"),
    "reduce.dot": ("dot product", "FastAtomicAdd", "atomicAdd", "inner product", "vdot"),
    "matmul.gemm": (
        "gemm", "sgemm", "hgemm", "cuBLAS", "CUTLASS", "addmm", "mm", "bmm", "torch.addmm",
        "nn.Linear", "epilogue", "tensor cores", "wgmma", "TMA", "split-K", "stream-K",
    ),
    "matmul.conv2d": ("convolution", "im2col", "implicit gemm", "cuDNN", "Conv2d"),
    "matmul.weight_grad": ("wgrad accumulation", "gradient accumulation fusion", "main_grad"),
    "matmul.quantized": (
        "weight-only", "int4", "int8", "W4A16", "W8A16", "GPTQ", "AWQ", "Marlin", "dequantize",
    ),
    "matmul.grouped": (
        "mixture of experts", "MoE", "fused_moe", "grouped gemm", "torch._grouped_mm",
        "F.grouped_mm", "expert parallelism", "megablocks",
    ),
    "matmul.spmv": ("sparse", "CSR", "sparse matrix vector product", "torch.sparse", "cuSPARSE"),
    "matmul.scaled": ("FP8", "float8", "torch._scaled_mm", "_scaled_mm", "DeepGEMM", "e4m3"),
    "scan.cumsum": ("prefix sum", "scan", "decoupled look-back", "inclusive scan"),
    "index.index_add": ("indexing", "index_copy", "scatter rows"),
    "index.gather": ("scatter", "take_along_dim", "torch.take_along_dim"),
    "sort.histogram": ("histogram", "counting", "shared atomics"),
    "sort.sort": ("radix sort", "CUB", "bitonic sort", "merge sort"),
    "sort.topk": ("top-k", "selection", "radix select", "kthvalue"),
    "layout.permute_copy": ("transpose", "permute", "contiguous", "matrix transpose"),
    "layout.cat": ("concat", "concatenate", "torch.concat", "torch.stack"),
    "layout.pad": ("padding", "constant_pad_nd", "ConstantPad2d"),
    "vision.upsample_nearest2d": ("upsample", "nearest neighbor", "resize", "Upsample"),
    "vision.max_pool2d": ("pooling", "max pooling", "MaxPool2d"),
    "vision.avg_pool2d": ("average pooling", "AvgPool2d", "adaptive pooling"),
    "vision.interpolate": ("bilinear", "upsample_bilinear2d", "resize bilinear"),
    "vision.nms": ("non-maximum suppression", "torchvision.ops.nms", "object detection"),
    "vision.roi_align": ("ROIAlign", "torchvision.ops.roi_align", "region of interest"),
    "attention.sdpa": (
        "attention", "flash attention", "FlashAttention", "flash_attn_func", "sdpa",
        "memory efficient attention", "multi-head attention", "grouped-query attention",
        "GQA", "causal attention",
    ),
    "attention.varlen": (
        "flash_attn_varlen_func", "packed sequences", "unpadded attention", "sliding window",
        "jagged attention", "attention sinks", "ALiBi", "softcap",
    ),
    "attention.varlen_paged": (
        "flash_attn_varlen_func with block_table", "chunked prefill", "mixed batches",
        "batch-invariant attention", "prefix caching",
    ),
    "attention.paged": ("PagedAttention", "vLLM", "KV cache", "kv pages", "paged KV cache"),
    "attention.decode": ("flash decoding", "flash_attn_with_kvcache", "split-KV", "decoding"),
    "attention.linear": (
        "RetNet", "Mamba-2", "Mamba", "Lightning Attention", "gated linear attention", "GLA",
        "state space model", "chunkwise", "retention", "delta rule",
    ),
}  # fmt: skip
#: By page of docs/, what a reader may type instead of its title.
DOCS: dict[str, tuple[str, ...]] = {
    "patch": (
        "kw.patch", "patch", "kw.unpatch", "unpatch", "kw.register_attention",
        "register_attention", "Hugging Face", "transformers", "AutoModel", "Trainer",
        "apply_liger_kernel_to_llama", "AutoLigerKernelForCausalLM", "monkey patch", "TRL", "PEFT",
    ),
    "judge": ("kernelwright judge", "judge", "KernelBench", "GPU MODE", "leaderboard"),
    "compare": ("kernelwright compare", "compare", "A/B test", "GitHub Actions"),
    "emulator": ("emulator", "compute-sanitizer", "racecheck", "memcheck", "data race"),
    "run": ("kernelwright run", "nvcc", "no GPU", "cu file"),
    "dissect": ("kernelwright dissect", "bank conflicts", "sectors", "debugger", "cuda-gdb"),
    "lessons": ("kernelwright learn", "course", "tutorial", "quiz", "PMPP"),
    "inference": (
        "FasterTransformer", "padding removal", "effective transformer", "beam search", "BERT",
        "SmoothQuant",
    ),
    "layouts": (
        "kernelwright layout", "CuTe", "layout algebra", "swizzle", "swizzling",
        "stride", "fragments",
    ),
    "notes": ("curriculum", "syllabus", "LeetCUDA", "how-to-optim-algorithm-in-cuda", "topics"),
    "exercises": ("kernelwright exercise", "LeetGPU", "Triton Puzzles", "practice"),
    "report": ("kernelwright report", "roofline chart"),
    "language_models": (
        "kernelwright train", "kernelwright generate", "nanoGPT", "GPT-2", "Llama", "llm.c",
        "Shakespeare",
    ),
    "serve_http": (
        "kernelwright serve", "kernelwright bench-serve", "OpenAI API", "chat completions",
        "vllm serve", "lm-evaluation-harness", "Prometheus", "server-sent events",
    ),
    "pytorch": (
        "torch.compile", "autograd", "autocast", "DTensor", "FSDP", "vmap", "CUDA graphs",
        "torch.library", "custom operator", "kw.nn", "kw.optim",
    ),
    "install": ("pip install", "installation", "requirements", "KW_CACHE"),
    "operators": ("list of operators", "kw.explain", "kw.use", "kw.tune", "kw.warmup", "bench"),
    "glossary": ("rung", "ladder", "roof", "best peer", "regret", "terms"),
}  # fmt: skip


def names(ladder: str) -> list[str]:
    """Every name of a ladder's operators: alone, with `kw.`, as in torch, and the field's."""
    own = [*LADDERS[ladder], *_described(ladder)]
    functions = [
        name for function in own for name in (function, f"kw.{function}", *_torch(function))
    ]
    # the search ignores case
    return list({name.lower(): name for name in (*OTHERS.get(ladder, ()), *functions)}.values())


def _described(ladder: str) -> list[str]:
    """Public functions without a ladder that the page of this one describes."""
    return [name for module, at in DESCRIBED.items() if at == ladder for name in COMPOSED[module]]


def _torch(function: str) -> list[str]:
    """The function in torch and in torch.nn.functional, where it is there."""
    names: list[str] = []
    if hasattr(torch, function):
        names.append(f"torch.{function}")
    if hasattr(torch.nn.functional, function):
        names += [f"F.{function}", f"torch.nn.functional.{function}"]
    return names
