"""Tests of histograms: edges, exact counts, ranges from the data, integers."""

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.sort.histogram import LADDER, spec
from support.publics import DEVICE, randn

OURS = ("cuda_global", "cuda_shared", "cuda_runs")


def counted(rung, x, bins, low, high):
    args = {"x": x, "bins": bins, "low": low, "high": high}
    return launcher(LADDER, args, rung)(*args.values())


@pytest.mark.parametrize("rung", OURS)
def test_edges_belong_to_the_bin_above_but_the_last(rung):
    x = torch.arange(-3.0, 104.0, device=DEVICE).repeat_interleave(2)
    want = torch.full((100,), 2, device=DEVICE)
    want[99] = 4  # 99 and 100
    assert torch.equal(counted(rung, x, 100, 0.0, 100.0), want)


@pytest.mark.parametrize("rung", OURS)
def test_runs_that_end_anywhere(rung):
    """Equal elements, others between them, elements in no bin, and a partial last vector."""
    x = torch.cat([torch.full((k * 37 % 400,), float(k % 9)) for k in range(40)]).to(DEVICE)
    assert torch.equal(counted(rung, x, 7, 1.0, 8.0), spec.reference(x, 7, 1.0, 8.0))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64, torch.bool])
def test_integers_of_every_size(dtype):
    x = randn(999).mul(40).abs().to(dtype)
    for rung in OURS:
        got = counted(rung, x, 50, 0.0, 50.0)
        inside = x[x <= 50].long().clamp_max(49)
        assert torch.equal(got, torch.bincount(inside, minlength=50))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_pytorch(dtype):
    x = randn(40, 50, dtype=dtype)
    for options in ((), (7,), (10, -1.0, 1.0), (3, 0.5, 0.5)):
        assert torch.equal(kw.histc(x, *options), torch.histc(x, *options))
    equal, empty = torch.full((5,), 3.0, dtype=dtype), torch.empty(0, dtype=dtype)
    for t in (equal.to(DEVICE), empty.to(DEVICE)):
        assert torch.equal(kw.histc(t, 4), torch.histc(t, 4))
    out = torch.empty(0, dtype=dtype, device=DEVICE)
    assert kw.histc(x, 5, out=out) is out and torch.equal(out, torch.histc(x, 5))


def test_bincount():
    x = torch.tensor([3, 0, 3, 7], device=DEVICE)
    for t, least in ((x, 0), (x, 20), (x[:0], 0), (x[:0], 4), (x.to(torch.uint8), 0)):
        assert torch.equal(kw.bincount(t, minlength=least), torch.bincount(t, minlength=least))


def test_what_is_wrong_is_named():
    x = randn(5)
    for call, error, words in (
        (lambda: kw.histc([1.0]), TypeError, "input: must be a tensor"),
        (lambda: kw.histc(x.to(torch.complex64)), TypeError, "input: must be real"),
        (lambda: kw.histc(x, 0), ValueError, "bins: must be at least 1"),
        (lambda: kw.histc(x, 3, 2, 1), ValueError, "max: 1 is less than min, 2"),
        (lambda: kw.histc(x / 0), ValueError, "m(in|ax): .*(inf|nan) is not finite"),
        (lambda: kw.bincount(x), TypeError, "input: must be integers"),
        (lambda: kw.bincount(x.int()[None]), ValueError, "input: must have one dimension"),
        (lambda: kw.bincount(torch.tensor([-1])), ValueError, "input: must not be negative"),
        (lambda: kw.bincount(x.int(), minlength=-1), ValueError, "minlength: must not be"),
    ):
        with pytest.raises(error, match=words):
            call()
