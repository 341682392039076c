"""Tests of gather and scatter_add: any dimension, an index smaller than the tensors, rows named by
an expanded index, long runs, indices out of range."""

import pytest
import torch
from triton.runtime.errors import InterpreterError

import kernelwright as kw
from kernelwright.contract import case
from kernelwright.dispatch import launcher
from kernelwright.emulator import EmulationError
from kernelwright.ops.index import gather
from kernelwright.ops.index.gather import LADDER, LADDER_ADD, spec
from support.publics import DEVICE, agree, randn, with_gradients

GATHERING = [r.name for r in LADDER.rungs if r.is_gpu]
ERRORS = (EmulationError, InterpreterError, RuntimeError)
ADDING = [r.name for r in LADDER_ADD.rungs if r.is_gpu]


def gathered(rung, x, index):
    return launcher(LADDER, {"x": x, "index": index, "n": x.shape[-2]}, rung)(x, index, x.shape[-2])


def added(rung, x, index, src):
    return launcher(LADDER_ADD, {"x": x, "index": index, "src": src}, rung)(x, index, src)


@pytest.mark.parametrize("rung", ["cuda_atomics", "cuda_sorted"])
def test_runs_of_any_length(rung):
    """Runs of no, of few and of hundreds of positions, which are added in pieces."""
    c = case((3, 50, 2), torch.float32, m=700, numbers="zipf")
    index, x, src = spec.index_of(c, DEVICE), randn(3, 50, 2), randn(3, 700, 2, seed=1)
    got = added(rung, x, index, src)
    want = x.double().scatter_add(1, index, src.double())
    scale = x.double().abs().scatter_add(1, index, src.double().abs())
    assert ((got.double() - want).abs() <= 2e-6 * scale).all()


@pytest.mark.parametrize("rung", ADDING)
def test_an_element_is_rounded_once(rung):
    """bfloat16 would stop at 256 times a summand; an element without summands keeps its -0.0."""
    x = torch.full((1, 3, 1), -0.0, dtype=torch.bfloat16, device=DEVICE)
    x[0, 0] = 256
    index = torch.zeros(1, 32, 1, dtype=torch.int64, device=DEVICE)
    got = added(rung, x, index, torch.ones(1, 32, 1, dtype=torch.bfloat16, device=DEVICE))
    assert got[0, 0] == 288
    assert torch.signbit(got[0, 1:]).all()


@pytest.mark.cover
@pytest.mark.skipif(DEVICE == "cuda", reason="an assertion on a device ends the process")
@pytest.mark.parametrize("number", [-1, 5])
@pytest.mark.parametrize("rung", [*GATHERING, *ADDING, "native"])
def test_a_number_out_of_range_is_an_error(rung, number):
    """Even if its address lies in another fiber of the tensor."""
    x, index = randn(3, 5, 4), torch.zeros(3, 2, 4, dtype=torch.int64)
    index[1, 1, 2] = number
    calls = [lambda: gathered(rung, x, index)] * (rung in LADDER.names)
    calls += [lambda: added(rung, x, index, randn(3, 2, 4))] * (rung in LADDER_ADD.names)
    for call in calls:
        with pytest.raises(ERRORS, match=r"out of (range|bounds)"):
            call()


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_any_dimension_and_a_smaller_index(dim):
    """Indices of some fibers only: the rest of x has a gradient of zero, and is unchanged."""
    x, src = randn(4, 5, 6), randn(4, 5, 6, seed=1)
    index = torch.arange(3 * 4 * 5, device=DEVICE).view(3, 4, 5).remainder(3).int()
    for ours, theirs, tensors in (
        (lambda a: kw.gather(a, dim, index), lambda a: a.gather(dim, index), [x]),
        (
            lambda a, b: kw.scatter_add(a, dim, index, b[:3, :4, :5]),
            lambda a, b: a.scatter_add(dim, index, b[:3, :4, :5]),
            [x, src],
        ),
    ):
        mine, right = (with_gradients(f, tensors) for f in (ours, theirs))
        for a, b in zip((mine[0], *mine[1]), (right[0], *right[1]), strict=True):
            agree(a, b, x.dtype)
    whole = kw.scatter_add(x, dim, index, src)  # elements of src beyond the index are not added
    agree(whole, x.scatter_add(dim, index, src), x.dtype)


