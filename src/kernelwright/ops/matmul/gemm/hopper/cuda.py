"""Launches of the rungs for Hopper's tensor cores. The kernels are explained in their .cu files;
tiling.py defines which products they support."""

from __future__ import annotations

import math
from pathlib import Path

from kernelwright.contract import (
    NULL,
    CudaKernel,
    Launch,
    Plan,
    TensorMap,
    TensorSpec,
    i32,
    i64,
)
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .tiling import Matrix, clusters_at_once, matrix, multiplying, rows_stride, transposed

FOLDER = Path(__file__).parent
TEACHING = FOLDER.parent / "teaching"
ACTIVATIONS = {"none": "NONE", "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELU_TANH",
               "silu": "SILU"}  # fmt: skip
SLICE, ROW = 64, 128  # elements along k, and their bytes
BOX = 64 * ROW  # bytes of 64 x 64 results, which are stored together
STATIC = 2048  # maximum bytes of static shared memory: barriers and a tile's bias
PLAIN_TILE, PLAIN_THREADS = 128, 256  # cuda_wgmma.cu's kTile and kThreads


def plain(gpu, config, a, b, tf32=False):
    of_a, of_b = operands(a, b)
    (m, k), n = a.shape[-2:], b.shape[-1]
    strides = (i64(of_a.stride), i64(of_b.stride), i64(of_a.batch_stride), i64(of_b.batch_stride))
    source, template = TEACHING / "cuda_wgmma.cu", (CTYPE[a.dtype], of_a.k_major, of_b.k_major)
    kernel = cuda_kernel(source, "matmul_wgmma", *template)
    grid = (cdiv(n, PLAIN_TILE), cdiv(m, PLAIN_TILE), _batch(a))
    args = ("a", "b", "c", i32(m), i32(n), i32(k), *strides)
    return Plan((Launch(kernel, grid, args, (PLAIN_THREADS, 1, 1)),))


def tma(gpu, config, a, b, tf32=False):
    of_a, of_b = operands(a, b)
    (m, k), n = a.shape[-2:], b.shape[-1]
    bn, stages = config["bn"], config["stages"]
    map_a, bytes_a = operand_map("a", of_a, 128)
    map_b, bytes_b = operand_map("b", of_b, bn)
    template = (CTYPE[a.dtype], bn, stages, of_a.k_major, of_b.k_major)
    kernel = cuda_kernel(TEACHING / "cuda_wgmma_tma.cu", "matmul_wgmma_tma", *template)
    numbers = (m, n, cdiv(k, SLICE), bytes_a + bytes_b, int(of_a.batched), int(of_b.batched))
    shared = stages * (_stage_bytes(of_a, 128) + _stage_bytes(of_b, bn)) + 1024
    grid = (cdiv(n, bn), cdiv(m, 128), _batch(a))
    args = (map_a, map_b, "c", *map(i32, numbers))
    return Plan((Launch(kernel, grid, args, (256, 1, 1), shared),))


def persistent(gpu, config, a, b, tf32=False):
    return _product("persistent", gpu, config, a, b)


def pingpong(gpu, config, a, b, tf32=False):
    return _product("pingpong", gpu, config, a, b)


def split(gpu, config, a, b, tf32=False):
    (m, _), n = a.shape, b.shape[1]
    numbers, shared, of_a, of_b, maps = _split_parts(config, a, b, ("a", "b"))
    kernel = _split_kernel("matmul_split", config, a, of_a, of_b)
    args = (*maps, "c", *map(i32, numbers))
    return Plan((_split_launch(kernel, config, m, n, args, shared),))


def persistent_linear(gpu, config, **args):
    return _linear("persistent", gpu, config, **args)


def pingpong_linear(gpu, config, **args):
    return _linear("pingpong", gpu, config, **args)


def split_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    (m, _), n = x.shape, weight.shape[0]
    numbers, shared, of_a, of_b, maps = _split_parts(config, x, transposed(weight), ("x", "weight"))
    epilogue = _epilogue(bias, gate, residual, activation, keep)
    kernel = _split_kernel("linear_split", config, x, of_a, of_b, *epilogue)
    pointers = [name if given else NULL for name, given in (
        ("gate", gate is not None), ("residual", residual is not None), ("z", keep),
        ("bias", bias is not None))]  # fmt: skip
    strides = [0 if t is None else rows_stride(t) for t in (gate, residual)]
    args = (*maps, "y", *pointers, *map(i32, numbers), *map(i64, strides))
    return Plan((_split_launch(kernel, config, m, n, args, shared),))


