"""Tests of permutations: every order of dimensions, every size of element, merging."""

from itertools import permutations

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import TensorSpec
from kernelwright.dispatch import launcher, specs_of, unsupported
from kernelwright.ops.layout.permute_copy import LADDER, tiling
from support.publics import DEVICE, randn

CUDA = [r.name for r in LADDER.rungs if r.backend == "cuda"]


def permuted(rung, x, dims):
    args = {"x": x, "dims": dims}
    if unsupported(LADDER.rung(rung), specs_of(args), x.device):
        return None
    return launcher(LADDER, args, rung)(*args.values())


@pytest.mark.parametrize("rung", CUDA)
def test_every_order_of_four_dimensions(rung):
    x, seen = randn(3, 8, 5, 16).half(), 0
    for dims in permutations(range(-4, 0)):
        got = permuted(rung, x, dims)
        if got is not None:
            assert torch.equal(got, x.permute(dims)) and got.is_contiguous(), dims
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.int32, torch.complex64])
def test_every_size_of_element(dtype):
    x = (randn(3, 48, 144) > 0).to(dtype)
    for rung in CUDA:
        got = permuted(rung, x, (-1, -2) if rung != "cuda_rows" else (-2, -3, -1))
        want = x.mT if rung != "cuda_rows" else x.transpose(0, 1)
        assert torch.equal(got, want), rung
    assert permuted("cuda_naive", x.to(torch.complex128), (-1, -2)) is None


def test_dimensions_that_lie_alike_are_merged():
    """NHWC to NCHW is one transpose of (H W) by C for each sample."""
    x = TensorSpec.contiguous((2, 5, 6, 7), torch.float32)
    row, column, outer = tiling.tiles(x, (-4, -1, -3, -2))
    assert (row.size, column.size, [d.size for d in outer]) == (30, 7, [2])
    whole = tiling.walk(x, (-4, -3, -2, -1))
    assert [d.size for d in whole] == [420]


def test_public_functions():
    x = randn(2, 3, 4)
    for dims in permutations(range(3)):
        assert torch.equal(kw.permute_copy(x, dims), x.permute(dims))
    assert kw.transpose_copy(x, 0, -1).is_contiguous()
    one = torch.tensor(2.0, device=DEVICE)
    assert kw.transpose_copy(one, 0, -1) == 2 and kw.permute_copy(one, ()) == 2
    out = torch.empty(0, device=DEVICE)
    assert kw.transpose_copy(x, 1, 2, out=out) is out and torch.equal(out, x.mT)
    with pytest.raises(IndexError, match="dims: 3 is out of range"):
        kw.permute_copy(x, (0, 1, 3))
    with pytest.raises(ValueError, match=r"dims: \(0, 1, 1\) does not name each"):
        kw.permute_copy(x, (0, 1, 1))
    with pytest.raises(IndexError, match="dim1: 3 is out of range"):
        kw.transpose_copy(x, 0, 3)
