"""get_total_norm, clip_grads_with_norm_ and clip_grad_norm_ compared with PyTorch's."""

import pytest
import torch

import kernelwright as kw
from support.parameter_lists import SHAPES
from support.publics import DEVICE, randn

CLIP = ("native", "triton_list", "cuda_list")


def with_gradients(dtype=torch.float32, scale=1.0):
    params = [randn(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(SHAPES)]
    for i, p in enumerate(params):
        p.grad = (scale * randn(*p.shape, seed=10 + i)).to(dtype)
    return params


def using(rung):
    return kw.use({"get_total_norm": rung, "clip_grads_with_norm_": rung})


@pytest.mark.parametrize("rung", CLIP)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("norm_type", "max_norm"), [(2, 1.0), ("inf", 0.1), (1.0, 1e6)])
def test_clip_grad_norm_is_torchs(rung, dtype, norm_type, max_norm):
    mine, theirs = with_gradients(dtype), with_gradients(dtype)
    extra = torch.zeros(3, requires_grad=True, device=DEVICE)  # has no gradient
    with using(rung):
        norm = kw.clip_grad_norm_(iter([*mine, extra]), max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_([*theirs, extra], max_norm, norm_type)
    assert norm.dtype == expected.dtype and norm.shape == ()
    torch.testing.assert_close(norm, expected)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    if max_norm == 1e6:
        before = [g.clone() for g in (p.grad for p in with_gradients(dtype))]
        assert all(map(torch.equal, before, (p.grad for p in mine)))


@pytest.mark.parametrize("rung", CLIP)
def test_clipping_by_a_norm_that_is_no_number(rung):
    for scale in (float("inf"), float("nan")):
        mine, theirs = with_gradients(scale=scale), with_gradients(scale=scale)
        with using(rung):
            kw.clip_grad_norm_(mine, 1.0)
        torch.nn.utils.clip_grad_norm_(theirs, 1.0)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad, equal_nan=True)
        with using(rung), pytest.raises(RuntimeError, match=r"order 2\.0 .* is non-finite"):
            kw.clip_grad_norm_(mine, 1.0, error_if_nonfinite=True)


def test_clipping_without_gradients():
    empty = torch.zeros(0, 3, requires_grad=True, device=DEVICE)
    assert kw.clip_grad_norm_([empty], 1.0).item() == 0.0
    assert kw.clip_grad_norm_([], 1.0).item() == 0.0
    empty.grad = torch.zeros_like(empty)
    (p, *_) = with_gradients()
    both, alone = kw.get_total_norm([empty.grad, p.grad]), kw.get_total_norm(p.grad)
    assert torch.equal(both, alone)
    assert kw.clip_grad_norm_([empty], 1.0).item() == 0.0
    norm = kw.clip_grad_norm_([empty, p], 0.5)
    torch.testing.assert_close(kw.get_total_norm([p.grad]), torch.tensor(0.5, device=DEVICE))
    assert torch.equal(norm, alone)


def test_clipping_reads_max_norm_at_each_call(binds):
    p = torch.zeros(1021, requires_grad=True, device=DEVICE)
    for bound in (1.0, 0.25):
        p.grad = torch.full_like(p, 2.0)
        with using("triton_list"):
            kw.clip_grad_norm_(p, bound)
        torch.testing.assert_close(p.grad.norm(), torch.tensor(bound, device=DEVICE))
    assert binds == ["get_total_norm", "clip_grads_with_norm_"]


def test_clipping_bumps_version_counters_and_mixes_dtypes():
    params = [*with_gradients(), *with_gradients(torch.bfloat16)]
    theirs = [*with_gradients(), *with_gradients(torch.bfloat16)]
    before = [p.grad._version for p in params]
    norm = kw.clip_grad_norm_(params, 0.1)
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(theirs, 0.1))
    assert all(p.grad._version > b for p, b in zip(params, before, strict=True))
    for a, b in zip(params, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-2, atol=1e-6)
