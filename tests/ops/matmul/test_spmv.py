"""Sparse matrix times vector: meaning, gradient, errors, and matrices that cover every path."""

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import ladder, launcher
from support.publics import DEVICE, randn


def csr(m, n, density=0.2, dtype=torch.float64, index=torch.int64):
    dense = randn(m, n, dtype=dtype) * (randn(m, n, seed=1, dtype=dtype) > 1 - density)
    sparse = dense.to_sparse_csr()
    return dense, torch.sparse_csr_tensor(
        sparse.crow_indices().to(index), sparse.col_indices().to(index), sparse.values(), (m, n)
    )


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(30, 20), (1, 20), (30, 1), (3, 0), (0, 3)])
def test_means_what_torch_means(shape, index):
    dense, sparse = csr(*shape, index=index)
    x = randn(shape[1], dtype=torch.float64, seed=2).requires_grad_()
    y, want = kw.spmv(sparse, x), dense @ x
    torch.testing.assert_close(y, want)
    g = randn(*want.shape, dtype=torch.float64, seed=3)
    torch.testing.assert_close(torch.autograd.grad(y, x, g), torch.autograd.grad(want, x, g))


@pytest.mark.parametrize(
    "lengths",
    [
        [5000],  # one row of several blocks
        [0] * 3000 + [4000] + [0] * 3000,
        [2048, 2048, 1, 0, 4095],  # rows that end where parts do
        [1] * 5000,
        [2047, 0, 0, 6000, 3],
    ],
    ids=["one", "amid", "edges", "ones", "mixed"],
)
@pytest.mark.parametrize("rung", ["cuda_merge", "cuda_warp"])
def test_rows_across_parts(lengths, rung):
    """Small integers, whose sums are exact in any order."""
    counts = torch.tensor(lengths)
    rows = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0))).int()
    columns = torch.arange(int(counts.sum()), dtype=torch.int32) % 97
    values, x = (columns % 5).float() - 2, torch.arange(97.0) % 7
    args = {"rows": rows, "columns": columns, "values": values, "x": x}
    args = {k: v.to(DEVICE) for k, v in args.items()}
    y = launcher(ladder("spmv"), args, rung)(*args.values())
    want = torch.zeros(len(lengths)).index_add(
        0, torch.arange(len(lengths)).repeat_interleave(counts), values * x[columns.long()]
    )
    assert torch.equal(y.cpu(), want)


@pytest.mark.parametrize(
    ("matrix", "vector", "error", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(4), TypeError, "matrix: has layout"),
        (csr(3, 4)[1], torch.zeros(3).double(), ValueError, "vector: has shape"),
        (csr(3, 4)[1], torch.zeros(4), TypeError, "vector: is"),
        (csr(3, 4)[1].requires_grad_(), torch.zeros(4).double(), ValueError, "matrix: requires"),
    ],
    ids=["dense", "shape", "dtype", "gradient"],
)
def test_errors_name_the_argument(matrix, vector, error, message):
    with pytest.raises(error, match=message):
        kw.spmv(matrix, vector)
