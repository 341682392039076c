"""cumsum and cumprod: the mathematics. y_i = x_0 + ... + x_i along one dimension, or the product.

`exclusive` omits x_i, `reverse` runs from the end. If `starts` is given, sums restart at each
element that it marks, which is the first of a segment in either direction. The gradient of a
running sum is the running sum of gy in the other direction. That of a running product needs no
division: gx_i = y_{i-1} r_i with r_i = gy_i + x_{i+1} r_{i+1}, which is also valid for zeros.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, adversarial, generator, tensor
from kernelwright.contract.rounding import U, root_levels
from kernelwright.contract.sharding import Rows

EVERY = (*FLOATS, torch.float64)
# (rows, columns)
BENCH = {
    (2**28,): "one long row",
    (2**20,): "",
    (4096, 65536): "",
    (32768, 1024): "",
    (64, 128256): "cumulative probabilities of Llama 3's vocabulary, batch 64",
}
SWEEP = (
    {"exclusive": True},
    {"reverse": True},
    {"exclusive": True, "reverse": True},
    {"segments": 7},
    {"segments": 7, "reverse": True},
    {"segments": 3, "exclusive": True},
    {"dim": -2},
    {"dim": -2, "segments": 5, "reverse": True},
)
# sums beyond the integers that float32 or float64 can hold
INTEGERS = (
    {"dim": -1},
    {"dim": -1, "segments": 7},
    {"dim": -1, "segments": 7, "exclusive": True, "reverse": True},
    {"dim": -2, "segments": 2},
)
CASES = (
    *adversarial(dtypes=EVERY, dim=-1),
    *(
        case(shape, d, dim=-1, **params)
        for d in (torch.float32, torch.bfloat16)
        for shape in ((5, 33), (4, 3, 64))
        for params in SWEEP
        if "dim" not in params
    ),
    *(
        case(shape, torch.float32, **params)
        for shape in ((5, 33), (4, 3, 64), (2, 300, 40))
        for params in SWEEP
        if "dim" in params
    ),
    *(case((2, 70, 3, 5), d, dim=-3) for d in EVERY),
    *(case((6, 40), d, layout=layout, dim=-2) for d in FLOATS for layout in ("sliced", "permuted")),
    case((3, 5), torch.int64, dim=-1),
    case((2, 3000), torch.int64, dim=-1),
    *(case((5, 33), torch.int64, large=True, **params) for params in INTEGERS),
    # several tiles
    *(case((40_000,), d, dim=-1) for d in (torch.float32, torch.bfloat16)),
    case((2, 20_001), torch.float32, dim=-1, reverse=True),
    case((20_001,), torch.float32, dim=-1, segments=500),
    *(
        case(shape, d, use="bench", label=label, dim=-1)
        for shape, label in BENCH.items()
        for d in (torch.bfloat16, torch.float32)
    ),
    case((16, 2048, 1024), torch.float32, use="bench", label="a middle dimension", dim=-2),
    case((2**28,), torch.int64, use="bench", dim=-1),
    case((2**28,), torch.float32, use="bench", dim=-1, segments=1000),
    # exact integers: the errors of PyTorch's own sums of floats are too large to compare with
    case((2**31 + 5,), torch.int64, use="big", dim=-1),
    case((2**17 + 1, 16384), torch.int64, use="big", dim=-1),
)  # fmt: skip
CASES_PRODUCT = (
    *adversarial(dtypes=EVERY, dim=-1),
    *(case(shape, torch.float32, dim=-2) for shape in ((5, 33), (4, 3, 64), (3, 0), (2, 300, 40))),
    *(case((9, 300), d, dim=-1, zeros=True) for d in EVERY),
    case((3, 5), torch.int64, dim=-1),
    case((2, 9_001), torch.float32, dim=-1),
    *(
        case(shape, d, use="bench", dim=-1)
        for shape in ((2**28,), (32768, 1024))
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**17 + 1, 16384), torch.float32, use="big", dim=-1),
)
# With infinities a sum of products depends on its grouping: which gradients are infinite and which
# are NaN is not specified (PyTorch's are NaN).
FLOATING_PRODUCT = tuple(
    c for c in CASES_PRODUCT if c.dtype.is_floating_point and c.values not in ("inf", "neginf_row")
)
FLOATING = tuple(c for c in CASES if c.dtype.is_floating_point)


def running(op, x, dim):
    """Running totals by Hillis and Steele's steps: differentiable, without divisions."""
    x, step = x.movedim(dim, -1), 1
    while step < x.shape[-1]:
        x = torch.cat((x[..., :step], op(x[..., :-step], x[..., step:])), -1)
        step *= 2
    return x.movedim(-1, dim)


