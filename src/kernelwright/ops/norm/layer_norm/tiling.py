"""A call as kernels see it, and how its rows are laid over threads: what plans and `choose` share.

A config says what to aim at; the functions here turn it into a launch that holds the row, so that
every config takes every call that fits.
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
        self.center = "bias" in args  # a layer_norm: rms_norm takes none
        self.offset = f32("offset" if "offset" in args else 0.0)

    read = ("x", "residual")

    @property
    def add(self) -> bool:
        """A residual is added first."""
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
        """Rows of all that is read lie one after another."""
        return all(s == self.cols for s in self.strides if s)

    @property
    def given(self) -> Scalar:
        """norm.cuh's bits of the parameters that there are."""
        return i32(self.weight + 2 * self.bias)

    def _or(self, name, other) -> str:
        return name if self.args.get(name) is not None else other

    @property
    def parameter_dtype(self):
        """Of weight and bias; the rows' own where there are none."""
        found = [p.dtype for p in (self.args["weight"], self.args.get("bias")) if p is not None]
        return found[0] if found else self.dtype

    @cached_property
    def width(self) -> int:
        """Elements of a row that every access may move at once."""
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
        """What was normalised receives a gradient of its own, to be added."""
        return self.args.get("gh") is not None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those that have a gradient."""
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
        """Of the first parameter and of the last, which may be the same."""
        first, last = self.parameters[0], self.parameters[-1]
        return f"{first}_parts", f"{last}_parts", f"g{first}", f"g{last}"

    def scratch(self, parts: int) -> dict[str, Scratch]:
        """A row of float32 for each part of each parameter's gradient."""
        spec = TensorSpec.contiguous((parts, self.cols), torch.float32)
        return {f"{p}_parts": Scratch(spec) for p in self.parameters}


REGISTERS = 64  # of a thread, for the elements of rows
ITEMS = 32  # columns of a thread in a backward, each with its sums for gweight and gbias
HELD = 16  # of them, up to which a block's threads keep their weights in registers
CLUSTER_COLS = 1024  # columns of a row that each block of a cluster gets, at least
THREADS = 512  # of a block; in a backward of a multiprocessor, at 128 registers each
CLUSTER = 16  # blocks; more than 8 are not portable
SYSTEM = 1024  # bytes of shared memory that each block costs beside its own


class Shape(NamedTuple):
    """How threads share a row: `vectors` a thread, `threads` a block, `blocks` a cluster. Of a
    warp, `threads` are lanes."""

    vectors: int
    threads: int
    blocks: int = 1


def warp_forward(c: Call, config) -> tuple[Shape, int] | None:
    """With how many rows at once: the config's, as far as a lane's registers reach."""
    shape = _lanes(c)
    held = shape.vectors * _words(c)
    if held > REGISTERS or shape.vectors * c.width > REGISTERS:
        return None
    room = min(REGISTERS // held, REGISTERS // 2 // (shape.vectors * c.width))
    return shape, max(1, min(config["rows"], room))


def block_forward(c: Call, config, blocks: int = 1) -> Shape | None:
    return _block(c.vectors, config["vectors"], REGISTERS // _words(c), blocks)


def cluster_forward(c: Call, config) -> tuple[Shape, int] | None:
    """Of the config's blocks or, if the row needs it, more. With how many rows at once: the
    config's, as far as a thread's registers reach."""
    blocks = config["blocks"]
    while blocks < CLUSTER and block_forward(c, config, blocks) is None:
        blocks *= 2
    shape = block_forward(c, config, blocks)
    if shape is None:
        return None
    return shape, max(1, min(config["rows"], REGISTERS // (shape.vectors * _words(c))))


def cluster_forward_walk(gpu, c: Call, config) -> Walk | None:
    """Of the config's blocks or, if the row needs it, more. With the config's rows in shared
    memory, or as many as fit."""
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
        # moments of four rows from each warp
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
    """Registers that a forward takes for a vector; an element alone takes a whole one."""
    return max(1, c.width * c.itemsize // 4) * (2 if c.add else 1)


def _block(n: int, vectors: int, most: int, blocks: int) -> Shape | None:
    """Blocks that hold n vectors, `vectors` a thread or, if the row needs it, up to `most`."""
    threads = min(THREADS, max(32, next_power_of_2(cdiv(n, blocks * vectors))))
    vectors = cdiv(n, blocks * threads)
    return Shape(vectors, threads, blocks) if vectors <= most else None


def clusters_of(gpu, blocks: int) -> int:
    """Clusters that run at once, a block on each multiprocessor; with n blocks on each, n times as
    many, or a few more.

    A cluster stays inside a group of multiprocessors. cuOccupancyMaxActiveClusters says 66, 30, 15
    and 7 clusters of 2, 4, 8 and 16 on the 132 of an H200: as if seven groups had 16 or 18 of
    them, and one 10. One cluster more than run at once makes all wait for a second wave."""
    return gpu.sms // 2 if blocks == 2 else gpu.sms // 18 * (16 // blocks) + 8 // blocks


class Walk(NamedTuple):
    """How blocks walk over the rows: `rows` in shared memory by teams of `shape`, in blocks of
    `threads`, of which `blocks` stand on a multiprocessor with `shared` bytes each."""

    shape: Shape
    rows: int
    threads: int
    blocks: int
    shared: int


def warp_walk(gpu, c: BackwardCall, config) -> Walk | None:
    shape = _lanes(c)
    if shape.vectors * c.width > ITEMS:
        return None
    # of more columns a thread needs 128 registers
    resident = config["resident"] if shape.vectors * c.width <= 8 else THREADS
    threads = min(resident, config["threads"])
    return _walk(gpu, c, config, shape, threads, resident // threads)


def block_walk(gpu, c: BackwardCall, config, blocks: int = 1) -> Walk | None:
    shape = _block(c.vectors, max(1, config["items"] // c.width), ITEMS // c.width, blocks)
    if shape is None:
        return None
    return _walk(gpu, c, config, shape, shape.threads, min(8, THREADS // shape.threads))


def cluster_walk(gpu, c: BackwardCall, config) -> Walk | None:
    """Of the config's blocks or, if the row needs it, more."""
    blocks = config["blocks"]
    while blocks < CLUSTER and block_walk(gpu, c, config, blocks) is None:
        blocks *= 2
    return block_walk(gpu, c, config, blocks)


def _walk(gpu, c, config, shape, threads, blocks) -> Walk | None:
    """With the config's rows, or as many as shared memory holds."""
    warps, items = threads // 32, shape.vectors * c.width
    held = shape.threads == threads and items <= HELD
    weights = 0 if held else 4 * shape.threads * items
    row = threads * items * c.itemsize * (3 if c.add else 2)
    # sums of each row: of two turns; of a cluster of four, in which rows follow each other
    sums, boxes = (0, 32 * shape.blocks * warps) if shape.blocks > 1 else (16 * warps, 0)
    room = (gpu.shared_per_block + SYSTEM) // blocks - SYSTEM - 256 - weights - boxes
    rows = min(config["rows"], room // (row + sums))
    if rows < 1:
        return _walk(gpu, c, config, shape, threads, blocks // 2) if blocks > 1 else None
    return Walk(shape, rows, threads, blocks, rows * row + weights)
