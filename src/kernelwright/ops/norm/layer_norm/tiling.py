"""A call in the form that kernels take, and how its rows are distributed over threads: shared by
plans and `choose`.

A config states the target; the functions here turn it into a launch that holds the row, so that
every config is valid for every call that fits the rung.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch

from kernelwright.contract import Scalar, Scratch, TensorSpec, f32, i32, i64, rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2


class Call:
    """A forward of any of the norms, from its arguments' specs.

    Kernels take one list of pointers and numbers. For an absent argument another of the call's
    tensors is passed, and a flag tells the kernel not to read it.
    """

    def __init__(self, args):
        self.args = args
        self.inputs = [args[n] for n in self.read if args.get(n) is not None]
        main = args["h"] if "h" in args else args["x"]
        self.dtype, self.itemsize = main.dtype, main.itemsize
        self.rows, self.cols, _ = rows_view(main.shape, main.strides)
        self.weight, self.bias = args["weight"] is not None, args.get("bias") is not None
        self.center = "bias" in args  # layer_norm; rms_norm has no bias
        self.offset = f32("offset" if "offset" in args else 0.0)

    read = ("x", "residual")

    @property
    def add(self) -> bool:
        """Whether a residual is added first."""
        return "residual" in self.args

    @property
    def pointers(self) -> tuple[str, ...]:
        return (
            "x",
            self._or("residual", "x"),
            self._or("weight", "x"),
            self._or("bias", "x"),
            "y",
            "h" if self.add else "y",
            "mean" if self.center else "rstd",
            "rstd",
        )

    @property
    def numbers(self) -> tuple:
        """Rows, columns, and the step between rows of each tensor in `read`."""
        return tuple(map(i64, (self.rows, self.cols, *self.strides)))

    @property
    def strides(self) -> tuple[int, ...]:
        views = [self.args.get(n) and rows_view(self.args[n].shape, self.args[n].strides)
                 for n in self.read]  # fmt: skip
        return tuple(v[2] if v else 0 for v in views)

    @property
    def dense(self) -> bool:
        """Whether the rows of all tensors that are read are contiguous."""
        return all(s == self.cols for s in self.strides if s)

    @property
    def given(self) -> Scalar:
        """The bits of norm.cuh that say which parameters are given."""
        return i32(self.weight + 2 * self.bias)

    def _or(self, name, other) -> str:
        return name if self.args.get(name) is not None else other

    @property
    def parameter_dtype(self):
        """Dtype of weight and bias; that of the rows if there are none."""
        dtypes = [p.dtype for p in (self.args["weight"], self.args.get("bias")) if p is not None]
        return dtypes[0] if dtypes else self.dtype

    @cached_property
    def width(self) -> int:
        """Number of elements of a row that every access may move together."""
        width = 16 // self.itemsize
        steps = (self.cols, *self.strides)
        parameters = [p for p in (self.args["weight"], self.args.get("bias")) if p is not None]
        while (
            any(s % width for s in steps)
            or any(t.align < width * t.itemsize for t in self.inputs)
            or any(t.align < min(16, width * t.itemsize) for t in parameters)
        ):
            width //= 2
        return width

    @property
    def vectors(self) -> int:
        return self.cols // self.width


class BackwardCall(Call):
    """A backward of any of the norms."""

    read = ("gy", "gh", "x")

    def __init__(self, args):
        super().__init__({**args, "x": args["h"]} if "h" in args else args)

    @property
    def add(self) -> bool:
        """Whether the normalized tensor has a gradient of its own, which is added."""
        return self.args.get("gh") is not None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of those that have a gradient."""
        return ("weight",) * self.weight + ("bias",) * self.bias

    @property
    def pointers(self) -> tuple[str, ...]:
        x = "h" if "h" in self.args else "x"
        return (
            "gy",
            self._or("gh", "gy"),
            x,
            self._or("weight", x),
            "mean" if self.center else "rstd",
            "rstd",
            "gx",
            "weight_parts" if self.weight else "gx",
            "bias_parts" if self.bias else "gx",
        )

    @property
    def parts_and_sums(self) -> tuple[str, ...]:
        """Buffers of the first and of the last parameter, which may be the same one."""
        first, last = self.parameters[0], self.parameters[-1]
        return f"{first}_parts", f"{last}_parts", f"g{first}", f"g{last}"

    def scratch(self, parts: int) -> dict[str, Scratch]:
        """A row of float32 for each part of each parameter's gradient."""
        spec = TensorSpec.contiguous((parts, self.cols), torch.float32)
        return {f"{p}_parts": Scratch(spec) for p in self.parameters}


REGISTERS = 64  # of a thread, for elements of rows
ITEMS = 32  # columns per thread in a backward, each with sums for gweight and gbias
HELD = 16  # columns up to which the threads of a block keep their weights in registers
CLUSTER_COLS = 1024  # minimum number of columns of a row for each block of a cluster
THREADS = 512  # per block; in a backward per multiprocessor, at 128 registers each
CLUSTER = 16  # blocks; more than 8 are not portable
SYSTEM = 1024  # bytes of shared memory that the system reserves per block


class Shape(NamedTuple):
    """How threads share a row: `vectors` per thread, `threads` per block, `blocks` per cluster. For
    a warp, `threads` is the number of lanes."""

    vectors: int
    threads: int
    blocks: int = 1


