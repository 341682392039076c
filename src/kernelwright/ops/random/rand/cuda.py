"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import math
from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean


def thread(gpu, config, state, size, threads, dtype, distribution):
    return _filled("thread", f"rand_thread<{_types(dtype, distribution)}>", config, size, threads)


def thread_uniform(gpu, config, state, size, threads, dtype):
    return thread(gpu, config, state, size, threads, dtype, "kw::Uniform")


def thread_normal(gpu, config, state, size, threads, dtype):
    return thread(gpu, config, state, size, threads, dtype, "kw::Normal")


def thread_p(gpu, config, state, size, threads, p, dtype):
    name = f"bernoulli_p_thread<{CTYPE[dtype]}>"
    return _filled("thread", name, config, size, threads, f32("p"))


def thread_bernoulli(gpu, config, state, p):
    blocks = cdiv(p.numel(), config["block"])
    return _probable("thread", f"bernoulli_thread<{CTYPE[p.dtype]}>", config, p, blocks)


def quad(gpu, config, state, size, threads, dtype, distribution):
    return _steps("quad", f"rand_quad<{_types(dtype, distribution)}>", config, size, threads, 1)


def quad_uniform(gpu, config, state, size, threads, dtype):
    return quad(gpu, config, state, size, threads, dtype, "kw::Uniform")


def quad_normal(gpu, config, state, size, threads, dtype):
    return quad(gpu, config, state, size, threads, dtype, "kw::Normal")


def quad_p(gpu, config, state, size, threads, p, dtype):
    name = f"bernoulli_p_quad<{CTYPE[dtype]}>"
    return _steps("quad", name, config, size, threads, 1, f32("p"))


def vec16(gpu, config, state, size, threads, dtype, distribution):
    name = f"rand_vec16<{_types(dtype, distribution)}, {_shape(config)}>"
    return _steps("vec16", name, config, size, threads, 16 // dtype.itemsize)


def vec16_uniform(gpu, config, state, size, threads, dtype):
    return vec16(gpu, config, state, size, threads, dtype, "kw::Uniform")


def vec16_normal(gpu, config, state, size, threads, dtype):
    return vec16(gpu, config, state, size, threads, dtype, "kw::Normal")


def vec16_p(gpu, config, state, size, threads, p, dtype):
    name = f"bernoulli_p_vec16<{CTYPE[dtype]}, {_shape(config)}>"
    return _steps("vec16", name, config, size, threads, 16 // dtype.itemsize, f32("p"))


def vec16_bernoulli(gpu, config, state, p):
    blocks = cdiv(p.numel(), config["block"] * (16 // p.itemsize))
    name = f"bernoulli_vec16<{CTYPE[p.dtype]}, {config['block']}>"
    return _probable("vec16", name, config, p, blocks)


def _shape(config):
    return f"{config['block']}, {boolean(config['stream'])}"


def _types(dtype, distribution):
    return f"{CTYPE[dtype]}, {distribution}"


def _filled(rung, name, config, size, threads, *more):
    n = math.prod(size)
    args = ("state", "y", i64(n), i64(threads), *more)
    return _plan(rung, name, config, (max(1, cdiv(n, config["block"])), 1, 1), args)


def _steps(rung, name, config, size, threads, width, *more):
    """A row of blocks per step of PyTorch's grid; each of our threads stands for `width` of its
    threads."""
    n = math.prod(size)
    grid = (cdiv(threads, width * config["block"]), max(1, cdiv(n, 4 * threads)), 1)
    return _plan(rung, name, config, grid, ("state", "y", i64(n), i64(threads), *more))


def _probable(rung, name, config, p, blocks):
    return _plan(rung, name, config, (blocks, 1, 1), ("state", "p", "y", i64(p.numel())))


def _plan(rung, name, config, grid, args):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{rung}.cu"), name)
    return Plan((Launch(kernel, grid, args, (config["block"], 1, 1)),))
