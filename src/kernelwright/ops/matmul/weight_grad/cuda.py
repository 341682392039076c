"""Launch of the CUDA rung. cuda_accumulate.cu is in the folder of the Hopper headers that it
includes."""

from __future__ import annotations

from kernelwright.contract import Launch, Plan, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.hopper.cuda import FOLDER, SLICE, _kernel, _maps, _shared, _Tiles
from kernelwright.ops.matmul.gemm.hopper.tiling import multiplying

from .heuristics import operands


def wgmma(gpu, config, total, gy, x):
    of_a, of_b = operands(gy, x)
    tiles = _Tiles(gpu, config, 1, *total.shape)
    maps, bytes_ = _maps(config, of_a, of_b, ("gy", "x"))
    groups = multiplying(config)
    sizes = (config["bm"], config["bn"], config["stages"], groups)
    kernel = _kernel(FOLDER / "cuda_accumulate.cu", "accumulate_product", CTYPE[gy.dtype], *sizes)
    numbers = (*total.shape, *tiles.order, tiles.count, cdiv(gy.shape[0], SLICE), bytes_)
    args = (*maps, "total", *map(i32, numbers))
    threads = ((1 + groups) * 128, 1, 1)
    return Plan((Launch(kernel, (tiles.blocks, 1, 1), args, threads, _shared(config, of_a, of_b)),))
