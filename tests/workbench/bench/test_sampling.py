"""Shapes that no rung was tuned on."""

from dataclasses import replace

import torch

from kernelwright.contract import case
from kernelwright.dispatch import ladder
from kernelwright.ops import every  # noqa: F401
from kernelwright.workbench.bench.sampling import refusal, sample

MOST = 1 << 26


def test_the_threads_of_a_grid_are_not_drawn():
    """Few threads take millions of steps."""
    operator = ladder("randn").operator
    usual = {c.param("threads") for c in operator.cases if c.use == "bench"}
    drawn = [c for seed in range(5) for _, c in sample(operator, 2, seed, MOST)]
    assert {c.param("threads") for c in drawn} == usual


def test_a_case_without_results_is_refused():
    """A filter larger than the image, which PyTorch before 2.13 accepts without data."""
    operator = replace(ladder("conv2d").operator, reference=lambda **_: None)
    sizes = {"filter": (16, 16), "out": 8, "padding": (0, 0), "dilation": (1, 1)}
    wide, narrow = (
        case((2, 224, n, 16), torch.bfloat16, stride=(16, 16), **sizes) for n in (224, 3)
    )
    assert refusal(operator, wide, MOST) is None
    assert "a tensor has no elements" in refusal(operator, narrow, MOST)
