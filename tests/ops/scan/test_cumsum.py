"""Tests of scans: directions, segments, long rows, the gradient of a product with zeros."""

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.scan.cumsum import LADDER, LADDER_PRODUCT_BACKWARD, spec
from support.publics import DEVICE, agree, randn, with_gradients

SMALL = {"block": 32, "vecs": 1}


def scanned(rung, x, starts=None, exclusive=False, reverse=False, config=None):
    args = {"x": x, "starts": starts, "dim": -1, "exclusive": exclusive, "reverse": reverse}
    return launcher(LADDER, args, rung, config)(*args.values())


@pytest.mark.cover
@pytest.mark.parametrize("rung", ["cuda_lookback", "cuda_tree"])
@pytest.mark.parametrize("reverse", [False, True])
def test_more_tiles_than_a_group_of_groups(rung, reverse):
    """1,251 tiles of 32 elements in each of two rows: integers show lost or repeated ones."""
    x = (randn(2, 40_003) * 1000).long()
    want = spec.reference(x, None, -1, False, reverse)
    assert torch.equal(scanned(rung, x, reverse=reverse, config=SMALL), want)


def test_segments_in_more_tiles_than_a_group():
    x, starts = (randn(1, 40_003) * 9).long(), randn(1, 40_003, seed=1) > 3.2
    want = spec.reference(x, starts, -1, True, True)
    assert starts.any()
    assert torch.equal(scanned("cuda_tree", x, starts, True, True, SMALL), want)


def test_no_value_crosses_the_start_of_a_segment():
    x = torch.tensor([1.0, torch.nan, torch.inf, 2.0, 3.0], device=DEVICE)
    starts = torch.tensor([False, False, False, True, False], device=DEVICE)
    for rung in ("manual", "native", "cuda_block", "cuda_tree"):
        assert scanned(rung, x, starts)[3:].tolist() == [2.0, 5.0]
        assert scanned(rung, x, starts, exclusive=True)[3:].tolist() == [0.0, 2.0]
        assert scanned(rung, x.flip(0), starts.roll(-1).flip(0), reverse=True)[:2].tolist() == [
            5,
            2,
        ]


def test_a_long_running_sum_keeps_float32s_digits():
    """The sum of ten thousand tenths and of one; carries between tiles are float64."""
    x = torch.full((60_000,), 0.1, device=DEVICE)
    want = x.double().cumsum(0).float()
    for rung in ("cuda_block", "cuda_tree"):
        off = (scanned(rung, x) - want).abs() / want
        assert off.max() < 4e-7


@pytest.mark.cover
@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("rung", ["manual", "cuda_block", "cuda_tree"])
def test_the_gradient_of_a_product_divides_by_nothing(zeros, rung):
    x, gy = randn(3, 70), randn(3, 70, seed=1)
    x[:, 5 : 5 + 30 * zeros : 30] = 0
    leaf = x.double().requires_grad_()
    (want,) = torch.autograd.grad(leaf.cumprod(-1), leaf, gy.double())
    args = {"gy": gy, "x": x, "y": x.cumprod(-1), "dim": -1}
    got = launcher(LADDER_PRODUCT_BACKWARD, args, rung)(*args.values())
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-30)


@pytest.mark.cover
@pytest.mark.parametrize("shape", [(5, 6, 7), (2100, 3, 2)], ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_options_in_any_dimension(shape, dim):
    x, starts = randn(*shape), randn(*shape, seed=1) > 1
    for exclusive in (False, True):
        for reverse in (False, True):
            more = {"exclusive": exclusive, "reverse": reverse, "starts": starts}
            ours = with_gradients(lambda t, m=more: kw.cumsum(t, dim, **m), [x])
            theirs = with_gradients(
                lambda t, e=exclusive, r=reverse: spec.reference(t, starts, dim, e, r), [x.double()]
            )
            for mine, right in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
                agree(mine.double(), right, torch.float32, 1e-5)


def test_integers_and_bools_become_int64_and_out_is_written():
    for x in (torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor([True, True, False])):
        x = x.to(DEVICE)
        for ours, theirs in ((kw.cumsum, torch.cumsum), (kw.cumprod, torch.cumprod)):
            assert torch.equal(ours(x, 0), theirs(x, 0)) and ours(x, 0).dtype == torch.int64
            out = torch.empty(0, device=DEVICE, dtype=torch.int64)
            assert ours(x, 0, out=out) is out and torch.equal(out, theirs(x, 0))
    x = torch.tensor(3.0, device=DEVICE)
    assert kw.cumsum(x, 0) == 3 and kw.cumprod(x, -1) == 3 and kw.cumsum(x, 0, exclusive=True) == 0


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"dim": 2}, IndexError, "dim: 2 is out of range"),
        ({"dim": 0, "starts": torch.ones(3, device=DEVICE)}, TypeError, "starts: must be bool"),
        (
            {"dim": 0, "starts": torch.ones(3, device=DEVICE).bool()},
            ValueError,
            r"starts: has shape \(3,\), should be \(3, 4\)",
        ),
    ],
)
def test_what_is_wrong_is_named(more, error, words):
    with pytest.raises(error, match=words):
        kw.cumsum(randn(3, 4), **more)


def test_the_reference_of_a_products_gradient_in_parts(monkeypatch):
    """One by one, and in a number of steps that grows with the logarithm of the length only."""
    x = torch.rand(3, 257, dtype=torch.float64) * 0.2 + 0.9
    x[1, 100], x[2, ::50] = 0, 0
    args = torch.randn_like(x), x, x.cumprod(-1), -1
    want = spec.product_backward_reference(*args)
    monkeypatch.setattr(spec, "SEQUENTIAL", 0)
    torch.testing.assert_close(spec.product_backward_reference(*args), want, rtol=1e-12, atol=1e-12)
