"""The kernels of this folder with their template arguments: what a launch of each looks like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SMS = 132  # of an H200
CLUSTERS = {1: SMS, 2: 66, 3: 39, 4: 30}  # that an H200 runs at once, by their blocks
K = 64  # of a slab, in elements
SWIZZLED = 128  # bytes of a row in shared memory


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Grid:
    """Blocks of a launch, the tiles of C (rows and columns of clusters, rows of a strip), and how
    many tiles stream-K cuts along k."""

    blocks: int
    order: tuple[int, int, int]
    shared_tiles: int = 0


@dataclass(frozen=True)
class Persistent:
    """Tiles of bm x bn; `stages` slabs in flight; `buffers` boxes of 64 x 64 results for each warp
    group that multiplies; clusters of rows x cols blocks."""

    bm: int
    bn: int
    stages: int
    buffers: int
    rows: int = 1
    cols: int = 1
    overlap: bool = False  # may start before the kernel in front of it has ended
    source, kernel, mark = HERE / "persistent.cu", "matmul_persistent", ""

    def __str__(self) -> str:
        tile = f"{self.mark}{self.bm}x{self.bn} s{self.stages} b{self.buffers}"
        return f"{tile} {self.rows}x{self.cols}" + (" pdl" if self.overlap else "")

    def expression(self, dtype: str, a_k: bool, b_k: bool, epilogue: str) -> str:
        """The kernel's C++ name; a_k, b_k: k is contiguous in the operand."""
        numbers = (self.bm, self.bn, self.stages, self.buffers, *self._sharing)
        return named(self.kernel, dtype, (*numbers, self.rows, self.cols), a_k, b_k, epilogue)

    @property
    def blocks(self) -> int:
        return self.rows * self.cols

    @property
    def groups(self) -> int:
        return 1 if self.bm == 64 else 2

    @property
    def _sharing(self) -> tuple[int, ...]:
        return (self.groups,)

    @property
    def threads(self) -> int:
        return 128 * (1 + self.groups)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return ring(self.bm, self.bn, self.stages) + self.groups * self.buffers * 64 * SWIZZLED

    @property
    def least_k(self) -> int:
        return 1

    def grid(self, m: int, n: int, k: int, clusters: int) -> Grid:
        """Of a product on a device that runs that many clusters at once."""
        rows, cols = self._tiles(m, n)
        return Grid(min(rows * cols, clusters) * self.blocks, (rows, cols, self._strip(m)))

    def _tiles(self, m: int, n: int) -> tuple[int, int]:
        return cdiv(cdiv(m, self.bm), self.rows), cdiv(cdiv(n, self.bn), self.cols)

    def _strip(self, m: int) -> int:
        """Rows of clusters of a strip: those in flight cover about a square of C."""
        tiles = cdiv(m, self.bm)
        height = max(1, round(math.sqrt(SMS * self.bn / self.bm)))
        return cdiv(cdiv(tiles, cdiv(tiles, height)), self.rows)


class Pingpong(Persistent):
    source, kernel, mark = HERE / "pingpong.cu", "matmul_pingpong", "pp "
    groups, _sharing = 2, ()


class StreamK(Persistent):
    source, kernel, mark = HERE / "stream.cu", "matmul_stream", "sk "
    groups, _sharing = 2, ()

    def grid(self, m: int, n: int, k: int, clusters: int) -> Grid:
        rows, cols = self._tiles(m, n)
        tiles = rows * cols
        clusters = max(1, min(clusters, tiles * cdiv(k, K) // 4))  # four slabs each, or fewer
        shared = tiles if tiles < clusters else tiles % clusters and clusters + tiles % clusters
        return Grid(clusters * self.blocks, (rows, cols, self._strip(m)), shared)


@dataclass(frozen=True)
class Split:
    """Tiles of 128 x bn, whose k the `split` blocks of a cluster share."""

    bn: int
    stages: int
    split: int
    overlap: bool = False
    source, kernel = HERE / "split.cu", "matmul_split"
    bm, threads, rows, cols = 128, 384, 1, 1

    def __str__(self) -> str:
        name = f"split{self.split} 128x{self.bn} s{self.stages}"
        return name + (" pdl" if self.overlap else "")

    def expression(self, dtype: str, a_k: bool, b_k: bool, epilogue: str) -> str:
        numbers = (self.bn, self.stages, self.split)
        return named(self.kernel, dtype, numbers, a_k, b_k, epilogue)

    @property
    def blocks(self) -> int:
        return self.split

    @property
    def shared(self) -> int:
        parcel = (self.split - 1) * cdiv(self.bn // 8, self.split) * 256 * 16
        return ring(self.bm, self.bn, self.stages) + parcel

    @property
    def least_k(self) -> int:
        """Each block has a slab."""
        return K * (self.split - 1) + 1

    def grid(self, m: int, n: int, k: int, clusters: int) -> Grid:
        rows, cols = cdiv(m, self.bm), cdiv(n, self.bn)
        return Grid(rows * cols * self.split, (rows, cols, rows))


Config = Persistent | Split


def ring(bm: int, bn: int, stages: int) -> int:
    """Bytes of the slabs; where n is contiguous, columns of B come 64 at a time. The kernel begins
    it at a multiple of 1,024."""
    return stages * (bm + cdiv(bn, 64) * 64) * SWIZZLED + 1024


def named(kernel: str, dtype: str, numbers: tuple, a_k: bool, b_k: bool, epilogue: str) -> str:
    flags = (str(x).lower() for x in (a_k, b_k))
    return f"{kernel}<{', '.join((dtype, *map(str, numbers), *flags, epilogue))}>"