def shifted(x, dim, first):
    """x moved one position further along a dimension, with `first` in front."""
    if x.shape[dim] == 0:
        return x
    kept = x.narrow(dim, 0, x.shape[dim] - 1)
    return torch.cat((torch.full_like(x.narrow(dim, 0, 1), first), kept), dim)


def segmented(x, begins, dim):
    """Running sums that restart where `begins`."""
    x, begins, step = x.movedim(dim, -1), begins.movedim(dim, -1), 1
    while step < x.shape[-1]:
        earlier = x[..., :-step].masked_fill(begins[..., step:], 0)  # exact for integers
        x = torch.cat((x[..., :step], x[..., step:] + earlier), -1)
        begins = torch.cat((begins[..., :step], begins[..., step:] | begins[..., :-step]), -1)
        step *= 2
    return x.movedim(-1, dim)


def sums(x, starts, dim, exclusive, reverse, total):
    """A running sum in any direction, by `total(x, begins, dim)`, which sums forwards."""
    if x.ndim == 0:
        return torch.zeros_like(x) + 0 * x if exclusive else x + 0
    begins = starts
    if reverse:
        x = x.flip(dim)
        if starts is not None:  # in reverse, the element before a first one begins a segment
            begins = shifted(starts.flip(dim), dim, False)
    y = total(x, begins, dim)
    if exclusive:
        y = shifted(y, dim, 0)
        if begins is not None:
            y = y.masked_fill(begins, 0)
    return y.flip(dim) if reverse else y


def _exact(x, begins, dim):
    return x.cumsum(dim) if begins is None else segmented(x, begins, dim)


def reference(x, starts, dim, exclusive=False, reverse=False):
    return sums(x, starts, dim, exclusive, reverse, _exact)


def backward_reference(gy, starts, dim, exclusive=False, reverse=False):
    return sums(gy, starts, dim, exclusive, not reverse, _exact)


#: Elements of a dimension up to which the gradient of a product is computed one by one.
SEQUENTIAL = 4096


def product_reference(x, dim):
    return x.cumprod(dim)


def product_backward_reference(gy, x, y, dim):
    if x.ndim == 0:
        return gy + 0 * x
    n = x.shape[dim]
    before = shifted(y, dim, 1.0).movedim(dim, -1)
    g, x = gy.movedim(dim, -1), x.movedim(dim, -1)
    if n <= SEQUENTIAL:
        r, products = torch.zeros_like(g[..., 0]) if n else None, []
        for i in range(n - 1, -1, -1):
            r = g[..., i] + (x[..., i + 1] * r if i + 1 < n else 0.0)
            products.append(before[..., i] * r)
        return torch.stack(products[::-1], -1).movedim(-1, dim) if n else gy + 0 * x
    return (before * recurrence(g, x.roll(-1, -1))).movedim(-1, dim)


def recurrence(b, a):
    """r_i = b_i + a_i r_(i+1) along the last dimension, 0 after its end, in log2(n) steps. Each
    joins the maps of two neighbouring parts; products of a may overflow that no r contains."""
    step = 1
    while step < b.shape[-1]:
        b = torch.cat((b[..., :-step] + a[..., :-step] * b[..., step:], b[..., -step:]), -1)
        a = torch.cat((a[..., :-step] * a[..., step:], a[..., -step:]), -1)
        step *= 2
    return b


def _filled(c, name, device):
    if c.dtype.is_floating_point:
        return tensor(c, name, device)
    drawn = tensor(c, name, device, dtype=torch.float32)
    return drawn.mul(2.0**24 if c.param("large") else 2).to(c.dtype) << (
        33 if c.param("large") else 0
    )


def _starts(c, device):
    """About `segments` first elements per row, at random positions."""
    many = c.param("segments")
    if many is None:
        return None
    draw = torch.empty(c.shape, device=device)
    if device != "meta":
        draw.uniform_(generator=generator(c.seed + 11, device))
    return draw < many / max(c.shape[c.param("dim")], 1)


def _options(c, device):
    return {
        "starts": _starts(c, device),
        "dim": c.param("dim"),
        "exclusive": c.param("exclusive", False),
        "reverse": c.param("reverse", False),
    }


def inputs(c, device):
    return {"x": _filled(c, "x", device), **_options(c, device)}


def backward_inputs(c, device):
    return {"gy": tensor(c, "gy", device), **_options(c, device)}


def product_inputs(c, device):
    x = _filled(c, "x", device)
    if c.param("zeros") and device != "meta":  # rows with 0, 1, ... zeros
        for row in range(x.shape[0]):
            x[row, 3 : 3 + 17 * row : 17] = 0
    return {"x": x, "dim": c.param("dim")}


