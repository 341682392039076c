"""Launch of cuda_few_rows_stream.cu, which is explained there."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, Plan, TensorMap, i32
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.matmul.gemm.stream.cuda import ROW, planned, rows_map
from kernelwright.ops.matmul.gemm.stream.tiling import GROUP, stream_of

SOURCE = Path(__file__).with_name("cuda_few_rows_stream.cu")


def plan(gpu, config, x, packed, scales, bias, bits) -> Plan:
    (m, k), n = (fixed(x.shape[0]), x.shape[1]), packed.shape[0]
    stream = stream_of(gpu, config, m, n, k, bits)
    row, rows, of_x = 16 * bits, min(stream.rows, n), min(8 * stream.blocks, m)
    copied = 2 * stream.rows // (2 if stream.rows > 128 else 1)  # scales and zero points at a time
    maps = (
        TensorMap("packed", packed.dtype, (k * bits // 8, n, 1), (k * bits // 8,) * 2,
                  (row, rows, 1), row),
        TensorMap("scales", scales.dtype, (2 * n, k // GROUP, 1), (4 * n,) * 2, (copied, 1, 1), 0),
        rows_map("x", x, m, of_x),
    )  # fmt: skip
    bytes_ = row * rows + 4 * stream.rows + 2 * ROW * of_x
    args = (*maps, NULL if bias is None else "bias", "y")
    args = (*args, *map(i32, (bytes_, stream.steps, m, n)))
    template = CTYPE[x.dtype], bits, stream.name, config["resident"]
    return planned(SOURCE, "quantized_stream", template, stream, args)
