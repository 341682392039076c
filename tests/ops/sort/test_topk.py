"""Tests of topk: ties, NaN, zeros of both signs, rows that several blocks share."""

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.sort.topk import LADDER, spec
from support.publics import DEVICE, randn

OURS = ("cuda_sorted", "cuda_select")


def chosen(rung, x, k, largest=True):
    args = {"x": x, "columns": x.shape[-1], "k": k, "largest": largest}
    return launcher(LADDER, args, rung)(*args.values())


def agree(got, want):
    for mine, right in zip(got, want, strict=True):
        assert torch.equal(mine.nan_to_num(7e30), right.nan_to_num(7e30))


@pytest.mark.cover
@pytest.mark.parametrize("rung", OURS)
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_equal_elements_comes_first(rung, largest):
    x = torch.tensor([0.0, -0.0, torch.nan, 1.0, -torch.inf, 1.0, torch.inf, -torch.nan] * 40)
    x = x.to(DEVICE).view(2, 160)
    got = chosen(rung, x, 150, largest)
    agree(got, spec.reference(x, 160, 150, largest))
    zeros = got[0] == 0
    assert torch.equal(torch.signbit(got[0][zeros]), torch.signbit(x.gather(-1, got[1])[zeros]))


@pytest.mark.parametrize("largest", [True, False])
def test_a_warp_takes_the_largest_that_is_left(largest):
    x = randn(7, 300).round()
    agree(chosen("cuda_warp", x, 32, largest), spec.reference(x, 300, 32, largest))


@pytest.mark.cover
@pytest.mark.parametrize("order", ["rising", "falling", "equal", "random"])
@pytest.mark.parametrize(("rows", "columns", "k"), [(1, 20_000, 700), (2, 8500, 1), (3, 700, 64)])
def test_every_order_of_a_row(order, rows, columns, k):
    """The space for candidates fills many times, in one block and in several."""
    x = randn(rows, columns)
    if order in ("rising", "falling"):
        x = x.sort(dim=-1, descending=order == "falling").values
    elif order == "equal":
        x = x.sign()
    agree(chosen("cuda_select", x, k), spec.reference(x, columns, k))


def test_any_dimension_and_numbers():
    x = randn(4, 5, 6)
    for dim in (0, 1, -1):
        got, want = kw.topk(x, 3, dim), torch.topk(x, 3, dim)
        agree(got, want)
        assert torch.equal(got.values, want.values)
    agree(
        kw.topk(torch.tensor(2.0, device=DEVICE), 1),
        torch.topk(torch.tensor(2.0, device=DEVICE), 1),
    )
    agree(kw.topk(torch.arange(9, device=DEVICE), 2), torch.topk(torch.arange(9, device=DEVICE), 2))


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match="k: 5 is not between 0 and 4"):
        kw.topk(randn(3, 4), 5)
    with pytest.raises(IndexError, match="dim: 2 is out of range"):
        kw.topk(randn(3, 4), 1, 2)
    with pytest.raises(TypeError, match="input: must be a tensor"):
        kw.topk([1.0], 1)
