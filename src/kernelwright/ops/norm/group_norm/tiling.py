"""A call as kernels see it, and how its groups are laid over blocks: what plans and heuristics.py
share."""

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
STATIC = 2048  # bytes of shared memory that kernels declare, at most
SYSTEM = 1024  # bytes of shared memory that each block costs beside its own
VECTORS = 64  # of a piece of a row, which one warp takes, at most
UNROLL = 4  # vectors of a thread in flight in launches that hold nothing
SPLIT_VECTORS = 32 * UNROLL  # of a piece there


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
        """Elements between the rows of each stream, which has elements."""
        return [rows_view(t.shape, t.strides)[2] for t in self.streams]

    @property
    def sets(self) -> int:
        return self.samples * self.groups

    @property
    def parameters(self):
        return [p for p in (self.weight, self.bias) if p is not None]

    @property
    def parameter_dtype(self):
        """Of weight and bias; the elements' own where there are none."""
        found = self.parameters
        return found[0].dtype if found else self.dtype

    @property
    def given(self) -> Scalar:
        """norm.cuh's bits of the parameters that there are."""
        return i32((self.weight is not None) + 2 * (self.bias is not None))

    @property
    def pointers(self) -> tuple[str, str]:
        """Of weight and bias; for one that is absent x, which the kernel does not read as such."""
        return tuple(n if self.args[n] is not None else "x" for n in ("weight", "bias"))

    folder = Path(__file__).parent  # of the kernels' files
    variance = "mean"  # where a kernel writes the variance: of a group, it does not

    @property
    def leaves(self) -> bool:
        """A backward's first launch leaves sums of channels, for a second to add."""
        return bool(self.parameters) and not self.per_set

    def gradients(self, other: str) -> tuple[str, str]:
        """Gradients of weight and bias; for one that is absent `other`, which the kernel does not
        write as such."""
        return (
            other if self.weight is None else "gweight",
            other if self.bias is None else "gbias",
        )

    def gradients_of_sets(self, other: str = "gx") -> tuple[str, str]:
        """The same, of parameters that a whole set has: the first launch writes them."""
        return self.gradients(other) if self.per_set else (other, other)

    @cached_property
    def width(self) -> int:
        """Elements that every access may move at once."""
        row = self.channels if self.last else self.length
        found = math.gcd(16 // self.itemsize, row, *self.steps)
        return math.gcd(found, *(t.align // self.itemsize for t in self.streams))

    def norm(self) -> str:
        """The first template argument of the kernels."""
        types = f"{CTYPE[self.dtype]}, {CTYPE[self.parameter_dtype]}"
        return f"kw::SetNorm<{types}, {boolean(self.silu)}, {boolean(self.per_set)}>"

    def pieces(self, vectors: int = VECTORS) -> Pieces:
        """A group's channels as rows; pieces of up to `vectors` vectors, all but the last equal."""
        step = self.per * self.length
        count, piece = cut(self, vectors)
        return Pieces(
            self.groups * step, step, self.length, self.groups, self.per, self.length, count, piece
        )


def cut(c: Call, vectors: int) -> tuple[int, int]:
    """How many pieces of a row there are, and the elements of one."""
    row = c.length // c.width
    count = cdiv(row, vectors)
    return count, cdiv(row, count) * c.width


class Pieces(NamedTuple):
    """sets.cuh's Sets: `rows` rows of a set, in `pieces` pieces of `piece` elements each."""

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
    """`blocks` blocks that hold a set's pieces, in `shared` bytes each."""

    pieces: Pieces
    blocks: int
    shared: int


def cluster_of(gpu, c: Call, config) -> Cluster | None:
    """Of the config's blocks or, if the group needs it, more; None if no cluster holds it."""
    pieces = c.pieces()
    blocks = config["blocks"]
    while blocks <= CLUSTER:
        held = cdiv(pieces.items, blocks) * pieces.piece * c.itemsize * len(c.streams)
        if held + STATIC <= gpu.shared_per_block:
            return Cluster(pieces, blocks, held)
        blocks *= 2
    return None


class Slab(NamedTuple):
    """`channels` channels of a sample, whole groups and whole vectors, of which `blocks` blocks
    hold the rows in `shared` bytes each."""

    channels: int
    blocks: int
    shared: int


def slab_channels(c: Call, threads: int, size: int) -> list[int]:
    """Channels of a slab: whole groups and vectors that divide all channels and for which a block
    has threads. First the fewest whose rows have `size` bytes, or the most there are; then fewer
    and fewer."""
    unit = math.lcm(c.per, c.width)
    fit = [k * unit for k in range(1, c.channels // unit + 1)
           if c.channels // unit % k == 0 and k * unit <= threads * c.width]  # fmt: skip
    first = next((i for i, n in enumerate(fit) if n * c.itemsize >= size), len(fit) - 1)
    return fit[first::-1] if fit else []


def slab_of(gpu, c: Call, config) -> Slab | None:
    """Of the config's blocks or, if the slab needs it, more; a smaller slab where sixteen do not
    hold it; None if they hold none."""
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
    """Bytes of a block: its vectors, and cuda_channels.cu's sums of channels and groups."""
    at_once = threads // (channels // c.width)
    vectors = cdiv(cdiv(c.length, blocks), at_once) * threads
    groups = channels // c.per
    sums = 4 * at_once * channels + 4 * channels + 16 * groups + 8 * blocks * groups
    return vectors * c.width * c.itemsize * len(c.streams) + sums


class Split(NamedTuple):
    """A set's share of a grid: `blocks` blocks; of a slab of `channels` channels in `shared` bytes
    each, where channels lie side by side."""

    blocks: int
    channels: int = 0
    shared: int = 0


def split_of(gpu, c: Call, config) -> Split:
    """Blocks for the config's number on each multiprocessor, as long as each has a piece for every
    warp."""
    wanted = cdiv(gpu.sms * config["blocks"], c.sets)
    return Split(max(1, min(wanted, cdiv(c.pieces(SPLIT_VECTORS).items, config["threads"] // 32))))


def channels_split_of(gpu, c: Call, config) -> Split | None:
    """The same for slabs of as many channels as a block has threads for."""
    threads = config["threads"]
    fit = slab_channels(c, threads, c.channels * c.itemsize)
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
