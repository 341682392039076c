"""Launches of cuda_few_rows_stream.cu and cuda_integers_stream.cu. The kernels are explained there;
tiling.py defines how they divide a product."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, TensorMap, i32, i64
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE

from ..few_rows.cuda_cluster import ACTIVATION
from ..few_rows.tiling import MOST, line_of, sides
from .tiling import GROUP, SLICE, Stream, stream_of

FOLDER = Path(__file__).parent.parent
ROW = 128  # bytes of a row of x, or of a weight of 16 bits, in a stage


def plan(gpu, config, a, b, tf32=False) -> Plan:
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    stream, maps, bytes_ = _dense(gpu, config, of.names, of.weight, of.x)
    m, n = fixed(of.x.shape[0]), of.weight.shape[0]
    args = (*maps, "c", *map(i32, (bytes_, stream.steps, m, n)), *map(i64, of.strides))
    template = CTYPE[a.dtype], stream.name, config["resident"]
    return _planned("few_rows_stream", "matmul_stream", template, stream, args)


def plan_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False) -> Plan:
    stream, maps, bytes_ = _dense(gpu, config, ("weight", "x"), weight, x)
    m, n = fixed(x.shape[0]), weight.shape[0]
    given = {"bias": bias, "gate": gate, "residual": residual}
    optional = (NULL if t is None else name for name, t in given.items())
    args = (*maps, *optional, "y", "z" if keep else NULL)
    args = (*args, *map(i32, (bytes_, stream.steps, m, n)))
    template = (CTYPE[x.dtype], stream.name, config["resident"])
    template = (*template, f"matmul::{ACTIVATION[activation]}")
    return _planned("few_rows_stream", "linear_stream", template, stream, args)


def plan_integers(gpu, config, x, packed, scales, bias, bits) -> Plan:
    (m, k), n = (fixed(x.shape[0]), x.shape[1]), packed.shape[0]
    stream = stream_of(gpu, config, m, n, k, bits)
    row, rows, of_x = 16 * bits, min(stream.rows, n), min(8 * stream.blocks, m)
    copied = 2 * stream.rows // (2 if stream.rows > 128 else 1)  # scales and zero points at a time
    maps = (
        TensorMap("packed", packed.dtype, (k * bits // 8, n, 1), (k * bits // 8,) * 2,
                  (row, rows, 1), row),
        TensorMap("scales", scales.dtype, (2 * n, k // GROUP, 1), (4 * n,) * 2, (copied, 1, 1), 0),
        _rows("x", x, m, of_x),
    )  # fmt: skip
    bytes_ = row * rows + 4 * stream.rows + 2 * ROW * of_x
    args = (*maps, NULL if bias is None else "bias", "y")
    args = (*args, *map(i32, (bytes_, stream.steps, m, n)))
    template = CTYPE[x.dtype], bits, stream.name, config["resident"]
    return _planned("integers_stream", "quantized_stream", template, stream, args)


def _dense(gpu, config, names, weight, x) -> tuple[Stream, tuple[TensorMap, TensorMap], int]:
    """The division, both maps, and the bytes of both that a stage receives. A box is not higher
    than its matrix, because boxes that extend past the tensor load slowly."""
    (n, k), m = weight.shape, fixed(x.shape[0])
    stream = stream_of(gpu, config, m, n, k, 16)
    rows, of_x = min(stream.rows, n), min(8 * stream.blocks, m)
    maps = _rows(names[0], weight, n, rows), _rows(names[1], x, m, of_x)
    return stream, maps, (rows + of_x) * ROW


def _rows(name, t, rows: int, of_box: int) -> TensorMap:
    """A matrix of contiguous rows in boxes of 64 columns."""
    k = t.shape[1]
    stride = 2 * (line_of(t) or k)
    return TensorMap(name, t.dtype, (k, rows, 1), (stride, stride), (SLICE, of_box, 1))


def _planned(file: str, entry: str, template, stream: Stream, args) -> Plan:
    name = f"{entry}<{', '.join(map(str, template))}>"
    kernel = CudaKernel(FOLDER / f"cuda_{file}.cu", name, stream.config["cluster"], emulated=False)
    grid, block = (stream.grid, 1, 1), (stream.threads, 1, 1)
    return Plan((Launch(kernel, grid, args, block, stream.shared),))
