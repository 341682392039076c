"""Launch parameters of `cuda_superset`. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._superset import WORDS, Team, out_of_step, team, touched

from .heuristics import _fits_cuda
from .tiling import SYSTEM, BackwardCall, Call, Shape, Walk

CONFIGS = ({"vectors": 4}, {"vectors": 2})  # per thread
LARGEST = 512  # threads per block in a backward
ITEMS = 16  # columns per thread in a backward, each with a weight and two sums
# items: per thread, fewer for short rows; rows: in shared memory, fewer if they do not fit;
# resident: threads of a multiprocessor for which registers must suffice
CONFIGS_BACKWARD = (
    {"items": 16, "rows": 3, "resident": 640},
    {"items": 8, "rows": 4, "resident": 768},
)


def team_of(c: Call, config) -> Team | None:
    return team(max(map(touched, c.inputs)), config["vectors"], WORDS * (2 if c.add else 1))


def walk(gpu, c: BackwardCall, config) -> Walk | None:
    """How blocks iterate over the rows in a backward."""
    width = 16 // c.itemsize
    vectors = min(config["items"], ITEMS) // width
    n = cdiv(c.cols, width)
    threads = 32 * cdiv(cdiv(n, vectors), 32)
    if threads > LARGEST:
        vectors = ITEMS // width
        threads = 32 * cdiv(cdiv(n, vectors), 32)
    if threads > LARGEST:
        return None
    vectors = cdiv(n, threads)
    blocks = max(1, min(16, config["resident"] // threads))
    row = (vectors * threads + 1) * 16 * (3 if c.add else 2)
    while True:  # two sums of each of 16 warps, for two iterations
        room = (gpu.shared_per_block + SYSTEM) // blocks - SYSTEM - 256
        rows = min(config["rows"], room // row)
        if rows >= 2:
            return Walk(Shape(vectors, threads), rows, threads, blocks, rows * row)
        if blocks == 1:
            return None
        blocks -= 1


_fits = _fits_cuda(lambda gpu, c: team_of(c, CONFIGS[0]), "a block's registers")
_fits_backward = _fits_cuda(
    lambda gpu, c: all(walk(gpu, c, config) for config in CONFIGS_BACKWARD) or None,
    "a block's shared memory",
)


def fits(gpu, **args):
    return _fits(gpu, **args) or _off(Call(args))


def fits_backward(gpu, **args):
    return _fits_backward(gpu, **args) or _off(BackwardCall(args))


def _off(c: Call) -> str | None:
    """Why the tensors of a call cannot be moved in 16-byte vectors."""
    args = c.args
    for name in ("weight", "bias"):
        if args.get(name) is not None and args[name].align < 16:
            return f"{name}: its memory is not aligned to 16 bytes"
    return out_of_step({n: args[n] for n in c.read if args.get(n) is not None})


def choose_backward(gpu, **args):
    """Fewer columns per thread for rows that fit in a warp, so that more of them are in flight."""
    return CONFIGS_BACKWARD[1 if BackwardCall(args).cols <= 1024 else 0]


def choose(gpu, **args):
    """Four vectors per thread; two for short rows, so that all lanes of a warp have some."""
    c = Call(args)
    return CONFIGS[1 if max(map(touched, c.inputs)) <= 64 else 0]
