"""Launches of cuda_few_rows_stream.cu. The kernel is explained there; tiling.py defines how it
divides a product."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, TensorMap, i32, i64
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE

from ..few_rows.cuda_cluster import ACTIVATION
from ..few_rows.tiling import MOST, line_of, sides
from .tiling import SLICE, Stream, stream_of

SOURCE = Path(__file__).with_name("cuda_few_rows_stream.cu")
ROW = 128  # bytes of a row of x, or of a weight of 16 bits, in a stage


def plan(gpu, config, a, b, tf32=False) -> Plan:
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    stream, maps, bytes_ = _dense(gpu, config, of.names, of.weight, of.x)
    m, n = fixed(of.x.shape[0]), of.weight.shape[0]
    args = (*maps, "c", *map(i32, (bytes_, stream.steps, m, n)), *map(i64, of.strides))
    template = CTYPE[a.dtype], stream.name, config["resident"]
    return planned(SOURCE, "matmul_stream", template, stream, args)


def plan_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False) -> Plan:
    stream, maps, bytes_ = _dense(gpu, config, ("weight", "x"), weight, x)
    m, n = fixed(x.shape[0]), weight.shape[0]
    given = {"bias": bias, "gate": gate, "residual": residual}
    optional = (NULL if t is None else name for name, t in given.items())
    args = (*maps, *optional, "y", "z" if keep else NULL)
    args = (*args, *map(i32, (bytes_, stream.steps, m, n)))
    template = (CTYPE[x.dtype], stream.name, config["resident"])
    template = (*template, f"matmul::{ACTIVATION[activation]}")
    return planned(SOURCE, "linear_stream", template, stream, args)


def _dense(gpu, config, names, weight, x) -> tuple[Stream, tuple[TensorMap, TensorMap], int]:
    """The division, both maps, and the bytes of both that a stage receives. A box is not higher
    than its matrix, because boxes that extend past the tensor load slowly."""
    (n, k), m = weight.shape, fixed(x.shape[0])
    stream = stream_of(gpu, config, m, n, k, 16)
    rows, of_x = min(stream.rows, n), min(8 * stream.blocks, m)
    maps = rows_map(names[0], weight, n, rows), rows_map(names[1], x, m, of_x)
    return stream, maps, (rows + of_x) * ROW


def rows_map(name, t, rows: int, of_box: int) -> TensorMap:
    """A matrix of contiguous rows in boxes of 64 columns."""
    k = t.shape[1]
    stride = 2 * (line_of(t) or k)
    return TensorMap(name, t.dtype, (k, rows, 1), (stride, stride), (SLICE, of_box, 1))


def planned(source: Path, entry: str, template, stream: Stream, args) -> Plan:
    name = f"{entry}<{', '.join(map(str, template))}>"
    kernel = CudaKernel(source, name, stream.config["cluster"], emulated=False)
    grid, block = (stream.grid, 1, 1), (stream.threads, 1, 1)
    return Plan((Launch(kernel, grid, args, block, stream.shared),))
