"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import gcd
from kernelwright.contract.eligibility import kind, log2, unsupported_dtype
from kernelwright.ops.embedding.lookup.heuristics import INTEGERS

SIZES = (1, 2, 4, 8)  # bytes of an element that is copied
FEW = 32  # indices of a fiber, up to which each may be compared with all others
MANY = 2**18  # indices
MOST = 2**31 - 1

THREAD = ({"block": 256},)
VEC16 = ({"block": 256, "unroll": 2}, {"block": 128, "unroll": 4})
TRITON = ({"tile": 1024, "num_warps": 4},)
ATOMICS = ({"block": 256},)
SMALL = ({"block": 256},)
# piece: positions of a long run that are added together
SORTED = ({"block": 256, "unroll": 4, "piece": 64},)


def _numbers(index):
    if index.dtype not in INTEGERS:
        return f"index: {index.dtype} is not int32 or int64"
    return None if index.numel() else "index: is empty"


def fits(gpu, index, n=None, **tensor):
    ((name, t),) = tensor.items()  # x or gy
    if t.itemsize not in SIZES:
        return f"{name}: elements of {t.itemsize} bytes are not supported"
    return _numbers(index)


def fits_triton(gpu, index, x, n=None):
    if not (x.dtype.is_floating_point or x.dtype in INTEGERS):
        return f"x: {x.dtype} is neither floating point nor int32 nor int64"
    return fits(gpu, index, x=x)


def fits_add(gpu, index, x=None, src=None, gy=None, n=None):
    """Requirements of kernels that add: all given tensors have the same dtype."""
    given = {name: t for name, t in {"x": x, "src": src, "gy": gy}.items() if t is not None}
    first = next(iter(given.values()))
    for name, t in given.items():
        if why := unsupported_dtype(t.dtype, name):
            return why
        if t.dtype != first.dtype:
            return f"{name}: {t.dtype} is not {first.dtype}"
    return _numbers(index)


def fits_small(gpu, index, **tensors):
    if index.shape[-2] > FEW:
        return f"index: has more than {FEW} elements along the dimension"
    return fits_add(gpu, index, **tensors)


def fits_sorted(gpu, index, x=None, src=None, gy=None, n=None):
    added, name = (src, "src") if gy is None else (gy, "gy")
    if not added.is_contiguous():
        return f"{name}: not contiguous"
    if max(index.numel(), elements(index, x.shape[-2] if n is None else n)) >= MOST:
        return "2^31 elements"
    return fits_add(gpu, index, x=x, src=src, gy=gy)


def elements(index, n: int) -> int:
    """The number of elements of a tensor whose fibers of n elements the index selects from."""
    return math.prod(index.shape[:-2]) * n * index.shape[-1]


def stride_of(x) -> int:
    """Elements between the rows of the last dimension."""
    return rows_view(x.shape, x.stride())[2]


def width(x, index) -> int:
    """Adjacent elements that a thread of the vec16 rung processes: at most 16 bytes of the result,
    along a row or, if rows have one element, along a fiber."""
    m, columns = index.shape[-2:]
    between = stride_of(index)
    if columns == 1 and between != 1:
        return 1
    span = m if columns == 1 else gcd(columns, between)
    if index.align < 16:  # a load of several indices is aligned to all of them
        span = gcd(span, index.align // index.itemsize)
    return gcd(min(8, 16 // x.itemsize), span)


def order(gpu, **specs):
    """A thread per index for few of them, which are fewer than a GPU's threads."""
    few = specs["index"].numel() <= MANY
    return ("cuda_thread", "cuda_vec16") if few else ("cuda_vec16", "cuda_thread")


def order_of_sums(gpu, **specs):
    """None but for few indices of a fiber: the others are at best as fast as PyTorch
    (records/nvidia-h200/gather.backward.jsonl, scatter_add.jsonl)."""
    return ("cuda_small",)


def order_of_gathered(gpu, **specs):
    return ("cuda_vec16",)


def bucket(index, x=None, gy=None, src=None, n=None):
    """Key of a call in the tuned table: dtype, indices and elements by powers of two."""
    t = gy if x is None else x
    of = t.shape[-2] if n is None else n
    return f"{kind(t.dtype)}/{log2(index.numel())}/{log2(elements(index, of))}"
