"""Tests of index_add: any distribution of indices, any dimension, indices out of range."""

import pytest
import torch

import kernelwright as kw
from kernelwright.contract import case
from kernelwright.dispatch import launcher
from kernelwright.emulator import EmulationError
from kernelwright.ops.embedding.lookup import spec as lookup
from kernelwright.ops.index.index_add import LADDER, LADDER_BACKWARD
from support.publics import DEVICE, agree, randn, with_gradients

ADDING = ("cuda_atomics", "cuda_small", "cuda_ordered")


def added(rung, x, index, source, alpha=1.0, config=None):
    args = {"x": x, "index": index, "source": source, "alpha": alpha}
    return launcher(LADDER, args, rung, config)(*args.values())


@pytest.mark.cover
@pytest.mark.parametrize("kind", lookup.INDICES)
@pytest.mark.parametrize("rung", ADDING)
def test_every_distribution_of_numbers(rung, kind):
    """Runs of no, of few and of thousands of positions."""
    c = case((300, 1), torch.float32, n=(1500,), indices=kind, index=torch.int32)
    index = lookup.indices_of(c, DEVICE)
    x, source = randn(300, 4), randn(1500, 4, seed=1)
    got = added(rung, x, index, source, -0.5)
    want = x.double().index_add(0, index, -0.5 * source.double())
    scale = x.double().abs().index_add(0, index, source.double().abs())
    assert ((got.double() - want).abs() <= 2e-6 * scale).all()


@pytest.mark.parametrize("rung", ADDING)
def test_a_row_is_rounded_once(rung):
    """bfloat16 would stop at 256; a row that nothing is added to keeps its -0.0."""
    x = torch.full((3, 2), -0.0, dtype=torch.bfloat16, device=DEVICE)
    index = torch.zeros(400, dtype=torch.int64, device=DEVICE)
    got = added(rung, x, index, torch.ones(400, 2, dtype=torch.bfloat16, device=DEVICE))
    assert got[0].tolist() == [400, 400]
    assert torch.signbit(got[1:]).all()


@pytest.mark.cover
@pytest.mark.skipif(DEVICE == "cuda", reason="an assertion on a device ends the process")
@pytest.mark.parametrize("number", [-1, 5])
@pytest.mark.parametrize("rung", [*ADDING, "native"])
def test_a_number_out_of_range_is_an_error(rung, number):
    index = torch.tensor([0, number])
    with pytest.raises((EmulationError, IndexError, RuntimeError), match=r"out of (range|bounds)"):
        added(rung, randn(5, 8), index, randn(2, 8))
    if rung == "native":
        with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
            kw.index_add(randn(2, 5, 3), 1, index, randn(2, 2, 3))
        return
    with pytest.raises(EmulationError, match="out of range"):
        args = {"gy": randn(5, 8), "index": index, "alpha": 1.0}
        launcher(LADDER_BACKWARD, args, "cuda_vec16")(*args.values())


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_any_dimension(dim):
    x = randn(5, 6, 7)
    index = torch.tensor([3, 0, 3], device=DEVICE, dtype=torch.int32)
    shape = [*x.shape]
    shape[dim] = 3
    source = randn(*shape, seed=1)
    for ours, theirs, tensors in (
        (
            lambda a, b: kw.index_add(a, dim, index, b, alpha=2),
            lambda a, b: torch.index_add(a, dim, index, b, alpha=2),
            [x, source],
        ),
        (
            lambda a: kw.index_select(a, dim, index),
            lambda a: torch.index_select(a, dim, index),
            [x],
        ),
    ):
        mine, right = (with_gradients(f, tensors) for f in (ours, theirs))
        for a, b in zip((mine[0], *mine[1]), (right[0], *right[1]), strict=True):
            agree(a, b, x.dtype)


def test_integers_scalars_and_out():
    x, index = torch.arange(6, device=DEVICE).view(3, 2), torch.tensor([2, 2], device=DEVICE)
    source = torch.ones(2, 2, dtype=torch.int64, device=DEVICE)
    want = torch.index_add(x, 0, index, source, alpha=3)
    assert torch.equal(kw.index_add(x, 0, index, source, alpha=3), want)
    out = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert kw.index_select(x, 0, index, out=out) is out and torch.equal(out, x[index])
    one, zero = torch.tensor(1.5, device=DEVICE), torch.tensor(0, device=DEVICE)
    assert kw.index_add(one, 0, zero, one) == 3 and kw.index_select(one, 0, zero) == 1.5


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ((0, torch.tensor([0.0]), randn(1, 4)), TypeError, "index: must be int32 or int64"),
        ((0, torch.tensor([[0]]), randn(1, 4)), ValueError, "index: must have one dimension"),
        ((2, torch.tensor([0]), randn(1, 4)), IndexError, "dim: 2 is out of range"),
        ((0, torch.tensor([0, 1]), randn(1, 4)), ValueError, r"source: has shape \(1, 4\)"),
        ((0, torch.tensor([0]), randn(1, 4).double()), TypeError, "source: must be torch.float32"),
    ],
)
def test_what_is_wrong_is_named(args, error, words):
    dim, index, source = args
    with pytest.raises(error, match=words):
        kw.index_add(randn(3, 4), dim, index.to(DEVICE), source)
