"""The error analysis of float32 products: it predicts the error of a chain of multiply-adds, and a
result with larger rounding errors is rejected."""

import numpy as np
import pytest
import torch

from kernelwright.contract.compare import compare
from kernelwright.ops.matmul.gemm.spec import noise


def operands(k, m=24, n=40):
    g = torch.Generator().manual_seed(k)
    return torch.randn(m, k, generator=g), torch.randn(k, n, generator=g)


def chain(a, b):
    """Each result by one chain of additions; float64 holds a product of float32 values exactly."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        products = a[:, i, None].double().numpy() * b[None, i].double().numpy()
        sums = (products + sums.astype(np.float64)).astype(np.float32)
    return torch.from_numpy(sums)


def without_bits(t, bits):
    """float32 values rounded to `bits` bits fewer."""
    step = 1 << bits
    return ((t.view(torch.int32) + step // 2) & ~(step - 1)).view(torch.float32)


@pytest.mark.parametrize("mean", [0, 0.1, 1, 30])
@pytest.mark.parametrize("k", [40, 300, 3000])
def test_noise_is_the_error_of_a_chain(k, mean):
    """For small and for large results."""
    a, b = (t + mean for t in operands(k))
    (size,) = noise(a, b)
    exact = a.double() @ b.double()
    errors = ((chain(a, b).double() - exact) / size).square().flatten()
    by_size = errors[exact.abs().flatten().argsort()]
    for some in by_size.chunk(3):
        assert 0.3 < some.mean().sqrt() < 0.7


@pytest.mark.parametrize("k", [40, 300, 3000])
@pytest.mark.parametrize("bits", [13, 6])  # tf32 keeps 13 bits fewer
def test_rounded_operands_are_rejected(k, bits):
    a, b = operands(k)
    reference = a.double() @ b.double()
    (size,) = noise(a, b)
    assert compare(chain(a, b), chain(a, b), reference, noise=size).ok
    rounded = (without_bits(a, bits).double() @ without_bits(b, bits).double()).float()
    assert not compare(rounded, reference.float(), reference, noise=size).ok


def test_a_cancelled_offset_is_rejected():
    """Rounding errors of values forty times as large as the terms."""
    a, b = operands(300)
    reference = a.double() @ b.double()
    (size,) = noise(a, b)
    offset = 40 * a.norm(dim=1)[:, None] * b.norm(dim=0)
    spoiled = (chain(a, b) + offset) - offset
    assert not compare(spoiled, chain(a, b), reference, noise=size).ok
