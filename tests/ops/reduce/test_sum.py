"""sum: its public function, the dimensions that it merges, and the bound of its error."""

import math

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import TensorSpec, case
from kernelwright.contract.compare import compare
from kernelwright.dispatch import ladder
from kernelwright.ops.reduce.sum.tiling import reduction

SUM = ladder("sum").operator


@pytest.mark.parametrize("dim", [None, 0, -1, 2, (0, 2), [1, -1], (), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_means_what_torch_means(dim, keepdim, dtype):
    x = torch.arange(60).reshape(3, 4, 5).to(dtype)
    want = torch.sum(x, dim, keepdim)
    got = kw.sum(x, dim, keepdim)
    assert got.dtype == want.dtype
    assert torch.equal(got, want)


@pytest.mark.parametrize("dim", [None, 0, -1, ()])
def test_scalars_are_summed_to_themselves(dim):
    x = torch.tensor(3.0)
    y = kw.sum(x, dim)
    assert torch.equal(y, x)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("to", [torch.float32, torch.float64, torch.int64, torch.int32])
def test_dtype_is_of_the_result(to):
    x = torch.randn(4, 9, dtype=torch.bfloat16)
    assert torch.equal(kw.sum(x, -1, dtype=to), torch.sum(x, -1, dtype=to))


@pytest.mark.parametrize(
    "dim, error, words",
    [
        (3, IndexError, "dim: 3 is out of range for a tensor of 2 dimensions"),
        ((0, -3), IndexError, "dim: -3 is out of range"),
        ((1, -1), ValueError, "dim: -1 appears twice"),
    ],
)
def test_bad_dims_are_named(dim, error, words):
    with pytest.raises(error, match=words):
        kw.sum(torch.zeros(2, 3), dim)


@pytest.mark.parametrize("dim", [None, -1, (0, 2)])
def test_gradient_is_a_view(dim):
    x = torch.randn(3, 4, 5, requires_grad=True)
    y = kw.sum(x, dim, keepdim=True)
    (gx,) = torch.autograd.grad(y, x, torch.randn_like(y))
    assert gx.shape == x.shape
    assert 0 in gx.stride()
    assert torch.autograd.gradcheck(lambda x: kw.sum(x, dim), x.detach().double().requires_grad_())
    assert torch.autograd.gradgradcheck(
        lambda x: kw.sum(x, dim) ** 2, x.detach().double().requires_grad_()
    )


def test_vmap_and_compile():
    x = torch.randn(6, 3, 4)
    assert torch.equal(torch.func.vmap(lambda a: kw.sum(a, 0))(x), x.sum(1))
    assert torch.allclose(torch.func.vmap(lambda a: kw.sum(a))(x), x.sum((1, 2)))
    compiled = torch.compile(
        lambda a: kw.sum(a * 2, -1, dtype=torch.float64), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(compiled(x), torch.sum(x * 2, -1, dtype=torch.float64))


@pytest.mark.parametrize(
    "x, dim, kind",
    [
        (torch.zeros(3, 4, 5), (-3, -2, -1), "whole"),
        (torch.zeros(3, 4, 5).permute(2, 0, 1), (-3, -2, -1), "whole"),
        (torch.zeros(3, 4, 5), (-2, -1), "rows"),
        (torch.zeros(4, 10)[:, :7], (-1,), "rows"),
        (torch.zeros(4, 7).t(), (-2,), "rows"),
        (torch.zeros(3, 4, 5), (-2,), "columns"),
        (torch.zeros(3, 4, 5), (-3, -2), "columns"),
        (torch.zeros(20)[::2], (-1,), "columns"),
        (torch.zeros(1, 5).expand(4, 5), (-2,), "columns"),
        (torch.zeros(3, 4, 5), (-3, -1), None),
        (torch.zeros(4, 10)[:, :7], (-2, -1), None),
    ],
)
def test_dimensions_merge(x, dim, kind):
    r = reduction(TensorSpec.of(x), dim)
    assert (r and r.kind) == kind


@pytest.mark.parametrize("dim", [(-1,), (-2,), (-3,), (-2, -1), (-3, -2)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_reduction_addresses_what_is_summed(dim, order):
    x = torch.randn(3, 4, 5, dtype=torch.float64).permute(order)
    r = reduction(TensorSpec.of(x), dim)
    if r is None:
        return
    want = x.sum(dim).reshape(-1)
    y = torch.zeros_like(want)
    for o in range(r.outer):
        column = x.as_strided((r.n, r.inner), (r.x_n, 1), o * r.x_outer)
        y.as_strided((r.inner,), (max(r.y_inner, 1),), o * r.y_outer).copy_(column.sum(0))
    assert torch.allclose(y, want)


def _judge(x, y):
    args = {"x": x, "dim": (-1,), "to": None}
    (noise,) = SUM.noise(**args)
    return compare(y, x.sum(-1), SUM.reference(x.double(), (-1,)), noise=noise)


def _chain(x):
    total = x[..., 0].clone()
    for i in range(1, x.shape[-1]):
        total += x[..., i]
    return total


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_the_error_bound_accepts_trees_and_rejects_wrong_sums(mean):
    x = SUM.inputs(case((64, 8192), torch.float32, dim=(-1,)), "cpu")["x"] + mean
    tree = x
    while tree.shape[-1] > 1:
        half = tree.shape[-1] // 2
        tree = tree[..., :half] + tree[..., half:]
    assert _judge(x, tree[..., 0]).ok
    assert not _judge(x, _chain(x)).ok
    assert not _judge(x, x[..., :-1].sum(-1)).ok
    assert not _judge(x, x.bfloat16().sum(-1).float()).ok


def test_noise_is_about_what_summation_makes():
    x = SUM.inputs(case((512, 4096), torch.float32, dim=(-1,)), "cpu")["x"]
    (noise,) = SUM.noise(x, (-1,))
    error = (x.sum(-1).double() - x.double().sum(-1)) / noise
    assert 0.1 < math.sqrt(error.square().mean().item()) < 1.0


@pytest.mark.parametrize(
    "shape, dim",
    [((3, 4, 5), d) for d in (0, -1, 1, (0, -1), None)]
    + [((5, 4), d) for d in (0, -1)]
    + [((5,), 0), ((5,), None), ((), 0), ((), None)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [None, torch.float64], ids=str)
def test_a_gradient_is_a_view_of_the_incoming_one(shape, dim, dtype):
    x = torch.randn(shape, requires_grad=True)
    y = kw.sum(x, dim, dtype=dtype)
    grad = torch.randn(y.shape, dtype=y.dtype)
    (ours,) = torch.autograd.grad(y, x, grad)
    (theirs,) = torch.autograd.grad(torch.sum(x, dim, dtype=dtype), x, grad)
    assert torch.equal(ours, theirs) and ours.dtype == x.dtype
    if dtype is None:
        assert ours.data_ptr() == grad.data_ptr()