@pytest.mark.parametrize("lead", [(), (3,)])
def test_an_expanded_index_names_rows(lead, monkeypatch):
    """They are gathered and added as rows; the elementwise operators are not called."""
    for name in ("_gather", "_scatter_add"):
        monkeypatch.setattr(gather, name, None)
    x, src = randn(*lead, 7, 8), randn(*lead, 4, 8, seed=1)
    index = torch.tensor([6, 0, 6, 2], device=DEVICE)[:, None].expand(*lead, 4, 8)
    for ours, theirs, tensors in (
        (lambda a: kw.gather(a, -2, index), lambda a: a.gather(-2, index), [x]),
        (
            lambda a, b: kw.scatter_add(a, -2, index, b),
            lambda a, b: a.scatter_add(-2, index, b),
            [x, src],
        ),
    ):
        mine, right = (with_gradients(f, tensors) for f in (ours, theirs))
        for a, b in zip((mine[0], *mine[1]), (right[0], *right[1]), strict=True):
            agree(a, b, x.dtype)
    if DEVICE == "cpu":
        wrong = torch.tensor([[7]]).expand(*lead, 1, 8)
        for call in (
            lambda: kw.gather(x, -2, wrong),
            lambda: kw.scatter_add(x, -2, wrong, src[..., :1, :]),
        ):
            with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
                call()


def test_scalars_empty_integers_and_out():
    one, zero = torch.tensor(1.5, device=DEVICE), torch.tensor(0, device=DEVICE)
    assert kw.gather(one, 0, zero) == 1.5 and kw.gather(one, 0, zero[None]).shape == (1,)
    assert kw.scatter_add(one, 0, zero, one) == 3
    x, none = torch.arange(6, device=DEVICE).view(3, 2), torch.empty(0, 2, dtype=torch.int64)
    none = none.to(DEVICE)
    assert kw.gather(x, 0, none).shape == (0, 2)
    same = kw.scatter_add(x, 0, none, x)
    assert torch.equal(same, x) and same.data_ptr() != x.data_ptr()
    index = torch.tensor([[2, 2], [0, 2]], device=DEVICE)
    out = torch.empty(0, dtype=torch.int64, device=DEVICE)
    assert kw.gather(x, 0, index, out=out) is out and torch.equal(out, x.gather(0, index))
    assert torch.equal(kw.scatter_add(x, 0, index, x), x.scatter_add(0, index, x))
    assert torch.equal(kw.gather(x > 2, 0, index), (x > 2).gather(0, index))


@pytest.mark.parametrize(
    ("dim", "index", "src", "error", "words"),
    [
        (0, torch.tensor([[0.0]]), (1, 4), TypeError, "index: must be int32 or int64"),
        (0, torch.tensor([0]), (1, 4), ValueError, "index: has 1 dimensions, input has 2"),
        (2, torch.tensor([[0]]), (1, 4), IndexError, "dim: 2 is out of range"),
        (0, torch.zeros(1, 5).long(), (1, 5), ValueError, "more than input .* in dimension 1"),
        (0, torch.zeros(2, 4).long(), (1, 4), ValueError, "more than src .* in dimension 0"),
        (0, torch.tensor([[0]]), (1,), ValueError, "src: has 1 dimensions"),
    ],
)
def test_what_is_wrong_is_named(dim, index, src, error, words):
    index = index.to(DEVICE)
    with pytest.raises(error, match=words):
        kw.scatter_add(randn(3, 4), dim, index, randn(*src))
    if "src" not in words:
        with pytest.raises(error, match=words):
            kw.gather(randn(3, 4), dim, index)


def test_arguments_that_are_refused():
    x, index = randn(3, 4), torch.zeros(1, 4, dtype=torch.int64, device=DEVICE)
    with pytest.raises(TypeError, match=r"src: must be torch.float32 like input"):
        kw.scatter_add(x, 0, index, x.double())
    with pytest.raises(NotImplementedError, match="sparse_grad: gradients are dense"):
        kw.gather(x, 0, index, sparse_grad=True)
