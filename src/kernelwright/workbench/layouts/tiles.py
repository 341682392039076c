"""Tiles of this project's rungs as layouts, beside the index formulas in their sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """A layout that a kernel computes by a formula.

    Attributes:
        text: the layout, as an expression.
        what: what its coordinates and offsets are.
        source: a file in the operators' folder.
        written: parts of that file that compute the index.
        index: the same with the coordinates `i` (first mode) and `j` (the others), in C++.
        divisor: the index counts units that are this much smaller than the layout's.
    """

    text: str
    what: str
    source: str
    written: tuple[str, ...]
    index: str
    divisor: int = 1


#: By name of a rung.
TILES: dict[str, Tile] = {
    "matmul.cuda_mma": Tile(
        "Sw<3,0,3> o (64,8):(8,1)",
        "(line, unit) to the place of a unit of 16 bytes, in lines of 64 16-bit elements",
        "matmul/gemm/cuda_mma.cu",
        ("2 * kLine * line + 16 * (unit ^ line % 8)",),
        "2 * 64 * i + 16 * (j ^ i % 8)",
        divisor=16,
    ),
    "matmul.cuda_wgmma": Tile(
        "Sw<3,0,3> o (64,8):(8,1)",
        "(row, unit) to the place of a unit of 16 bytes: the 128-byte swizzle of TMA and wgmma",
        "matmul/gemm/teaching/cuda_wgmma.cu",
        ("block * 8192 + row * 128 + (u ^ row % 8) * 16",),
        "i * 128 + (j ^ i % 8) * 16",
        divisor=16,
    ),
    "matmul.cuda_wgmma_tma": Tile(
        "Sw<3,3,3> o (64,64):(64,1)",
        "(row, element) to the place of a 16-bit element, in a box of 64 x 64",
        "matmul/gemm/hopper/tile_store.cuh",
        ("row * 128 + ((2 * j + lane / 16) ^ (row % 8)) * 16",),
        "(i * 128 + ((j / 8) ^ (i % 8)) * 16) / 2 + j % 8",
    ),
    "matmul.accumulator": Tile(
        "((4,8),(2,2)):((32,1),(16,8))",
        "(lane, register) to row + 16 column of the 16 x 8 sums of mma.sync.m16n8k16",
        "matmul/gemm/cuda_mma.cu",
        ("8 * r + lane / 4", "8 * s + lane % 4 * 2"),
        "8 * (j / 2) + i / 4 + 16 * (i % 4 * 2 + j % 2)",
    ),
    "permute_copy.cuda_tile": Tile(
        "(32,32):(32,1)",
        "(row, column) of a tile of 32 x 32 words",
        "layout/permute_copy/transpose.cuh",
        ("__shared__ T tile[32][32 + PADDING];",),
        "i * (32 + 0) + j",
    ),
    "permute_copy.cuda_padded": Tile(
        "(32,32):(33,1)",
        "(row, column) of a tile of 32 x 32 words, one word of padding in each row",
        "layout/permute_copy/transpose.cuh",
        ("__shared__ T tile[32][32 + PADDING];",),
        "i * (32 + 1) + j",
    ),
    "permute_copy.cuda_swizzled": Tile(
        "Sw<3,0,6> o (64,8):(8,1)",
        "(row, vector) to the place of a vector of 16 bytes, in rows of 64 16-bit elements",
        "layout/permute_copy/cuda_swizzled.cu",
        ("tile[r][i % 8 ^ (r / W)]",),
        "i * 8 + (j ^ (i / 8))",
    ),
}
