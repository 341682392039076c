"""sum: the mathematics. y = sum of x over the dimensions `dim`.

Each addition rounds, so the accuracy depends only on the order of the additions. In a chain of
additions the partial sums, and with them the rounding errors, grow with the number of elements; in
a tree each element takes part in log2(n) additions. `noise` derives from this the error that a rung
of this operator may have.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, tensor
from kernelwright.contract.sharding import SUM

EVERY = (*FLOATS, torch.float64)
BENCH_WHOLE = (2**20, 2**22, 2**24, 2**28, 2**30)
# (shape, dim)
BENCH_DIM = (
    ((32768, 1024), -1, "GPT-2 hidden states, longer than a warp"),
    ((8192, 8192), -1, ""),
    ((2048, 131072), -1, "Llama 3 vocabulary, padded"),
    ((8192, 8192), -2, ""),
    ((131072, 768), -2, "GPT-2 bias gradient"),
    ((65536, 4096), -2, "Llama 3 bias gradient"),
)
SWEEP = ({"dim": (-2,)}, {"dim": (-2, -1)})
CASES = (
    *adversarial(dtypes=EVERY, dim=None),
    *adversarial(dtypes=EVERY, dim=(-1,), sweep=SWEEP),
    *(
        case(shape, d, dim=dim)
        for d in EVERY
        for shape, dim in (
            ((), None),
            ((), ()),
            ((4, 33), ()),  # no dimension is summed
            ((3, 5000), None),
            ((3, 5000), (-1,)),
            ((600, 40), (-2,)),
            ((5, 9, 8), (-3, -1)),
            ((5, 9, 8), (-3, -2)),
            ((2, 300, 1), (-2,)),
            ((7, 1, 5), (-2,)),
        )
    ),
    *(
        case((6, 40), d, layout=layout, dim=(-2,))
        for d in EVERY
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((3, 5000), d, values="constant", dim=None) for d in EVERY),
    # several blocks share a sum
    *(case((2, 30_000), torch.float32, dim=dim) for dim in (None, (-1,))),
    *(case((5, 33), d, dim=None, to=torch.float32) for d in (torch.float16, torch.bfloat16)),
    *(case((5, 33), d, dim=dim) for d in (torch.int32, torch.bool) for dim in (None, (-1,), ())),
    *(
        case((n,), d, use="bench", dim=None)
        for n in BENCH_WHOLE
        for d in (torch.bfloat16, torch.float32)
    ),
    *(
        case(shape, d, use="bench", label=label, dim=(dim,))
        for shape, dim, label in BENCH_DIM
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**24,), torch.float16, use="bench", dim=None),
    case((2**24,), torch.float64, use="bench", dim=None),
    *(
        case((2**17 + 1, 16384), torch.bfloat16, use="big", dim=dim)
        for dim in (None, (-1,), (-2,))
    ),
)  # fmt: skip


def every_dim(ndim: int) -> tuple[int, ...]:
    return tuple(range(-ndim, 0))


def result_dtype(x, to=None) -> torch.dtype:
    """As in torch: the input's dtype if it is floating or complex, int64 for integers and bool."""
    return to or (x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64)


def reference(x, dim, to=None):
    # in torch, an empty dim means all dimensions
    return x.sum(dim) if dim else x + 0


def inputs(c, device):
    dim = c.param("dim")
    if c.dtype.is_floating_point:
        x = tensor(c, "x", device)
    else:
        x = tensor(c, "x", device, dtype=torch.float32).mul(2).to(c.dtype)
    return {"x": x, "dim": every_dim(x.ndim) if dim is None else dim, "to": c.param("to")}


def kept_shape(x, dim) -> tuple[int, ...]:
    return tuple(s for i, s in enumerate(x.shape) if i - x.ndim not in dim)


def outputs(x, dim, to=None):
    return (TensorSpec.contiguous(kept_shape(x, dim), result_dtype(x, to)),)


def cost(x, dim, to=None):
    (y,) = outputs(x, dim, to)
    return Cost(reads=(x.nbytes,), writes=(y.nbytes,), flops=x.numel())


def noise(x, dim, to=None):
    """The rounding error of each result for a good order of additions.

    The error of any summation is the sum, over its additions, of the partial sum s_k times a
    relative rounding error |d_k| <= u (Higham, Accuracy and Stability of Numerical Algorithms,
    4.2). If the rounding errors are independent, its root mean square is at most u sqrt(sum of
    s_k^2) (Higham and Mary 2019; Hallman and Ipsen 2022). In a tree over values of random sign, the
    s_k^2 of each of the log2(n) levels add up to the sum of x^2, which gives u sqrt(log2 n) ||x||.
    For values that do not cancel, the error is proportional to their sum and is judged by its ulp,
    as for other operators. A float64 result is compared with a reference of the same precision:
    twice the noise.
    """
    if not x.dtype.is_floating_point:
        return (torch.zeros(kept_shape(x, dim), dtype=torch.float64, device=x.device),)
    n = math.prod(s for i, s in enumerate(x.shape) if i - x.ndim in dim)
    f64 = x.dtype == torch.float64
    u = torch.finfo(torch.float64).eps if f64 else torch.finfo(torch.float32).eps / 2
    norm = torch.linalg.vector_norm(x, dim=dim, dtype=torch.float64) if dim else x.double().abs()
    return (u * math.log2(max(n, 2)) ** 0.5 * norm,)


def gradient(specs, gy):
    """gx is gy, repeated for each element that was added: a view, no kernel."""
    x, dim = specs["x"], specs["dim"]
    shape = [1 if i - x.ndim in dim else s for i, s in enumerate(x.shape)]
    return {"x": gy.reshape(shape).to(x.dtype).expand(x.shape)}


def sharding(args, results):
    """Any dimension: if it is a summed one, each process holds a part of the sum."""
    x, dim = args["x"], args["dim"]
    kept = [d for d in every_dim(x.ndim) if d not in dim]
    for d in every_dim(x.ndim):
        if x.shape[d] != 1:
            yield {"x": x.ndim + d, "y": kept.index(d) if d in kept else SUM}


FORWARD = Operator(
    name="sum",
    schema="(Tensor x, int[] dim, ScalarType? to=None) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    sharding=sharding,
    noise=noise,
    source="torch.sum",
)
