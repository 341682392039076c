"""Values at the ends of float32's range and precision, against PyTorch in float64: independent of
the operators' references and of their noise."""

import math

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from support.publics import DEVICE, randn

CPU = DEVICE == "cpu"  # where a GPU rung that is named is emulated


def on(**rungs):
    """`kw.use` of a rung in both directions."""
    return kw.use(**{f"{name}{side}": rung for name, rung in rungs.items()
                     for side in ("", ".backward")})  # fmt: skip


# losses of logits with a large common offset


@pytest.mark.parametrize("rung", ["manual", "native", "triton_online"])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}], ids=str)
def test_an_offset_of_all_logits_costs_no_digits(rung, options):
    x = (randn(5, 33) + 2.0**20).requires_grad_()
    target = torch.arange(5, device=DEVICE)
    with on(cross_entropy=rung):
        loss = kw.cross_entropy(x, target, reduction="none", **options)
        (grad,) = torch.autograd.grad(loss.sum(), x)
    exact = x.detach().double().requires_grad_()
    want = F.cross_entropy(exact, target, reduction="none", **options)
    (right,) = torch.autograd.grad(want.sum(), exact)
    torch.testing.assert_close(loss.double(), want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(grad.double(), right, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("rung", ["manual", "native", "triton_online"])
def test_loss_and_gradient_at_once_with_an_offset(rung):
    x, target = randn(5, 33) + 2.0**20, torch.arange(5, device=DEVICE)
    with kw.use(cross_entropy_with_grad=rung):
        loss, grad = kw.cross_entropy_with_grad(x, target)
    exact = x.double().requires_grad_()
    want = F.cross_entropy(exact, target)
    torch.testing.assert_close(loss.double(), want.detach(), rtol=1e-6, atol=1e-6)
    right = torch.autograd.grad(want, exact)[0]
    torch.testing.assert_close(grad.double(), right, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("rung", ["manual", "native", "chunked"])
def test_a_linear_loss_of_logits_with_an_offset(rung):
    """A bias of 2^20 for every class: the loss is that of the rounded logits."""
    x, w = randn(5, 8).requires_grad_(), randn(33, 8, seed=1)
    bias, target = torch.full((33,), 2.0**20, device=DEVICE), torch.arange(5, device=DEVICE)
    with kw.use(linear_cross_entropy=rung):
        loss = kw.linear_cross_entropy(x, w, target, linear_bias=bias)
        (grad,) = torch.autograd.grad(loss, x)
    logits = F.linear(x.detach(), w, bias).double().requires_grad_()
    want = F.cross_entropy(logits, target)
    right = torch.autograd.grad(want, logits)[0] @ w.double()
    torch.testing.assert_close(loss.double(), want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(grad.double(), right, rtol=1e-5, atol=1e-6)


def test_double_backward_with_an_offset():
    x, target = randn(3, 7) + 2.0**20, torch.arange(3, device=DEVICE)

    def hessian(loss, x):
        return torch.autograd.functional.hessian(lambda t: loss(t, target), x)

    want = hessian(F.cross_entropy, x.double())
    found = hessian(kw.cross_entropy, x).double()
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-7)


# masks of the lowest number, as transformers masks padding


@pytest.mark.parametrize("rung", ["manual", "native", "triton_flash"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_queries_whose_keys_are_all_masked_by_the_lowest_number(rung, dtype):
    q, k, v = (randn(1, 2, 20, 16, dtype=dtype, seed=i).requires_grad_() for i in range(3))
    mask = torch.zeros(1, 1, 20, 20, dtype=dtype, device=DEVICE)
    mask[..., :6] = torch.finfo(dtype).min
    mask[:, :, :6] = torch.finfo(dtype).min  # left padding: nothing but padding is seen
    g = randn(1, 2, 20, 16, dtype=dtype, seed=5)
    with on(scaled_dot_product_attention=rung):
        y = kw.scaled_dot_product_attention(q, k, v, mask)
        found = torch.autograd.grad(y, (q, k, v), g)
    # the formula: PyTorch's backward on a CPU loses the sum of such a row in its log-sum-exp
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    want = (exact[0] @ exact[1].mT / 4 + mask.double()).softmax(-1) @ exact[2]
    right = torch.autograd.grad(want, exact, g.double())
    tolerance = 1e-5 if dtype == torch.float32 else 0.05 if dtype == torch.bfloat16 else 0.01
    for mine, theirs in zip((y, *found), (want, *right), strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=tolerance)
    if dtype != torch.float16:  # whose lowest number does not absorb a score
        mean = v.double().mean(2, keepdim=True).expand(-1, -1, 6, -1)
        torch.testing.assert_close(y[:, :, :6].double(), mean, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rung", ["native", "triton_flash"])
def test_masks_of_minus_infinity_and_nan(rung):
    q, k, v = (randn(1, 1, 8, 16, seed=i) for i in range(3))
    mask = torch.zeros(8, 8, device=DEVICE)
    mask[0] = -math.inf  # sees no key
    mask[1, 2] = math.nan
    mask[2, ::2], mask[2, 1::2] = -math.inf, torch.finfo(torch.float32).min
    with on(scaled_dot_product_attention=rung):
        y = kw.scaled_dot_product_attention(q, k, v, mask)
    assert not y[0, 0, 0].any() and y[0, 0, 1].isnan().all()
    torch.testing.assert_close(y[0, 0, 2], v[0, 0, 1::2].mean(0))
    torch.testing.assert_close(y[0, 0, 3:], F.scaled_dot_product_attention(q, k, v)[0, 0, 3:])


# gradients whose square overflows


@pytest.mark.parametrize("rung", ["manual", "native", "triton_each", "triton_list", "cuda_list"])
@pytest.mark.parametrize(
    ("dtype", "large"), [(torch.float32, 1e20), (torch.float16, 6e4)], ids=["float32", "float16"]
)
def test_adamw_stays_finite_where_pytorch_does(rung, dtype, large):
    if DEVICE == "cuda" and rung == "native" and dtype == torch.float32:
        pytest.skip("a GPU gives NaN in PyTorch's fused step, whose squares overflow")
    ours = randn(40, dtype=dtype).requires_grad_()
    theirs = ours.detach().cpu().requires_grad_()
    optimizers = kw.optim.AdamW([ours], lr=0.1), torch.optim.AdamW([theirs], lr=0.1, fused=True)
    with kw.use(adamw=rung):
        for factor in (1.0, -0.5, 0.25):
            for p, optimizer in zip((ours, theirs), optimizers, strict=True):
                p.grad = torch.full_like(p, factor * large)
                optimizer.step()
    assert theirs.isfinite().all()
    torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-3, atol=2e-4)


# integers and nearly constant values


@pytest.mark.parametrize("rung", ["manual", "native", "cuda_block"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_sums_of_integers_in_segments_are_exact(rung, exclusive):
    values = [2**40 + 1, 2**53 + 1, -3, 5, 2**24 + 1, 1, 2**60]
    begins = [True, False, False, True, False, False, False]
    want, total = [], 0
    for value, first in zip(values, begins, strict=True):
        total = 0 if first else total
        want.append(total if exclusive else total + value)
        total += value
    x, starts = (torch.tensor(t, device=DEVICE)[None] for t in (values, begins))
    with kw.use(cumsum=rung):
        found = kw.cumsum(x, -1, starts=starts, exclusive=exclusive)
    assert found[0].tolist() == want


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("deviation", [1e-8, 1e-3, 1.0])
@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
def test_running_variances_of_nearly_constant_channels(name, deviation, last):
    x = randn(4, 3, 5, 6) * deviation
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    mean, var = torch.zeros(3, device=DEVICE), torch.zeros(3, device=DEVICE)
    how = {"training": True} if name == "batch_norm" else {}
    getattr(kw, name)(x, mean, var, momentum=1.0, **how)
    exact = x.double()
    want = exact.var((0, 2, 3)) if name == "batch_norm" else exact.var((2, 3)).mean(0)
    torch.testing.assert_close(var.double(), want, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("rung", ["manual", "native", "triton_row", "triton_loop"])
@pytest.mark.parametrize("value", [0.1, 100.1, 1234.5])
def test_rows_of_equal_elements_are_normalized_to_zero(rung, value):
    x = torch.full((3, 257), value, device=DEVICE)
    with kw.use(layer_norm=rung):
        assert not kw.layer_norm(x, 257).any()


@pytest.mark.parametrize("size", [(5, 9), (9, 5), (5, 5)], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["planes", "channels last"])
def test_a_dimension_that_keeps_its_size_mixes_no_pixels(size, last):
    x = randn(1, 4, 5, 5)
    x[..., 2, 3] = math.nan
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    found = kw.interpolate(x, size=size, mode="bilinear")
    want = F.interpolate(x.cpu(), size=size, mode="bilinear").to(DEVICE)  # CUDA's mixes them
    torch.testing.assert_close(found, want, equal_nan=True)
    leaf = torch.zeros_like(x).requires_grad_()
    g = torch.zeros_like(want)
    g[..., 2, 2] = math.nan
    (grad,) = torch.autograd.grad(kw.interpolate(leaf, size=size, mode="bilinear"), leaf, g)
    assert grad.isnan().any(-1).any(0).any(0).sum() <= (1 if size[0] == 5 else 2)


@pytest.mark.skipif(not CPU, reason="a GPU runs it without being asked")
@pytest.mark.parametrize("rung", ["native", "cuda_vec16", "cuda_thread"])
def test_a_rung_of_random_numbers_runs_where_it_is_named(rung):
    def drawn(name):
        torch.manual_seed(3)
        with kw.use(rand=name, randn=name):
            return kw.rand(999), kw.randn(999)

    uniform, normal = drawn(rung)
    torch.testing.assert_close(uniform, drawn("native")[0], rtol=0, atol=0)
    torch.testing.assert_close(normal, drawn("native")[1])
    torch.manual_seed(3)
    assert not torch.equal(uniform, torch.rand(999))
    assert 0.4 < uniform.mean() < 0.6 and abs(normal.mean()) < 0.2
