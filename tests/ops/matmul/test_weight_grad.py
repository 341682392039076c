"""Accumulated weight gradients: meaning, errors, what is compiled for Hopper."""

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.ops.matmul.weight_grad import LADDER, cuda, heuristics
from support.hopper import holds
from support.publics import randn


@pytest.mark.parametrize("leading", [(5,), (2, 3), (0,)], ids=str)
def test_adds_the_gradient_of_a_linear_layer(leading):
    x, w = randn(*leading, 6), randn(4, 6, seed=1).requires_grad_()
    y = torch.nn.functional.linear(x, w)
    gy = randn(*y.shape, seed=2)
    y.backward(gy)
    sums = randn(4, 6, seed=3)
    want, version = sums + w.grad, sums._version
    assert kw.accumulate_weight_grad_(sums, gy, x) is sums
    torch.testing.assert_close(sums, want)
    assert sums._version > version


def test_small_gradients_are_not_lost():
    sums, gy, x = torch.ones(8, 8), torch.full((1, 8), 2.0**-7), torch.full((1, 8), 2.0**-5)
    for _ in range(256):
        kw.accumulate_weight_grad_(sums, gy.bfloat16(), x.bfloat16())
    assert bool((sums == 1 + 256 * 2.0**-12).all())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"main_grad": torch.zeros(4, 6).half()}, TypeError, "main_grad: is"),
        ({"main_grad": torch.zeros(6, 4)}, ValueError, "main_grad: has shape"),
        ({"main_grad": torch.zeros(4, 6).requires_grad_()}, ValueError, "main_grad: requires"),
        ({"input": torch.zeros(3, 6)}, ValueError, "input: has shape"),
        ({"input": torch.zeros(5, 6).half()}, TypeError, "input: is"),
    ],
)
def test_errors_name_the_argument(change, error, message):
    given = {
        "main_grad": torch.zeros(4, 6),
        "grad_output": torch.zeros(5, 4),
        "input": torch.zeros(5, 6),
    }
    with pytest.raises(error, match=message):
        kw.accumulate_weight_grad_(**{**given, **change})


@pytest.mark.parametrize("config", heuristics.CONFIGS)
def test_sums_stay_in_registers_and_products_do_not_wait(compiler, config):
    args = {
        "total": TensorSpec.contiguous((520, 1000), torch.float32),
        "gy": TensorSpec.contiguous((300, 520), torch.bfloat16),
        "x": TensorSpec.contiguous((300, 1000), torch.bfloat16),
    }
    assert LADDER.rung("cuda_wgmma").supports(H200, **args) is None
    (step,) = cuda.wgmma(H200, config, **args).launches
    holds(step)
