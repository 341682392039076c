"""Which products the rungs for few rows support, and their configs. Imports no kernel language.

In c = a b either operand may have few rows: in x w^T it is a; in a matrix times a vector it is b,
with few columns. The other operand is called the weight: it has many long rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelwright.contract import Config, Gpu, TensorSpec
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import unsupported_dtype

from ..hopper.tiling import transposed

RING = 165_888  # bytes of shared memory for the largest tile
FEW, MOST = 8, 64  # maximum rows of x in a thread's registers, and on tensor cores
HALVES = (torch.float16, torch.bfloat16)
ROWS, SLICE = 128, 128  # kRows and kSlice of few_rows.cuh
THREADS = 256
#: Blocks per multiprocessor: one with a long ring of slices, or two with shorter rings.
CONFIGS = ({"resident": 1}, {"resident": 2})
STAGES = (2, 3, 4, 5, 6, 8)
MOST_ROWS = 2**31 - 1024


@dataclass(frozen=True)
class Sides:
    """The operands of a product for few rows, each as rows along k.

    Attributes:
        weight, x: of shape (n, k) and (m, k).
        names: of the operator's arguments, that of the weight first.
        strides: elements of the result between rows of the weight, and between rows of x.
    """

    weight: TensorSpec
    x: TensorSpec
    names: tuple[str, str]
    strides: tuple[int, int]


def sides(a, b, most: int) -> Sides | str:
    """Both operands of a b as weight and x, or why neither has few rows."""
    if a.ndim != 2:
        return "a batch"
    n = b.shape[1]
    if a.shape[0] <= most and a.shape[0] <= n:
        return Sides(transposed(b), a, ("b", "a"), (1, n))
    if n <= most:
        return Sides(a, transposed(b), ("a", "b"), (n, 1))
    return f"{min(a.shape[0], n)} rows are more than {most}"


def line_of(t: TensorSpec) -> int:
    """Elements between the rows of a matrix; 0 for a single row."""
    return t.stride(0) if t.shape[0] > 1 else 0


def fits_thread(gpu, a, b, tf32=False):
    operands = sides(a, b, FEW)
    return (
        operands
        if isinstance(operands, str)
        else unsupported_dtype(a.dtype) or _sizes(operands.weight)
    )


def fits_vectors(gpu, a, b, tf32=False):
    """Requirements of the rungs that load 16 bytes along k."""
    operands = sides(a, b, FEW)
    return operands if isinstance(operands, str) else _vectors(operands)


def fits_tensor_cores(gpu, a, b, tf32=False):
    operands = sides(a, b, MOST)
    return (
        operands
        if isinstance(operands, str)
        else fits_memory(gpu) or _halves(operands) or _vectors(operands)
    )


def fits_memory(gpu: Gpu) -> str | None:
    """Why a GPU cannot hold the ring of slices of the largest tile."""
    if gpu.shared_per_block < RING:
        return f"a block takes {RING} bytes of shared memory, of {gpu.shared_per_block}"
    return None


def fits_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    return _linear(x, weight, FEW) or _plain(bias, gate, residual)


def fits_linear_tensor_cores(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    operands = Sides(weight, x, ("weight", "x"), (1, weight.shape[0]))
    return (
        fits_memory(gpu)
        or _halves(operands)
        or _linear(x, weight, MOST)
        or _plain(bias, gate, residual)
    )


def _linear(x, weight, most: int) -> str | None:
    if x.shape[0] > most:
        return f"{x.shape[0]} rows are more than {most}"
    return _vectors(Sides(weight, x, ("weight", "x"), (1, weight.shape[0])))


def _plain(*read: TensorSpec | None) -> str | None:
    """Why an epilogue's operands cannot be read with the result's indices."""
    if all(t is None or t.is_contiguous() for t in read):
        return None
    return "bias, gate and residual are not all contiguous"


def _halves(of: Sides) -> str | None:
    if of.x.dtype not in HALVES or of.weight.dtype != of.x.dtype:
        return f"{of.weight.dtype} by {of.x.dtype}: not both float16 or both bfloat16"
    return None


def _vectors(of: Sides) -> str | None:
    if why := unsupported_dtype(of.x.dtype):
        return why
    for name, t in zip(of.names, (of.weight, of.x), strict=True):
        each = 16 // t.itemsize
        if t.stride(1) != 1 and t.shape[1] > 1:
            return f"{name}: has no neighbours along k"
        if t.shape[1] % each or line_of(t) % each or t.align < 16:
            return f"{name}: its lines along k are not multiples of 16 bytes"
    return _sizes(of.weight)


def _sizes(weight: TensorSpec) -> str | None:
    n, k = weight.shape
    if max(n, k) > MOST_ROWS or cdiv(n, ROWS) * cdiv(k, SLICE) >= 2**31:
        return f"a weight of {n} x {k} is more than 32-bit indices count"
    return None


def power_of_two(m: int) -> int:
    """The number of rows of x for which a kernel is compiled."""
    return 1 << (m - 1).bit_length()


@dataclass(frozen=True)
class Shape:
    """Template arguments of few_rows.cuh, and values that follow from them.

    Attributes:
        blocks: of 8 rows of x. stages: slices per ring. resident: blocks per multiprocessor.
        shared: bytes of dynamic shared memory. grid: blocks of the launch. tiles: of the weight.
    """

    blocks: int
    stages: int
    resident: int
    shared: int
    grid: int
    tiles: int

    @property
    def partial(self) -> int:
        """Floats of the tiles that blocks share: two tiles per block."""
        return self.grid * 2 * ROWS * 8 * self.blocks


def shape_of(gpu: Gpu, config: Config, m: int, n: int, k: int, weight_bytes: int) -> Shape:
    """The shape for a slice of `weight_bytes` of the weight in shared memory. Two blocks per
    multiprocessor share its memory and registers, which is possible with at most 16 rows of x."""
    blocks = power_of_two(cdiv(m, 8))
    resident = config["resident"] if blocks <= 2 else 1
    stage, sums = weight_bytes + 8 * blocks * SLICE * 2, 2 * 8 * blocks * (ROWS + 4) * 4
    room = (gpu.shared_per_block - (resident - 1) * 2048) // resident - sums
    stages = max(s for s in STAGES if s * stage <= room or s == STAGES[0])
    tiles = cdiv(n, ROWS)
    grid = min(gpu.sms * resident, tiles * cdiv(k, SLICE))
    return Shape(blocks, stages, resident, stages * stage + sums, grid, tiles)
