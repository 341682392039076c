"""The noise of long sums on tensor cores, beside sums that are truncated as they truncate them."""

import torch

from kernelwright.contract.rounding import U, root_levels, tensor_core_noise


def truncated(x):
    """To float32's 24 bits, toward zero."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp((mantissa * 2**24).trunc() / 2**24, exponent)


def units(of_step, noise, k=8192):
    """The largest error of sums near zero, in units of a noise; of_step(sum) rounds each step."""
    generator = torch.Generator().manual_seed(0)
    products = torch.randn(400, k, generator=generator, dtype=torch.float64)
    products -= products.mean(1, keepdim=True)  # sums of 0, where the noise is the unit
    total = torch.zeros(400, dtype=torch.float64)
    for step in products.split(16, 1):
        total = of_step(total + step.sum(1))
    error = (total - products.sum(1)).abs()
    return (error / (U * noise(k, products.square().sum(1)))).max().item()


def test_truncated_sums_are_within_the_noise_of_tensor_cores_only():
    assert 0.3 < units(truncated, tensor_core_noise) < 4
    assert units(truncated, lambda k, squares: root_levels(k) * squares.sqrt()) > 10


def test_sums_that_are_kept_in_16_bits_exceed_it():
    assert units(lambda x: x.bfloat16().double(), tensor_core_noise) > 100
    assert units(lambda x: x.half().double(), tensor_core_noise) > 20
