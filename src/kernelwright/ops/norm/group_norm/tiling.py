"""A call in the form that kernels take, and how its groups are distributed over blocks: shared by
plans and heuristics.py."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from struct import pack
from typing import NamedTuple

from kernelwright.contract import Scalar, i32, packed, rows_view
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

CLUSTER = 16  # blocks; more than 8 are not portable
STATIC = 2048  # maximum bytes of static shared memory of the kernels
SYSTEM = 1024  # bytes of shared memory that the system reserves per block
VECTORS = 64  # maximum number of vectors in a piece of a row, which one warp processes
UNROLL = 4  # vectors that a thread has in flight in launches that keep no data
SPLIT_VECTORS = 32 * UNROLL  # vectors per piece in these launches


class Call:
    """A forward or backward of group_norm, from its arguments' specs."""

    def __init__(self, args):
        self.args = args
        x = args["x"]
        self.streams = [args[n] for n in ("x", "gy") if n in args]
        self.dtype, self.itemsize = x.dtype, x.itemsize
        self.last, self.groups = args["channels_last"], args["groups"]
        self.samples = x.shape[0]
        self.length, self.channels = x.shape[1:] if self.last else x.shape[:0:-1]
        self.per = self.channels // max(self.groups, 1)
        self.weight, self.bias = args["weight"], args["bias"]
        self.silu, self.per_set = args["silu"], False

    @property
    def steps(self) -> list[int]:
        """Elements between the rows of each stream; the streams have elements."""
        return [rows_view(t.shape, t.strides)[2] for t in self.streams]

    @property
    def sets(self) -> int:
        return self.samples * self.groups

    @property
    def parameters(self):
        return [p for p in (self.weight, self.bias) if p is not None]

    @property
    def parameter_dtype(self):
        """Dtype of weight and bias; that of the elements if there are none."""
        found = self.parameters
        return found[0].dtype if found else self.dtype

    @property
    def given(self) -> Scalar:
        """The bits of norm.cuh that say which parameters are given."""
        return i32((self.weight is not None) + 2 * (self.bias is not None))

    @property
    def pointers(self) -> tuple[str, str]:
        """Pointers to weight and bias; x for an absent one, which the kernel then does not read."""
        return tuple(n if self.args[n] is not None else "x" for n in ("weight", "bias"))

    folder = Path(__file__).parent  # of the kernels' files
    variance = "mean"  # what a kernel writes the variance to; group_norm's kernels do not

    @property
    def leaves(self) -> bool:
        """Whether a backward's first launch writes channel sums for a second launch to add."""
        return bool(self.parameters) and not self.per_set

    def gradients(self, other: str) -> tuple[str, str]:
        """Gradients of weight and bias; `other` for an absent one, which the kernel then does not
        write."""
        return (
            other if self.weight is None else "gweight",
            other if self.bias is None else "gbias",
        )

    def gradients_of_sets(self, other: str = "gx") -> tuple[str, str]:
        """The same for parameters that apply to a whole set: the first launch writes them."""
        return self.gradients(other) if self.per_set else (other, other)

    @cached_property
    def width(self) -> int:
        """Number of elements that every access may move together."""
        row = self.channels if self.last else self.length
        found = math.gcd(16 // self.itemsize, row, *self.steps)
        return math.gcd(found, *(t.align // self.itemsize for t in self.streams))

    def norm(self) -> str:
        """The first template argument of the kernels."""
        types = f"{CTYPE[self.dtype]}, {CTYPE[self.parameter_dtype]}"
        return f"kw::SetNorm<{types}, {boolean(self.silu)}, {boolean(self.per_set)}>"

    def pieces(self, vectors: int = VECTORS) -> Pieces:
        """A group's channels as rows, in pieces of at most `vectors` vectors, equal except the
        last."""
        step = self.per * self.length
        count, piece = cut(self, vectors)
        return Pieces(
            self.groups * step, step, self.length, self.groups, self.per, self.length, count, piece
        )


def cut(c: Call, vectors: int) -> tuple[int, int]:
    """The number of pieces of a row, and the elements of one."""
    row = c.length // c.width
    count = cdiv(row, vectors)
    return count, cdiv(row, count) * c.width


class Pieces(NamedTuple):
    """Sets of sets.cuh: `rows` rows per set, in `pieces` pieces of `piece` elements each."""

    outer_step: int
    set_step: int
    row_step: int
    per: int
    rows: int
    length: int
    pieces: int
    piece: int

    def scalar(self) -> Scalar:
        return packed(pack("<3q5i4x", *self))

    @property
    def items(self) -> int:
        return self.rows * self.pieces


class Cluster(NamedTuple):
    """`blocks` blocks that hold the pieces of a set, in `shared` bytes each."""

    pieces: Pieces
    blocks: int
    shared: int


def cluster_of(gpu, c: Call, config) -> Cluster | None:
    """A cluster of the config's blocks or, if the group needs it, more; None if no cluster holds
    it."""
    pieces = c.pieces()
    blocks = config["blocks"]
    while blocks <= CLUSTER:
        held = cdiv(pieces.items, blocks) * pieces.piece * c.itemsize * len(c.streams)
        if held + STATIC <= gpu.shared_per_block:
            return Cluster(pieces, blocks, held)
        blocks *= 2
    return None


class Slab(NamedTuple):
    """`channels` channels of a sample, in whole groups and whole vectors; `blocks` blocks hold
    their rows in `shared` bytes each."""

    channels: int
    blocks: int
    shared: int


def slab_channels(c: Call, threads: int, size: int) -> list[int]:
    """Numbers of channels of a slab that are whole groups and vectors, divide the number of all
    channels, and need no more threads than a block has. The first is the smallest whose rows have
    `size` bytes, or the largest there is; smaller ones follow in descending order."""
    unit = math.lcm(c.per, c.width)
    fit = [k * unit for k in range(1, c.channels // unit + 1)
           if c.channels // unit % k == 0 and k * unit <= threads * c.width]  # fmt: skip
    first = next((i for i, n in enumerate(fit) if n * c.itemsize >= size), len(fit) - 1)
    return fit[first::-1] if fit else []


def slab_of(gpu, c: Call, config) -> Slab | None:
    """A slab in a cluster of the config's blocks or, if it needs more, of more; a smaller slab if
    sixteen blocks do not hold it; None if they hold none."""
    threads = config["threads"]
    for channels in slab_channels(c, threads, config["slab"]):
        blocks = config["blocks"]
        while blocks <= CLUSTER:
            shared = slab_shared(c, channels, blocks, threads)
            if shared + STATIC <= gpu.shared_per_block:
                return Slab(channels, blocks, shared)
            blocks *= 2
    return None


def slab_shared(c: Call, channels: int, blocks: int, threads: int) -> int:
    """Bytes per block: its vectors, and the sums of channels and groups of cuda_channels.cu."""
    at_once = threads // (channels // c.width)
    vectors = cdiv(cdiv(c.length, blocks), at_once) * threads
    groups = channels // c.per
    sums = 4 * at_once * channels + 4 * channels + 16 * groups + 8 * blocks * groups
    return vectors * c.width * c.itemsize * len(c.streams) + sums


class Split(NamedTuple):
    """The blocks of a set: `blocks` of them; channels last, of a slab of `channels` channels, with
    `shared` bytes each."""

    blocks: int
    channels: int = 0
    shared: int = 0


def split_of(gpu, c: Call, config) -> Split:
    """As many blocks as give each multiprocessor the config's number, if every warp still has a
    piece."""
    wanted = cdiv(gpu.sms * config["blocks"], c.sets)
    return Split(max(1, min(wanted, cdiv(c.pieces(SPLIT_VECTORS).items, config["threads"] // 32))))


def channels_split_of(gpu, c: Call, config) -> Split | None:
    """The same for slabs of the config's size."""
    threads = config["threads"]
    fit = slab_channels(c, threads, config["slab"])
    if not fit:
        return None
    channels = fit[0]
    slabs, groups = c.samples * (c.channels // channels), channels // c.per
    at_once = threads // (channels // c.width)
    wanted = cdiv(gpu.sms * config["blocks"], slabs)
    blocks = max(1, min(wanted, cdiv(c.length, at_once * UNROLL)))
    sums = at_once * channels + channels + 2 * groups
    return Split(blocks, channels, 4 * max(sums, 3 * max(threads, groups)))


def slabs_scalar(c: Call, channels: int) -> Scalar:
    """slabs.cuh's Slabs."""
    steps = c.steps if len(c.steps) == 2 else c.steps * 2
    return packed(pack("<3q3i4x", c.length, *steps, c.channels, channels, c.per))