def _product(kind, gpu, config, a, b):
    of_a, of_b = operands(a, b)
    (m, k), n = a.shape[-2:], b.shape[-1]
    tiles = Tiles(gpu, config, _batch(a), m, n)
    maps, bytes_ = operand_maps(config, of_a, of_b, ("a", "b"))
    kernel = cuda_kernel(
        FOLDER / f"cuda_wgmma_{kind}.cu", f"matmul_{kind}", CTYPE[a.dtype], *_shape(kind, config),
        of_a.k_major, of_b.k_major, cluster=tiles.cluster,
    )  # fmt: skip
    numbers = (m, n, *tiles.order, tiles.count, cdiv(k, SLICE), bytes_)
    batched = (int(of_a.batched), int(of_b.batched))
    out = TensorSpec.contiguous((_batch(a), m, n), a.dtype)
    args = (*maps, result_map("c", out), *map(i32, (*numbers, *batched)))
    return Plan((_launch(kernel, config, tiles, args, of_a, of_b),))


def _linear(kind, gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    of_a, of_b = operands(x, transposed(weight))
    (m, k), n = x.shape, weight.shape[0]
    config = _with_boxes(gpu, config, of_a, of_b, (gate is not None) + (residual is not None), keep)
    tiles = Tiles(gpu, config, 1, m, n)
    maps, bytes_ = operand_maps(config, of_a, of_b, ("x", "weight"))
    kernel = cuda_kernel(
        FOLDER / f"cuda_wgmma_{kind}.cu", f"linear_{kind}", CTYPE[x.dtype], *_shape(kind, config),
        of_a.k_major, of_b.k_major, *_epilogue(bias, gate, residual, activation, keep),
        cluster=tiles.cluster,
    )  # fmt: skip
    out = result_map("y", TensorSpec.contiguous((1, m, n), x.dtype))
    given = {"gate": gate, "residual": residual}
    read = [out if t is None else _rows_map(name, t) for name, t in given.items()]
    kept = result_map("z", TensorSpec.contiguous((1, m, n), x.dtype)) if keep else out
    numbers = (m, n, *tiles.order, tiles.count, cdiv(k, SLICE), bytes_)
    args = (*maps, out, *read, kept, NULL if bias is None else "bias", *map(i32, numbers))
    return Plan((_launch(kernel, config, tiles, args, of_a, of_b),))


class Tiles:
    """C divided into the tiles of a config, and how a launch iterates over them.

    Attributes:
        order: rows and columns of clusters of tiles in one matrix, rows per strip.
        count: number of clusters of tiles. blocks: of the launch. cluster: blocks per cluster.
    """

    def __init__(self, gpu, config, batch: int, m: int, n: int):
        high, wide = config.get("rows", 1), config.get("cols", 1)
        self.cluster = high * wide
        rows, cols = cdiv(cdiv(m, config["bm"]), high), cdiv(cdiv(n, config["bn"]), wide)
        self.order = rows, cols, _strip(gpu, config, m)
        self.count = batch * rows * cols
        self.blocks = min(self.count, clusters_at_once(gpu, self.cluster)) * self.cluster


def _strip(gpu, config, m: int) -> int:
    """Rows of clusters per strip, such that the tiles in flight cover roughly a square of C."""
    tiles = cdiv(m, config["bm"])
    height = max(1, round(math.sqrt(gpu.sms * config["bn"] / config["bm"])))
    return cdiv(cdiv(tiles, cdiv(tiles, height)), config.get("rows", 1))


def _shape(kind, config) -> tuple[int, ...]:
    """The template arguments of a kernel that depend on the config."""
    groups = (multiplying(config),) if kind == "persistent" else ()
    sizes = (config["bm"], config["bn"], config["stages"], config["boxes"])
    return (*sizes, *groups, config.get("rows", 1), config.get("cols", 1))


def _with_boxes(gpu, config, of_a, of_b, loads: int, keep: bool):
    """A config with boxes for the operands and results of two pieces of an epilogue, or of one
    piece if two would leave room for fewer than three stages."""
    for pieces in (2, 1):
        boxes = max(config["boxes"], pieces * (max(loads, 1) + keep))
        for stages in range(config["stages"], 2, -1):
            enough = {**config, "boxes": boxes, "stages": stages}
            if shared_bytes(enough, of_a, of_b) + STATIC <= gpu.shared_per_block:
                return enough
    raise AssertionError(config)


def shared_bytes(config, of_a, of_b) -> int:
    """Bytes of dynamic shared memory. The kernel aligns the ring to a multiple of 1,024."""
    stage = _stage_bytes(of_a, config["bm"]) + _stage_bytes(of_b, config["bn"])
    return config["stages"] * stage + multiplying(config) * config["boxes"] * BOX + 1024


def _launch(kernel, config, tiles, args, of_a, of_b) -> Launch:
    threads = (1 + multiplying(config)) * 128
    shared = shared_bytes(config, of_a, of_b)
    return Launch(kernel, (tiles.blocks, 1, 1), args, (threads, 1, 1), shared)


def _split_parts(config, a, b, names):
    """(numbers, dynamic shared memory, operands and their maps) of a launch that divides k."""
    of_a, of_b = operands(a, b)
    (m, k), n = a.shape, b.shape[1]
    maps, bytes_ = operand_maps(config, of_a, of_b, names)
    rows, cols = cdiv(m, config["bm"]), cdiv(n, config["bn"])
    stage = _stage_bytes(of_a, config["bm"]) + _stage_bytes(of_b, config["bn"])
    others = (config["split"] - 1) * cdiv(config["bn"] // 8, config["split"])
    sums = others * multiplying(config) * 128 * 16
    numbers = (m, n, rows, cols, cdiv(k, SLICE), bytes_)
    return numbers, config["stages"] * stage + sums + 1024, of_a, of_b, maps


def _split_kernel(name, config, a, of_a, of_b, *epilogue) -> CudaKernel:
    sizes = (multiplying(config), config["bn"], config["stages"], config["split"])
    template = (CTYPE[a.dtype], *sizes, of_a.k_major, of_b.k_major, *epilogue)
    return cuda_kernel(FOLDER / "cuda_wgmma_split.cu", name, *template, cluster=config["split"])


def _split_launch(kernel, config, m, n, args, shared) -> Launch:
    tiles = cdiv(m, config["bm"]) * cdiv(n, config["bn"])
    threads = (1 + multiplying(config)) * 128
    return Launch(kernel, (tiles * config["split"], 1, 1), args, (threads, 1, 1), shared)


def _epilogue(bias, gate, residual, activation, keep) -> tuple:
    given = (t is not None for t in (bias, gate, residual))
    return (f"kw::{ACTIVATIONS[activation]}", *given, keep)


def cuda_kernel(source: Path, name, *template, cluster=1) -> CudaKernel:
    parameters = ", ".join(str(t).lower() if isinstance(t, bool) else str(t) for t in template)
    return CudaKernel(source, f"{name}<{parameters}>", cluster, emulated=False)


def operands(a, b) -> tuple[Matrix, Matrix]:
    """A as m rows and B as n rows along k, in either memory order."""
    of_a, of_b = matrix("a", a), matrix("b", transposed(b))
    assert isinstance(of_a, Matrix) and isinstance(of_b, Matrix), (of_a, of_b)
    return of_a, of_b


def _batch(a) -> int:
    return a.shape[0] if a.ndim == 3 else 1


def operand_maps(config, of_a, of_b, names) -> tuple[tuple[TensorMap, TensorMap], int]:
    """The maps of the operands, and the bytes of both that a stage receives."""
    map_a, bytes_a = operand_map(names[0], of_a, config["bm"], config.get("cols", 1))
    map_b, bytes_b = operand_map(names[1], of_b, config["bn"], config.get("rows", 1))
    return (map_a, map_b), bytes_a + bytes_b


def operand_map(name, of: Matrix, width: int, share: int = 1) -> tuple[TensorMap, int]:
    """An operand's map, whose box is what one of `share` blocks loads of `width` rows, and the
    bytes that each of them receives. If the operand has fewer rows, the box is smaller, because
    boxes that extend past the tensor load slowly."""
    if of.k_major:
        rows = width // share if share > 1 else min(width, of.width)
        return tensor_map(name, of, (of.k, of.width), (SLICE, rows)), rows * share * ROW
    return tensor_map(name, of, (of.width, of.k), (64, SLICE // share)), _stage_bytes(of, width)


def tensor_map(name, of: Matrix, shape, box) -> TensorMap:
    batch, step = (of.batch, of.batch_stride) if of.batched else (1, of.stride)
    itemsize = of.dtype.itemsize
    strides = (of.stride * itemsize, step * itemsize)
    return TensorMap(name, of.dtype, (*shape, batch), strides, (*box, 1))


def _stage_bytes(of: Matrix, width: int) -> int:
    """Bytes of an operand in a stage; if the width is contiguous, in units of 64 columns."""
    return (width if of.k_major else cdiv(width, 64) * 64) * ROW


def result_map(name, out: TensorSpec) -> TensorMap:
    """The map of a result of shape (batch, m, n), in boxes of 64 x 64."""
    batch, m, n = out.shape
    strides = (n * out.itemsize, m * n * out.itemsize)
    return TensorMap(name, out.dtype, (n, m, batch), strides, (64, 64, 1))


def _rows_map(name, t: TensorSpec) -> TensorMap:
    """The map of a tensor that an epilogue reads, as `result_map`."""
    (m, n), step = t.shape, rows_stride(t) * t.itemsize
    return TensorMap(name, t.dtype, (n, m, 1), (step, step), (64, 64, 1))
