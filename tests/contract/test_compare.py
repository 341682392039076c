"""The error budget: which results are accepted as right, and which are not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.contract.compare import FACTOR, ULPS, compare, measure, ulp

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def reference(n=1000, seed=0):
    return torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_pytorchs_own_result_is_within_the_budget(dtype):
    ref = reference()
    verdict = compare(ref.to(dtype), ref.to(dtype), ref)
    assert verdict.ok
    assert verdict.budget.worst == pytest.approx(FACTOR * verdict.error.worst + ULPS)


@pytest.mark.parametrize("dtype", FLOATS[1:])
@pytest.mark.parametrize(("ulps", "ok"), [(2, True), (3, False)])
def test_two_ulp_are_within_the_budget_of_an_exact_native(dtype, ulps, ok):
    exact = reference().to(dtype)
    ref = exact.double()
    out = exact.clone()
    out[17] += ulps * ulp(ref[17:18], dtype)[0]
    assert compare(out, exact, ref).ok == ok


def test_small_errors_everywhere_fail_norm_wise():
    exact = torch.full((4096,), 1.0)
    ref = exact.double()
    native = exact.clone()
    native[0] += 0.5  # leaves a wide budget for the maximum
    verdict = compare(exact + 1e-2, native, ref)
    assert not verdict.ok
    assert verdict.error.worst < verdict.budget.worst


def test_a_few_large_errors_fail_element_wise():
    exact = reference(100_000).float()
    out = exact.clone()
    out[:5] += 1e-5  # negligible in the norm of 100,000 values
    verdict = compare(out, exact, exact.double())
    assert not verdict.ok
    assert verdict.error.norm < verdict.budget.norm


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_special_values_must_be_where_pytorch_has_them(value):
    ref = reference()
    ref[3] = value
    native = ref.float()
    assert compare(native.clone(), native, ref).ok
    moved = native.clone()
    moved[3], moved[4] = 1.0, value
    assert not compare(moved, native, ref).ok
    assert not compare(torch.full_like(native, math.nan), native, ref).ok


def test_an_infinity_of_the_wrong_sign():
    ref = torch.tensor([1.0, math.inf], dtype=torch.float64)
    assert not compare(torch.tensor([1.0, -math.inf]), ref.float(), ref).ok


def test_rounding_to_infinity_is_right_on_either_side_of_the_edge():
    ref = torch.tensor([65519.0, 65520.0, 1.0], dtype=torch.float64)  # halfway to 65536
    native = ref.half()
    assert native[1] == math.inf
    assert compare(native.clone(), native, ref).ok


@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(3, 2),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(6),
        None,
        [torch.zeros(2, 3)],
    ],
)
def test_another_shape_dtype_or_type_is_wrong(out):
    assert not compare(out, torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.float64)).ok


def test_exact_results_must_be_bitwise_equal():
    native = torch.tensor([1.0, math.nan, 2.0])
    assert compare(native.clone(), native, native.double(), exact=True).ok
    other = torch.tensor([1.0, math.nan, 2.0000002])
    assert "1 of 3" in compare(other, native, native.double(), exact=True).why
    integers = torch.arange(4)
    assert compare(integers, integers, integers.double()).ok
    assert not compare(integers + 1, integers, integers.double()).ok


def test_empty_and_all_nan_results_have_no_error():
    empty = torch.empty(0)
    assert compare(empty, empty, empty.double()).ok
    nan = torch.full((4,), math.nan)
    assert compare(nan, nan, nan.double()).ok


def test_noise_is_the_unit_where_it_is_larger_than_an_ulp():
    ref = torch.tensor([1.0, 1e-12], dtype=torch.float64)
    native = ref.float()
    out = torch.tensor([1.0, 3e-12])  # a million ulp of a result that cancelled
    assert not compare(out, native, ref).ok
    assert compare(out, native, ref, noise=torch.tensor([0.0, 1e-12], dtype=torch.float64)).ok
    assert not compare(out, native, ref, noise=torch.tensor([0.0, 1e-13], dtype=torch.float64)).ok


@pytest.mark.parametrize("dtype", FLOATS)
@given(x=st.floats(min_value=-1e4, max_value=1e4))
def test_ulp_is_the_distance_to_the_next_number(dtype, x):
    t = torch.tensor([x]).to(dtype)
    up = torch.nextafter(t.abs(), torch.full_like(t, math.inf)).double() - t.abs().double()
    assert ulp(t.double(), dtype) == pytest.approx(max(up.item(), 0.0), rel=1e-12)


def test_the_percentile_leaves_one_in_a_thousand_out():
    ref = torch.ones(10_000, dtype=torch.float64)
    out = ref.clone()
    out[:9] += 1
    assert measure(out, ref).p999 == 0
    out[:11] += 1
    assert measure(out, ref).p999 > 0
