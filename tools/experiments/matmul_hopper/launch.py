"""Launch a config of this folder: compile it, describe its tensors to TMA, cuLaunchKernelEx."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from cuda.bindings import driver as cu

from kernelwright.toolchain import driver

from .build import compiled, kernel
from .configs import CLUSTERS, Config, K, Split, StreamK, cdiv
from .epilogues import CPP, Epilogue

CLUSTER = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
OVERLAP = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
TYPES = {
    torch.bfloat16: cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    torch.float16: cu.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
}


class Launch:
    """C = A B, each operand contiguous along either dimension, C along n. All sizes are multiples
    of 8 where they are a stride; operands begin at multiples of 16 bytes."""

    def __init__(
        self, config: Config, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, epilogue: Epilogue
    ):
        (m, k), n = a.shape, b.shape[1]
        a_k, b_k = a.stride(1) == 1, b.stride(0) == 1
        layout = ("N" if a_k else "T") + ("T" if b_k else "N")
        made = compiled(kernel(config, layout, CPP[a.dtype], epilogue.cpp))
        handle = driver.function(made, a.device.index, config.shared, config.blocks)
        self.function = cu.CUfunction(handle)
        grid = config.grid(m, n, k, at_once(handle, config.blocks, config.threads, config.shared))
        tensors = [
            operand(a, a_k, config.bm, config.cols),
            operand(b.t(), b_k, config.bn, config.rows),
            *result(config, c),
        ]
        numbers: list[Any] = [(ctypes.c_int * 5)(*grid.order, m, n), ctypes.c_int(cdiv(k, K))]
        if isinstance(config, StreamK):
            sums, flags = workspace()
            assert grid.blocks * config.bm * config.bn <= sums.numel()
            tensors += [ctypes.c_void_p(sums.data_ptr()), ctypes.c_void_p(flags.data_ptr())]
            numbers.append(ctypes.c_int(grid.shared_tiles))
        arguments = [*tensors, *numbers, ctypes.create_string_buffer(epilogue.argument)]
        self.kept = arguments, a, b, c, epilogue
        self.parameters = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self.config = launch_config(grid.blocks, config.blocks, config.threads, config.shared)
        if config.overlap:
            overlap = cu.CUlaunchAttribute()
            overlap.id = OVERLAP
            overlap.value.programmaticStreamSerializationAllowed = 1
            self.config.attrs = [*self.config.attrs, overlap]
            self.config.numAttrs = len(self.config.attrs)

    def run(self) -> None:
        self.config.hStream = cu.CUstream(torch.cuda.current_stream().cuda_stream)
        parameters = ctypes.addressof(self.parameters)
        ok(cu.cuLaunchKernelEx(self.config, self.function, parameters, 0))


def ok(result: tuple) -> Any:
    code, *values = result
    driver.check(code.value, "a call of the CUDA driver")
    return values[0] if values else None


def launch_config(blocks: int, cluster: int, threads: int, shared: int) -> cu.CUlaunchConfig:
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared
    attributes = []
    if cluster > 1:
        shape = cu.CUlaunchAttribute()
        shape.id = CLUSTER
        shape.value.clusterDim.x, shape.value.clusterDim.y, shape.value.clusterDim.z = cluster, 1, 1
        attributes.append(shape)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


@cache
def at_once(handle: int, cluster: int, threads: int, shared: int) -> int:
    """Clusters that run at once; a cluster lies within a GPC, so not every SM is in one."""
    if cluster == 1:
        return CLUSTERS[1]
    config = launch_config(128 // cluster * cluster, cluster, threads, shared)
    return ok(cu.cuOccupancyMaxActiveClusters(cu.CUfunction(handle), config))


def operand(t: torch.Tensor, along_k: bool, width: int, share: int) -> ctypes.Array:
    """Of t, (width, k) in either order of memory: boxes of 64 of k by a tile's width, of which each
    of `share` blocks loads a part."""
    wide, k = t.shape
    if along_k:
        return tensor_map(t, k, wide, t.stride(0), (K, width // share))
    return tensor_map(t, wide, k, t.stride(1), (64, K // share))


def result(config: Config, c: torch.Tensor) -> list[Any]:
    if isinstance(config, Split):
        return [ctypes.c_void_p(c.data_ptr()), ctypes.c_longlong(c.stride(0))]
    return [tensor_map(c, c.shape[1], c.shape[0], c.stride(0), (64, 64))]


def tensor_map(
    t: torch.Tensor, width: int, height: int, stride: int, box: tuple[int, int]
) -> ctypes.Array:
    """What TMA knows of a matrix of 16-bit elements, as kw::TensorMap."""
    made = cu.cuTensorMapEncodeTiled(
        TYPES[t.dtype],
        2,
        t.data_ptr(),
        [cu.cuuint64_t(width), cu.cuuint64_t(height)],
        [cu.cuuint64_t(stride * 2)],
        [cu.cuuint32_t(x) for x in box],
        [cu.cuuint32_t(1), cu.cuuint32_t(1)],
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        cu.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return ctypes.create_string_buffer(ctypes.string_at(int(ok(made).getPtr()), 128), 128)


@cache
def workspace() -> tuple[torch.Tensor, torch.Tensor]:
    """Sums and flags of stream-K; kernels that share it follow each other."""
    blocks = CLUSTERS[1]
    sums = torch.empty(blocks * 128 * 256, device="cuda")
    return sums, torch.zeros(blocks * 2, dtype=torch.int32, device="cuda")
