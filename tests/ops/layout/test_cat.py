"""Tests of cat: tensors of any widths, dimensions and dtypes, more than eight of them."""

import random

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.layout.cat import LADDER, spec
from support.publics import DEVICE, randn, with_gradients

CUDA = [r.name for r in LADDER.rungs if r.is_gpu]


def joined(rung, xs):
    args = {**dict.fromkeys(spec.NAMES), **dict(zip(spec.NAMES, xs, strict=False))}
    return launcher(LADDER, args, rung)(*args.values())


@pytest.mark.parametrize("rung", CUDA)
def test_any_widths(rung):
    """Several tensors and rows share a vector of the result."""
    draw = random.Random(7)
    for rows in (1, 3, 40):
        widths = [3, *(draw.choice((1, 2, 3, 8, 16, 33)) for _ in range(draw.randint(1, 7)))]
        xs = [randn(rows, w, seed=i) for i, w in enumerate(widths)]
        assert torch.equal(joined(rung, xs), torch.cat(xs, -1)), (rows, widths)


@pytest.mark.parametrize("rung", CUDA)
def test_bytes(rung):
    xs = [randn(5, w, seed=w) > 0 for w in (16, 3, 32)]
    assert torch.equal(joined(rung, xs), torch.cat(xs, -1))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_any_dimension_and_number_with_gradients(dim):
    """70 tensors need groups of groups; one tensor is empty."""
    xs = [randn(4, 3, 5, seed=i) for i in range(70)]
    xs[9] = xs[9].narrow(dim, 0, 0)
    xs[11] = randn(5, 3, 4).transpose(0, 2)
    mine, right = (with_gradients(lambda *t, f=f: f(t, dim), xs) for f in (kw.cat, torch.cat))
    for a, b in zip((mine[0], *mine[1]), (right[0], *right[1]), strict=True):
        assert torch.equal(a, b) and a.is_contiguous() == b.is_contiguous()


def test_dtypes_views_and_what_is_left_out():
    x, none = randn(3, 4), torch.empty(0, device=DEVICE)
    whole = torch.ones(2, 4, dtype=torch.int32, device=DEVICE)
    assert torch.equal(kw.cat([whole, none, x]), torch.cat([whole, none, x]))
    assert kw.cat([whole, x.half()]).dtype == torch.float16
    assert torch.equal(kw.cat((x.mT, x.mT), 1), torch.cat((x.mT, x.mT), 1))
    assert kw.cat([none, none]).shape == (0,)
    one = kw.cat([x])
    assert torch.equal(one, x) and one.data_ptr() != x.data_ptr()
    out = torch.empty(0, device=DEVICE)
    assert kw.cat([x, x], out=out) is out and torch.equal(out, torch.cat([x, x]))


@pytest.mark.parametrize(
    ("tensors", "dim", "error", "words"),
    [
        (3, 0, TypeError, "tensors: must be a list or tuple, is a int"),
        ([], 0, ValueError, "tensors: must hold at least one tensor"),
        ([torch.ones(2), 3], 0, TypeError, r"tensors\[1\]: must be a tensor"),
        ([torch.tensor(1.0)], 0, ValueError, r"tensors\[0\]: has no dimension"),
        ([torch.ones(2, 3), torch.ones(2, 4)], 0, ValueError, r"tensors\[1\]: has shape \(2, 4\)"),
        ([torch.ones(2, 3), torch.ones(3)], 0, ValueError, r"tensors\[1\]: has shape \(3,\)"),
        ([torch.ones(2)], 1, IndexError, "dim: 1 is out of range"),
    ],
)
def test_what_is_wrong_is_named(tensors, dim, error, words):
    with pytest.raises(error, match=words):
        kw.cat(tensors, dim)
