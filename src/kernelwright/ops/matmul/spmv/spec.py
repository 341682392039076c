"""spmv: the mathematics. y = A x, where A is stored by compressed rows (CSR)."""

from __future__ import annotations

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor
from kernelwright.contract.rounding import U

F32, _, BF16 = FLOATS
#: Distributions of row lengths: nearly equal, a power law, all nonzeros in one row, or none.
KINDS = ("even", "power", "one", "none")


def _of(m: int, n: int, mean: int, kind: str, dtype: torch.dtype, **params) -> Case:
    return case((m, n), dtype, kind=kind, mean=mean, **params)


CASES = (
    *(_of(m, n, mean, kind, d) for d in FLOATS for kind in KINDS
      for m, n, mean in ((300, 200, 7), (1, 50, 40), (70, 1, 1))),
    *(_of(600, 5000, 20, "power", d, index="long") for d in FLOATS),
    *(_of(40, 9000, 150, "one", d) for d in FLOATS),
    *(_of(m, n, 3, "even", d) for d in FLOATS for m, n in ((0, 5), (5, 0))),
    *(_of(60, 70, 5, "even", d, values=v) for d in FLOATS for v in ("large", "nan", "inf")),
    *(_of(2**20, 2**20, 16, kind, F32, use="bench", label=label)
      for kind, label in (("even", "random"), ("power", "power law"))),
    *(_of(60, 70, 5, "even", d, layout=x) for d in FLOATS
      for x in ("sliced", "permuted", "offset")),
    _of(2**16, 2**16, 3, "even", F32, use="big"),
)  # fmt: skip


def inputs(c, device):
    m, n = c.shape
    index = torch.int64 if c.param("index") == "long" else torch.int32
    lengths = _lengths(c)
    count = int(lengths.sum())
    values = tensor(c, "values", device, shape=(count,))
    x = _vector(c, n, device)
    if device == "meta":
        rows, columns = (torch.empty(s, dtype=index, device=device) for s in (m + 1, count))
    else:
        g = generator(c.seed + 1, "cpu")
        columns = torch.randint(max(n, 1), (count,), generator=g).to(index).to(device)
        rows = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0))).to(index)
        rows = rows.to(device)
        special = {"large": 60.0, "nan": float("nan"), "inf": float("inf")}.get(c.values)
        if special is not None:
            x[n // 2] = special
    return {"values": values, "x": x, "rows": rows, "columns": columns}


def _vector(c: Case, n: int, device: str) -> torch.Tensor:
    """x, with a stride or an unaligned start if the case's layout says so."""
    if c.layout == "offset":
        return tensor(c, "x", device, shape=(n + 1,))[1:]
    if c.layout == "contiguous":
        return tensor(c, "x", device, shape=(n,))
    return tensor(c, "x", device, shape=(n, 2))[:, 0]


def _lengths(c: Case) -> torch.Tensor:
    """The nonzeros of each row, at most as many as columns; the same for every seed."""
    (m, n), mean, kind = c.shape, c.param("mean"), c.param("kind")
    g = generator(0, "cpu")
    lengths = torch.zeros(m, dtype=torch.int64)
    if n == 0 or kind == "none" or m == 0:
        return lengths
    if kind == "even":
        return torch.randint(2 * mean + 1, (m,), generator=g).clamp(max=n)
    if kind == "one":
        lengths[m // 2] = min(m * mean, n)
        return lengths
    ranks = torch.randperm(m, generator=g) + 1
    return (mean * m / (1 + torch.tensor(float(m)).log()) / ranks).long().clamp(max=n)


def reference(rows, columns, values, x):
    return values.new_zeros(rows.numel() - 1).index_add(
        0, row_of_each(rows, columns), values * x[columns.long()]
    )


def row_of_each(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """The row of each nonzero."""
    each = torch.arange(rows.numel() - 1, device=rows.device)
    return each.repeat_interleave(rows.diff(), output_size=columns.numel())


def outputs(rows, columns, values, x):
    return (TensorSpec.contiguous((rows.shape[0] - 1,), values.dtype),)


def cost(rows, columns, values, x):
    (y,) = outputs(rows, columns, values, x)
    reads = tuple(t.numel() * t.dtype.itemsize for t in (rows, columns, values, x))
    return Cost(reads, (y.nbytes,), 2 * values.numel())


def noise(rows, columns, values, x):
    """A chain of additions per row: u sqrt((length + 1) / 2) times the root of the sum of the
    squared terms."""
    squares = reference(rows, columns, values.double().square(), x.double().square())
    chain = ((rows.diff().double() + 1) / 2).clamp(min=1).sqrt()
    return ((U * chain * squares.sqrt()).nan_to_num(0, 0, 0),)


OPERATOR = Operator(
    name="spmv",
    schema="(Tensor rows, Tensor columns, Tensor values, Tensor x) -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    source="torch.mv of a matrix in CSR",
)
