"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .tiling import order_of

#: The template arguments of a tile in cuda_tuned.cu, by the names that configs use.
TILE = ("rows", "cols", "depth", "warp_rows", "warp_cols", "each_rows", "each_cols", "stages",
        "blocks")  # fmt: skip
MMA_DEPTH = 64  # cuda_mma.cu's kDepth
ACTIVATION = {"none": "kNone", "relu": "kRelu", "gelu": "kGelu", "gelu_tanh": "kGeluTanh",
              "silu": "kSilu"}  # fmt: skip


def mma(gpu, config, a, b, tf32=False):
    m, k = a.shape[-2:]
    n, batch = b.shape[-1], a.shape[0] if a.ndim == 3 else 1
    of_a, of_b = order_of(a, -1), order_of(b, -2)
    along = (boolean(of.name == "kAlongK") for of in (of_a, of_b))
    names = ("rows", "cols", "warp_rows", "warp_cols", "stages")
    template = ", ".join((CTYPE[a.dtype], *along, *(str(config[name]) for name in names)))
    warps = config["rows"] // config["warp_rows"] * (config["cols"] // config["warp_cols"])
    strides = (i64(of_a.line), i64(of_b.line), i64(of_a.batch), i64(of_b.batch))
    launch = Launch(
        CudaKernel(_source("mma"), f"matmul_mma<{template}>"),
        grid=(batch * cdiv(m, config["rows"]) * cdiv(n, config["cols"]), 1, 1),
        block=(32 * warps, 1, 1),
        args=("a", "b", "c", i32(m), i32(n), i32(k), *strides),
        shared=2 * MMA_DEPTH * config["stages"] * (config["rows"] + config["cols"]),
    )
    return Plan((launch,))


def tuned(gpu, config, a, b, tf32=False):
    m, k = a.shape[-2:]
    n, batch = b.shape[-1], a.shape[0] if a.ndim == 3 else 1
    of_a, of_b = order_of(a, -1), order_of(b, -2)
    strides = (i64(of_a.line), i64(of_b.line), i64(of_a.batch), i64(of_b.batch))
    args = ("a", "b", "c", i32(m), i32(n), i32(k), *strides)
    return _tuned("matmul_tuned", config, of_a, of_b, (batch, m, n), "", args)


def tuned_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    (m, k), n = x.shape, weight.shape[0]
    of_x, of_weight = order_of(x, -1), order_of(weight, -1)
    given = {"bias": bias, "gate": gate, "residual": residual}
    optional = (NULL if t is None else name for name, t in given.items())
    args = ("x", "weight", *optional, "y", "z" if keep else NULL)
    args += (i32(m), i32(n), i32(k), i64(of_x.line), i64(of_weight.line))
    last = f", matmul::{ACTIVATION[activation]}"
    return _tuned("linear_tuned", config, of_x, of_weight, (1, m, n), last, args)


def _tuned(kernel, config, of_a, of_b, sizes, last, args) -> Plan:
    batch, m, n = sizes
    tile = ", ".join(str(config[name]) for name in TILE)
    out = 4 if n % 4 == 0 else 1
    template = f"Tile<{tile}>, matmul::{of_a.name}, matmul::{of_b.name}, {out}{last}"
    warps = config["rows"] // config["warp_rows"] * (config["cols"] // config["warp_cols"])
    launch = Launch(
        CudaKernel(_source("tuned"), f"{kernel}<{template}>"),
        grid=(batch * cdiv(m, config["rows"]) * cdiv(n, config["cols"]), 1, 1),
        block=(32 * warps, 1, 1),
        args=args,
        shared=shared_of(config, of_a.name, of_b.name),
    )
    return Plan((launch,))


def shared_of(config, *orders: str) -> int:
    """Bytes of the ring of tiles; operands that are contiguous along k have longer rows."""
    widths = zip((config["rows"], config["cols"]), orders, strict=True)
    pitch = sum(width + (4 if order == "kAlongK" else 0) for width, order in widths)
    return 4 * config["stages"] * config["depth"] * pitch


def _source(trick: str) -> Path:
    return Path(__file__).with_name(f"cuda_{trick}.cu")