def product_backward_inputs(c, device):
    x = product_inputs(c, device)["x"]
    y = torch.empty_like(x) if device == "meta" else x.cumprod(c.param("dim"))
    return {"gy": tensor(c, "gy", device), "x": x, "y": y, "dim": c.param("dim")}


def outputs(dim, x=None, gy=None, **options):
    t = x if gy is None else gy
    return (TensorSpec.contiguous(t.shape, t.dtype),)


def cost(dim, starts=None, x=None, gy=None, **options):
    t = x if gy is None else gy
    flags = () if starts is None else (t.numel(),)
    return Cost(reads=(t.nbytes, *flags), writes=(t.nbytes,), flops=t.numel())


def noise(dim, starts=None, exclusive=False, reverse=False, x=None, gy=None):
    """The rounding error of a tree sum over the elements of a result: u sqrt(log2 n) ||x|| (Higham,
    Accuracy and Stability of Numerical Algorithms, 4.2, with independent rounding errors). A
    float64 result is compared with a chain of sums, whose error is u ||all running sums||."""
    t, back = (x, reverse) if gy is None else (gy, not reverse)
    if not t.dtype.is_floating_point:
        return (torch.zeros(t.shape, dtype=torch.float64, device=t.device),)

    def size(terms):
        square = terms.double().square()
        return sums(square, starts, dim, exclusive, back, _exact).clamp_min(0).sqrt()

    levels = root_levels(t.shape[dim] if t.ndim else 1)
    if t.dtype != torch.float64:
        return (U * levels * size(t),)
    eps = torch.finfo(torch.float64).eps
    chain = sums(t, starts, dim, False, back, _exact)
    return (eps * (levels * size(t) + size(chain)),)


def _unit(t):
    return U if t.itemsize < 8 else torch.finfo(torch.float64).eps


def product_noise(x, dim):
    """Up to n rounding errors, each relative to the product: u sqrt(n) |y|."""
    if not x.dtype.is_floating_point:
        return (torch.zeros(x.shape, dtype=torch.float64, device=x.device),)
    n = max(x.shape[dim] if x.ndim else 1, 1)
    return (_unit(x) * n**0.5 * x.double().cumprod(dim).abs(),)


def product_backward_noise(gy, x, y, dim):
    """The terms of r are products of up to n factors: u sqrt(2 n) times the sum of their sizes."""
    n = max(x.shape[dim] if x.ndim else 1, 1)
    size = product_backward_reference(gy.double().abs(), x.double().abs(), y.double().abs(), dim)
    return (_unit(x) * (2 * n) ** 0.5 * size,)


def product_backward_cost(gy, x, y, dim):
    return Cost(reads=(gy.nbytes,) * 3, writes=(gy.nbytes,), flops=4 * gy.numel())


def _reduced(args):
    ndim = next(args[k].ndim for k in ("gy", "x") if k in args)
    return (args["dim"] if args["dim"] < 0 else args["dim"] - ndim,)


FORWARD = Operator(
    name="cumsum",
    schema="(Tensor x, Tensor? starts, int dim, bool exclusive=False, bool reverse=False) "
    "-> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(_reduced),
    noise=noise,
    source="torch.cumsum; Blelloch, Prefix Sums and Their Applications, for segments",
)
BACKWARD = Operator(
    name="cumsum.backward",
    schema="(Tensor gy, Tensor? starts, int dim, bool exclusive=False, bool reverse=False) "
    "-> (Tensor gx)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=FLOATING,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(_reduced),
    noise=noise,
    source="autograd of torch.cumsum",
)
PRODUCT = Operator(
    name="cumprod",
    schema="(Tensor x, int dim) -> (Tensor y)",
    reference=product_reference,
    inputs=product_inputs,
    cases=CASES_PRODUCT,
    cost=cost,
    outputs=outputs,
    layout="rows",
    sharding=Rows(_reduced),
    noise=product_noise,
    source="torch.cumprod",
)
PRODUCT_BACKWARD = Operator(
    name="cumprod.backward",
    schema="(Tensor gy, Tensor x, Tensor y, int dim) -> (Tensor gx)",
    reference=product_backward_reference,
    inputs=product_backward_inputs,
    cases=FLOATING_PRODUCT,
    cost=product_backward_cost,
    outputs=lambda gy, x, y, dim: (TensorSpec.contiguous(gy.shape, gy.dtype),),
    layout="rows",
    sharding=Rows(_reduced),
    noise=product_backward_noise,
    source="autograd of torch.cumprod, without its division",
)
