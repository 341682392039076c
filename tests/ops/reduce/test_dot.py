"""Tests of dot: sums of 16-bit elements that lose nothing, and errors."""

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.reduce.dot import LADDER
from support.publics import DEVICE

ATOMIC = ("cuda_atomics", "cuda_half2", "cuda_fast_atomic")


def of(rung, x, other):
    return launcher(LADDER, {"x": x, "other": other}, rung)(x, other)


@pytest.mark.cover
@pytest.mark.parametrize("rung", ATOMIC)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_remainders_of_cancelling_parts_are_kept(rung, dtype):
    """Five blocks' sums of some thousands add up to 3, which sums in 16 bits would lose."""
    n, block = 5 * 8192, 256 * 8
    at = torch.arange(n, device=DEVICE) // block % 5  # the block that an element belongs to
    value = torch.tensor([0.5, 0.25, -0.375, -0.125, -0.25], device=DEVICE)[at]
    x = torch.ones(n, device=DEVICE, dtype=dtype)
    other = value.to(dtype)
    other[: 3 * 8 : 8] += 1
    assert of(rung, x, other) == 3
    assert of(rung, x, other) == 3  # the sums are zero again


@pytest.mark.cover
@pytest.mark.parametrize("rung", (*ATOMIC, "cuda_last_block"))
@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_an_infinite_sum_is_not_nan(rung, value):
    x = torch.ones(20_000, device=DEVICE, dtype=torch.bfloat16)
    other = x.clone()
    other[9000] = value
    assert of(rung, x, other) == value
    assert of(rung, x, x) == torch.tensor(20_000.0).bfloat16()


def test_what_is_wrong_is_named():
    x = torch.ones(4)
    with pytest.raises(ValueError, match="input: must have one dimension, has 2"):
        kw.dot(x.view(2, 2), x)
    with pytest.raises(ValueError, match="tensor: has 3 elements, input 4"):
        kw.dot(x, x[:3])
    with pytest.raises(TypeError, match=r"tensor: is torch.float64, input torch.float32"):
        kw.dot(x, x.double())
    out = torch.empty(())
    assert kw.dot(x, x, out=out) is out and out == 4
    assert kw.dot(torch.arange(4), torch.arange(4)) == 14
