"""Tests of sort: ties, zeros of both signs, NaNs, every type, tiles that wait for others."""

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.dispatch import launcher
from kernelwright.ops.sort.sort import LADDER, LADDER_INDICES, LADDER_VALUES, cuda, spec
from support.publics import DEVICE, randn

OURS = ("cuda_bitonic", "cuda_radix", "cuda_onesweep")
# small tiles: many of them from few elements
CONFIG = {
    "cuda_bitonic": {"block": 64},
    "cuda_radix": {"block": 256, "items": 1, "resident": 2, "match": False},
    "cuda_onesweep": {"block": 256, "items": 2, "resident": 2, "match": True, "prefetch": True},
}


def ordered(rung, x, descending=False, config=None):
    args = {"x": x, "descending": descending}
    return launcher(LADDER, args, rung, config or CONFIG[rung])(*args.values())


def agree(got, x, descending=False):
    # on a CPU: PyTorch 2.11 puts NaN of bfloat16 last in descending order on a GPU
    x = x.cpu()
    values, indices = spec.reference(x, descending)
    got = [t.cpu() for t in got]
    assert torch.equal(got[1], indices)
    assert torch.equal(got[0].nan_to_num(7e30), values.nan_to_num(7e30))
    assert torch.equal(torch.signbit(got[0]), torch.signbit(x.gather(-1, indices)))


@pytest.mark.cover
@pytest.mark.parametrize("rung", OURS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_equal_elements_keep_their_order(rung, descending, dtype):
    x = torch.tensor([0.0, -0.0, torch.nan, 1.0, -torch.inf, 1.0, torch.inf, 1e-40] * 200)
    x = x.to(DEVICE, dtype).view(2, 800)
    agree(ordered(rung, x, descending), x, descending)


@pytest.mark.parametrize("rung", OURS[1:])
@pytest.mark.parametrize("order", ["rising", "falling", "equal", "random"])
def test_every_order_of_many_tiles(rung, order):
    """Each tile waits for those before it; the last one is not full."""
    x = randn(2, 5_003)
    if order in ("rising", "falling"):
        x = x.sort(dim=-1, descending=order == "falling").values
    elif order == "equal":
        x = torch.full_like(x, -2.5)
    agree(ordered(rung, x), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool])
def test_integers_of_every_size(dtype):
    info = None if dtype == torch.bool else torch.iinfo(dtype)
    low, high = (0, 1) if info is None else (info.min, info.max)
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(low, high, (1, 1_500), generator=generator, dtype=torch.int64)
    x[0, :4] = torch.tensor([high, low, 0, high])
    x = x.to(DEVICE, dtype)
    for got in (ordered("cuda_onesweep", x), kw.sort(x)):
        want = x.sort(stable=True)
        assert torch.equal(got[0], want.values) and torch.equal(got[1], want.indices)


def test_counts_of_64_bits(monkeypatch):
    """Rows of 2^30 elements use such counts."""
    monkeypatch.setattr(cuda, "SHORT", 100)
    x = randn(3_000).round()
    plan = cuda.onesweep(H200, CONFIG["cuda_onesweep"], TensorSpec.of(x), True)
    assert "unsigned long long" in plan.launches[-1].kernel.name
    agree(ordered("cuda_onesweep", x, True), x, True)


@pytest.mark.parametrize("rung", ["cuda_bitonic", "cuda_onesweep"])
def test_one_result_alone(rung):
    x = randn(2, 1_300).round()
    want = spec.reference(x)
    values = launcher(LADDER_VALUES, {"x": x}, rung, CONFIG[rung])(x)
    args = {"x": x, "descending": False}
    indices = launcher(LADDER_INDICES, args, rung, CONFIG[rung])(x, False)
    assert torch.equal(values, want[0]) and torch.equal(indices, want[1])


def test_any_dimension_and_numbers():
    x = randn(4, 5, 6)
    for dim in (0, 1, -1):
        for descending in (False, True):
            got, want = kw.sort(x, dim, descending), torch.sort(x, dim, descending)
            assert torch.equal(got.values, want.values) and torch.equal(got.indices, want.indices)
            assert torch.equal(kw.argsort(x, dim, descending), want.indices)
    assert torch.equal(kw.msort(x), torch.msort(x))
    number = torch.tensor(2.0, device=DEVICE)
    assert kw.sort(number).values == 2 and kw.argsort(number) == 0 and kw.msort(number) == 2


def test_out():
    x, values, indices = randn(3, 4), torch.empty(3, 4), torch.empty(3, 4, dtype=torch.int64)
    values, indices = values.to(DEVICE), indices.to(DEVICE)
    got = kw.sort(x, 0, out=(values, indices))
    assert got.values is values and got.indices is indices
    assert torch.equal(values, x.sort(0).values) and torch.equal(indices, x.sort(0).indices)


def test_the_gradient_of_msort():
    x = randn(5, 3).requires_grad_()
    kw.msort(x)[0].sum().backward()
    assert torch.equal(x.grad, (x == x.amin(0)).float())


def test_what_is_wrong_is_named():
    for function in (kw.sort, kw.argsort):
        with pytest.raises(IndexError, match="dim: 2 is out of range"):
            function(randn(3, 4), 2)
        with pytest.raises(TypeError, match="input: must be a tensor"):
            function([1.0])
    with pytest.raises(TypeError, match="input: must be a tensor"):
        kw.msort([1.0])
