"""Launches of the CUDA C++ rung."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, f64, i32, i64
from kernelwright.contract.arithmetic import cdiv, gcd
from kernelwright.contract.template_args import CTYPE

from .heuristics import heads, vector
from .spec import same_order


def vec16(gpu, config, **args):
    return _vec16(config, ("q", "k"), ("yq", "yk"), args)


def vec16_backward(gpu, config, **args):
    return _vec16(config, ("gyq", "gyk"), ("gq", "gk"), args)


def _vec16(config, given, results, args):
    x, y = heads(args)
    rotated, interleaved = args["rotary_dim"], args["interleaved"]
    positions = args["positions"]
    table = args["cos"] if positions is None else positions
    width = vector(x, y, rotated, interleaved)
    pairs = max(width // 2, 1) if interleaved else width
    template = (
        CTYPE[x.dtype],
        CTYPE[table.dtype],
        positions is not None,
        pairs,
        width,
        _table_vector(table, args["sin"], pairs) if positions is None else 1,
        config["heads"],
        config["block"],
        interleaved,
    )
    batch, heads_q, tokens, dims = x.shape
    groups = cdiv(heads_q, config["heads"]) + cdiv(y.shape[1], config["heads"])
    per_token = groups * dims // (2 * pairs)
    chunk = min(batch * tokens, 2**31 // per_token)  # tokens whose threads fit in 32 bits
    strides = [s for t in (x, y, same_order(x), same_order(y)) for s in _strides(t)]
    launch = Launch(
        CudaKernel(Path(__file__).with_name("cuda_vec16.cu"), _kernel(template)),
        grid=(cdiv(chunk * per_token, config["block"]), cdiv(batch * tokens, chunk), 1),
        block=(config["block"], 1, 1),
        args=(
            *given,
            *(("cos", "sin") if positions is None else ("positions", "positions")),
            *results,
            *map(i32, (heads_q, y.shape[1], dims, rotated, tokens, batch * tokens, chunk)),
            *map(i64, strides),
            *map(i64, (*table.stride()[:2], table.stride(-1))),
            f64("base"),
            f32(-1.0 if "gyq" in args else 1.0),
        ),
    )
    return Plan((launch,))


def _strides(t) -> tuple[int, int, int]:
    batch, head, token, _ = t.stride()
    return batch, head, token


def _table_vector(cos, sin, pairs: int) -> int:
    """Elements of the tables that one instruction reads."""
    if cos.stride(-1) != 1:
        return 1
    between = [s for n, s in zip(cos.shape[:-1], cos.stride()[:-1], strict=True) if n > 1]
    aligned = min(cos.align, sin.align) // cos.itemsize
    return gcd(16 // cos.itemsize, pairs, aligned, *between)


def _kernel(template) -> str:
    shown = (str(p).lower() if isinstance(p, bool) else str(p) for p in template)
    return f"rope_vec16<{', '.join(shown)}>"
