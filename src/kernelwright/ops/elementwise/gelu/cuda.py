"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

FOLDER = Path(__file__).parent


def thread(gpu, config, x, approximate):
    return _thread("gelu_fwd_thread", ("x", "y"), config, x, approximate)


def thread_backward(gpu, config, gy, x, approximate):
    return _thread("gelu_bwd_thread", ("gy", "x", "gx"), config, x, approximate)


def vec16(gpu, config, x, approximate):
    return _vec16("gelu_fwd_vec16", ("x", "y"), config, x, approximate)


def vec16_backward(gpu, config, gy, x, approximate):
    return _vec16("gelu_bwd_vec16", ("gy", "x", "gx"), config, x, approximate)


def _thread(kernel, tensors, config, x, approximate):
    name = f"{kernel}<{CTYPE[x.dtype]}, {boolean(approximate == 'tanh')}>"
    return _plan("cuda_thread.cu", name, tensors, x.numel(), config["block"], config["block"])


def _vec16(kernel, tensors, config, x, approximate):
    block, unroll = config["block"], config["unroll"]
    name = (
        f"{kernel}<{CTYPE[x.dtype]}, {boolean(approximate == 'tanh')}, {block}, {unroll}, "
        f"{boolean(config['stream'])}>"
    )
    tile = block * unroll * (16 // x.itemsize)
    return _plan("cuda_vec16.cu", name, tensors, x.numel(), block, tile)


def _plan(source, name, tensors, n, block, tile):
    launch = Launch(
        CudaKernel(FOLDER / source, name),
        grid=(cdiv(n, tile), 1, 1),
        block=(block, 1, 1),
        args=(*tensors, i64(n)),
    )
    return Plan((launch,))
