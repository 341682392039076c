"""Verification of results that are too large for a float64 reference."""

from __future__ import annotations

import math

import pytest
import torch

from kernelwright.contract import case
from kernelwright.dispatch import ladder
from kernelwright.workbench.verify import large_tensors
from kernelwright.workbench.verify.candidate import Expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_beyond_a_reference_a_result_is_held_to_pytorchs(dtype):
    native = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert large_tensors.differs(native.clone(), native) is None
    nudged = native * (1 + 2 * torch.finfo(dtype).eps)
    assert large_tensors.differs(nudged, native) is None
    tail = native.clone()
    tail[-64:] = 0
    assert "from 0 on" in (large_tensors.differs(tail, native) or "")
    assert "should be" in (large_tensors.differs(native[:-1], native) or "")
    hollow = native.clone()
    hollow[::100] = float("nan")
    assert large_tensors.differs(hollow, native)
    assert large_tensors.differs(hollow, hollow.clone()) is None


def test_terms_that_cancel_are_held_to_their_neighbours_magnitude():
    native = torch.ones(4096)
    native[::8] = 1e-9
    close, far = native.clone(), native.clone()
    close[::8] += 2 * torch.finfo(torch.float32).eps
    far[::8] += 64 * torch.finfo(torch.float32).eps
    assert large_tensors.differs(close, native) is None
    assert large_tensors.differs(far, native)


def test_means_that_cancel_are_held_to_the_operators_own_analysis():
    """Right means of rows differ by the order of summation; a wrong mean is still detected."""
    operator = ladder("layer_norm").operator
    x = torch.randn(4096, 8192, generator=torch.Generator().manual_seed(0))
    args = {"x": x, "weight": None, "bias": None, "eps": 1e-5}
    mean = x.mean(-1, keepdim=True)
    noise = large_tensors.noise_of_rows(operator, args, mean, 1)
    assert torch.equal(noise, operator.noise(**args)[1])
    error = torch.where(torch.arange(4096).reshape(-1, 1) % 64 == 0, 3 * noise, 0)
    close = (mean.double() + error).float()
    assert large_tensors.differs(close, mean)
    assert large_tensors.differs(close, mean, lambda: noise) is None
    wrong = (mean.double() + 4 * error).float()
    assert "64 of 4096" in (large_tensors.differs(wrong, mean, lambda: noise) or "")
    halved = x[:, ::2].mean(-1, keepdim=True)
    assert large_tensors.differs(halved, mean, lambda: noise)
    assert large_tensors.noise_of_rows(operator, args, x[0], 1) is None


def test_the_noise_of_some_rows_belongs_to_their_targets(monkeypatch):
    operator = ladder("cross_entropy").operator
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    target = torch.arange(40) % 6
    args = {"x": x, "target": target, "weight": None, "reduction": "none", "ignore_index": -100,
            "label_smoothing": 0.0, "z_loss": 0.0, "softcap": 0.0, "smooth": False, "cap": False,
            "to": None}  # fmt: skip
    rows = operator.results.index("max_sum")
    whole = operator.noise(**args)[rows]
    monkeypatch.setattr(large_tensors, "CHUNK", 7 * 6)
    torch.testing.assert_close(large_tensors.noise_of_rows(operator, args, whole, rows), whole)


@pytest.fixture(scope="module")
def large():
    operator = ladder("softmax").operator
    native = lambda x, dim: torch.softmax(x, dim)  # noqa: E731
    want = Expected(operator, native, case((640, 640), torch.float32, dim=-1), "cpu")
    assert want.native[0].numel() > large_tensors.SAMPLE
    return operator, want


def test_a_large_result_that_is_right(large):
    operator, want = large
    verdict = large_tensors.right(operator, want, (want.native[0].clone(),))
    assert verdict.ok and verdict.error and verdict.budget


@pytest.mark.parametrize("at", [0, 277_777, 640 * 640 - 1])
def test_one_wrong_element_of_many_is_seen(large, at):
    operator, want = large
    out = want.native[0].clone()
    out.view(-1)[at] *= 1.01
    assert not large_tensors.right(operator, want, (out,)).ok


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_one_special_element_of_many_is_seen(large, value):
    operator, want = large
    out = want.native[0].clone()
    out.view(-1)[145_679] = value
    assert not large_tensors.right(operator, want, (out,)).ok


def test_a_large_result_of_another_shape_or_number(large):
    operator, want = large
    assert not large_tensors.right(operator, want, ()).ok
    assert "shape" in large_tensors.right(operator, want, (want.native[0].T[:5],)).why