def warp_forward(c: Call, config) -> tuple[Shape, int] | None:
    """The shape, and how many rows at once: the config's number, limited by a lane's registers."""
    shape = _lanes(c)
    held = shape.vectors * _words(c)
    if held > REGISTERS or shape.vectors * c.width > REGISTERS:
        return None
    room = min(REGISTERS // held, REGISTERS // 2 // (shape.vectors * c.width))
    return shape, max(1, min(config["rows"], room))


def block_forward(c: Call, config, blocks: int = 1) -> Shape | None:
    return _block(c.vectors, config["vectors"], REGISTERS // _words(c), blocks)


def cluster_forward(c: Call, config) -> tuple[Shape, int] | None:
    """A cluster of the config's blocks or, if the row needs it, more; and how many rows at once:
    the config's number, limited by a thread's registers."""
    blocks = config["blocks"]
    while blocks < CLUSTER and block_forward(c, config, blocks) is None:
        blocks *= 2
    shape = block_forward(c, config, blocks)
    if shape is None:
        return None
    return shape, max(1, min(config["rows"], REGISTERS // (shape.vectors * _words(c))))


def cluster_forward_walk(gpu, c: Call, config) -> Walk | None:
    """A cluster of the config's blocks or, if the row needs it, more, with the config's number of
    rows in shared memory, or as many as fit."""
    most = REGISTERS // _words(c)
    aim = min(most, max(1, config["items"] // c.width))
    blocks = config["blocks"]
    while blocks < CLUSTER and _block(c.vectors, aim, aim, blocks) is None:
        blocks *= 2
    shape = _block(c.vectors, aim, most, blocks)
    if shape is None:
        return None
    at_once = min(8, THREADS // shape.threads)
    row = shape.threads * shape.vectors * c.width * c.itemsize * (2 if c.add else 1)
    while True:
        # the moments of four rows from each warp
        room = (
            (gpu.shared_per_block + SYSTEM) // at_once - SYSTEM - 256 - shape.blocks * shape.threads
        )
        rows = min(config["rows"], room // row)
        if rows or at_once == 1:
            break
        at_once //= 2
    return Walk(shape, rows, shape.threads, at_once, rows * row) if rows else None


def _lanes(c: Call) -> Shape:
    lanes = min(32, max(8, next_power_of_2(c.vectors)))
    return Shape(cdiv(c.vectors, lanes), lanes)


def _words(c: Call) -> int:
    """Registers that a forward needs per vector; a single element takes a whole register."""
    return max(1, c.width * c.itemsize // 4) * (2 if c.add else 1)


def _block(n: int, vectors: int, most: int, blocks: int) -> Shape | None:
    """Blocks that hold n vectors: `vectors` per thread or, if the row needs it, up to `most`."""
    threads = min(THREADS, max(32, next_power_of_2(cdiv(n, blocks * vectors))))
    vectors = cdiv(n, blocks * threads)
    return Shape(vectors, threads, blocks) if vectors <= most else None


def clusters_of(gpu, blocks: int) -> int:
    """The number of clusters that run at once with one block per multiprocessor; with n blocks per
    multiprocessor it is n times as many, or a few more.

    A cluster does not extend beyond a group of multiprocessors. On the 132 multiprocessors of an
    H200, cuOccupancyMaxActiveClusters returns 66, 30, 15 and 7 for clusters of 2, 4, 8 and 16,
    which corresponds to seven groups of 16 or 18 and one of 10. One cluster more than run at once
    would make all of them wait for a second wave."""
    return gpu.sms // 2 if blocks == 2 else gpu.sms // 18 * (16 // blocks) + 8 // blocks


class Walk(NamedTuple):
    """How blocks iterate over the rows: `rows` rows in shared memory by teams of `shape`, in blocks
    of `threads` threads, `blocks` blocks per multiprocessor with `shared` bytes each."""

    shape: Shape
    rows: int
    threads: int
    blocks: int
    shared: int


def warp_walk(gpu, c: BackwardCall, config) -> Walk | None:
    shape = _lanes(c)
    if shape.vectors * c.width > ITEMS:
        return None
    # a thread with more columns needs 128 registers
    resident = config["resident"] if shape.vectors * c.width <= 8 else THREADS
    threads = min(resident, config["threads"])
    return _walk(gpu, c, config, shape, threads, resident // threads)


def block_walk(gpu, c: BackwardCall, config, blocks: int = 1) -> Walk | None:
    shape = _block(c.vectors, max(1, config["items"] // c.width), ITEMS // c.width, blocks)
    if shape is None:
        return None
    return _walk(gpu, c, config, shape, shape.threads, min(8, THREADS // shape.threads))


def cluster_walk(gpu, c: BackwardCall, config) -> Walk | None:
    """A cluster of the config's blocks or, if the row needs it, more."""
    blocks = config["blocks"]
    while blocks < CLUSTER and block_walk(gpu, c, config, blocks) is None:
        blocks *= 2
    return block_walk(gpu, c, config, blocks)


def _walk(gpu, c, config, shape, threads, blocks) -> Walk | None:
    """With the config's number of rows, or as many as fit in shared memory."""
    warps, items = threads // 32, shape.vectors * c.width
    held = shape.threads == threads and items <= HELD
    weights = 0 if held else 4 * shape.threads * items
    row = threads * items * c.itemsize * (3 if c.add else 2)
    # the sums of each row, for two iterations; in a cluster for four, because rows overlap
    sums, boxes = (0, 32 * shape.blocks * warps) if shape.blocks > 1 else (16 * warps, 0)
    room = (gpu.shared_per_block + SYSTEM) // blocks - SYSTEM - 256 - weights - boxes
    rows = min(config["rows"], room // (row + sums))
    if rows < 1:
        return _walk(gpu, c, config, shape, threads, blocks // 2) if blocks > 1 else None
    return Walk(shape, rows, threads, blocks, rows * row + weights)
