"""Tiles of the Triton rungs: the largest that fit, closest to a config."""

from __future__ import annotations

FLOAT_ROWS = 16
RESERVE = 4096  # bytes of shared memory that Triton uses in addition to tiles


def shape_of(gpu, config, c) -> dict[str, int]:
    """Rows, columns, warps and stages of the forward. float32 products are chains of fused
    multiply-adds; only small tiles of them compile to code of reasonable size."""
    if c.dtype.itemsize == 4:
        return {"rows": FLOAT_ROWS, "cols": FLOAT_ROWS, "warps": 4, "stages": 1}
    shape, wide = dict(config), c.options["D2"] + c.options["DV2"]
    if c.length <= 64:
        shape |= {"rows": 64, "warps": 4}
    while _bytes(shape["rows"], shape["cols"], shape["stages"], wide) > _room(gpu):
        smaller = "stages" if shape["stages"] > 2 else "cols"
        shape[smaller] = shape[smaller] - 1 if smaller == "stages" else shape[smaller] // 2
    return shape


def backward_shape_of(gpu, config, c) -> dict[str, int]:
    """One block of `many` rows is kept in a program, which iterates over blocks of `few` rows."""
    if c.dtype.itemsize == 4:
        return {"many": FLOAT_ROWS, "few": FLOAT_ROWS, "warps": 4, "stages": 1}
    shape, wide = dict(config), c.options["D2"] + c.options["DV2"]
    if wide > 256 or max(c.length, c.s) <= 64:
        shape |= {"many": 64, "few": 32, "warps": 4}
    while _bytes(2 * shape["many"], shape["few"], shape["stages"], wide) > _room(gpu):
        smaller = "stages" if shape["stages"] > 1 else "few"
        shape[smaller] = shape[smaller] - 1 if smaller == "stages" else shape[smaller] // 2
    return shape


def _bytes(rows: int, cols: int, stages: int, wide: int) -> int:
    """Bytes of a block that is kept and a ring of blocks that are iterated over, with 16-bit
    elements."""
    return 2 * (rows * wide // 2 + stages * cols * wide)


def _room(gpu) -> int:
    return gpu.shared_per_block - RESERVE
