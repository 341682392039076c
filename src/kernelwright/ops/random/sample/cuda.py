"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, f32, i32, i64, rows_view
from kernelwright.contract.template_args import CTYPE

from .tiling import IN_REGISTERS, WITH_HISTOGRAM, aligned, shape_of, vectors_of

HOW = tuple(map(f32, ("temperature", "top_k", "top_p", "min_p")))


def gumbel(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    name = f"sample_gumbel<{CTYPE[logits.dtype]}, {config['threads']}>"
    args = ("logits", "state", "token", *_sizes(logits), HOW[0])
    return _plan("gumbel", name, config["threads"], _rows(logits), args)


def block(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    name = f"sample_block<{CTYPE[logits.dtype]}, {config['threads']}>"
    return _plan("block", name, config["threads"], _rows(logits), _arguments(logits, each))


def cluster(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    blocks, threads = shape_of(logits, config)
    vectors = vectors_of(logits, blocks, threads)
    name = f"sample_cluster<{CTYPE[logits.dtype]}, {vectors}, {threads}, {blocks}>"
    return _plan(
        "cluster", name, threads, _rows(logits) * blocks, _arguments(logits, each),
        cluster=blocks, shared=max(0, vectors - IN_REGISTERS) * threads * 16,
    )  # fmt: skip


def shared_best(gpu, config, **specs):
    """The launch of `cluster` with another kernel."""
    (launch,) = cluster(gpu, config, **specs).launches
    name = launch.kernel.name.replace("sample_cluster", "sample_shared_best")
    source = Path(__file__).with_name("cuda_shared_best.cu")
    return Plan((replace(launch, kernel=replace(launch.kernel, source=source, name=name)),))


def histogram(gpu, config, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    blocks, threads = shape_of(logits, config)
    vectors = vectors_of(logits, blocks, threads)
    name = f"sample_histogram<{CTYPE[logits.dtype]}, {vectors}, {threads}, {blocks}>"
    return _plan(
        "histogram", name, threads, _rows(logits) * blocks, _arguments(logits, each),
        cluster=blocks, shared=max(0, vectors - WITH_HISTOGRAM) * threads * 16,
    )  # fmt: skip


def _arguments(logits, each):
    own = NULL if each is None else "each"
    return ("logits", "state", own, "token", *_sizes(logits), *HOW)


def _sizes(logits):
    _, columns, stride = rows_view(logits.shape, logits.strides)
    return i32(columns), i64(stride), i32(aligned(logits))


def _rows(logits):
    return rows_view(logits.shape, logits.strides)[0]


def _plan(rung, name, threads, blocks, args, cluster=1, shared=0):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{rung}.cu"), name, cluster)
    return Plan((Launch(kernel, (blocks, 1, 1), args, (threads, 1, 1), shared),))
