"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, f32, i32, i64, rows_view
from kernelwright.contract.template_args import CTYPE

from .tiling import IN_REGISTERS, shape_of, vectors_of, width

HOW = tuple(map(f32, ("temperature", "top_k", "top_p", "min_p")))


def gumbel(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    rows, columns, stride = rows_view(logits.shape, logits.strides)
    name = f"sample_gumbel<{_types(logits)}, {config['threads']}>"
    args = ("logits", "state", "token", i32(columns), i64(stride), HOW[0])
    return _plan("gumbel", name, config["threads"], rows, args)


def block(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    name = f"sample_block<{_types(logits)}, {config['threads']}>"
    rows, args = _arguments(logits, each)
    return _plan("block", name, config["threads"], rows, args)


def cluster(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    blocks, threads = shape_of(logits, config)
    vectors = vectors_of(logits, blocks, threads)
    shape = f"{vectors}, {threads}, {blocks}"
    rows, args = _arguments(logits, each)
    return _plan(
        "cluster", f"sample_cluster<{_types(logits)}, {shape}>", threads, rows * blocks, args,
        cluster=blocks, shared=max(0, vectors - IN_REGISTERS) * threads * 16,
    )  # fmt: skip


def _types(logits):
    return f"{CTYPE[logits.dtype]}, {width(logits)}"


def _arguments(logits, each):
    rows, columns, stride = rows_view(logits.shape, logits.strides)
    own = NULL if each is None else "each"
    return rows, ("logits", "state", own, "token", i32(columns), i64(stride), *HOW)


def _plan(rung, name, threads, blocks, args, cluster=1, shared=0):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{rung}.cu"), name, cluster)
    return Plan((Launch(kernel, (blocks, 1, 1), args, (threads, 1, 1), shared),))
