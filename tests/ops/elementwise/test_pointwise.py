"""Tests of the elementwise operators: PyTorch's broadcasts, tails of sigmoid, silu and tanh at
every value of the 16-bit types."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200, TensorSpec
from kernelwright.contract.compare import ulp
from kernelwright.dispatch import ladder, launcher, specs_of, unsupported
from kernelwright.ops.elementwise.pointwise import (
    cuda,
    cuda_broadcast,
    heuristics,
    spec,
    tiling,
    torch_rungs,
    triton_block,
)
from support.publics import DEVICE, randn, with_gradients

HALVES = (torch.float16, torch.bfloat16)
UNARY = {
    "relu": torch.relu,
    "squared_relu": lambda x: torch.relu(x).square(),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


@pytest.mark.parametrize("name", UNARY)
def test_public_function_is_pytorchs_and_names_what_is_wrong(name):
    x = randn(3, 4).t()
    y = getattr(kw, name)(x)
    torch.testing.assert_close(y, UNARY[name](x))
    assert y.stride() == x.stride()
    if name in ("silu", "squared_relu"):
        with pytest.raises(TypeError, match=r"input: must be floating point, is torch\.int64"):
            getattr(kw, name)(torch.arange(3))
    assert getattr(kw, name).__name__ == name


PAIRS = {
    "same": ((3, 4), (3, 4)),
    "row": ((3, 4), (4,)),
    "row of a batch": ((2, 3, 4), (3, 4)),
    "column": ((3, 4), (3, 1)),
    "the input broadcasts": ((4,), (3, 4)),
    "both broadcast": ((3, 1), (1, 4)),
    "0-d": ((3, 4), ()),
    "both 0-d": ((), ()),
    "empty": ((0, 4), (4,)),
}


@pytest.mark.parametrize("name", ["add", "mul"])
@pytest.mark.parametrize("shapes", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("other_dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_what_pytorch_broadcasts_and_promotes_gives_pytorchs_result_and_gradients(
    name, shapes, other_dtype
):
    tensors = [randn(*shapes[0]), randn(*shapes[1], dtype=other_dtype, seed=1)]
    ours, theirs = (with_gradients(getattr(m, name), tensors) for m in (kw, torch))
    torch.testing.assert_close(ours, theirs)
    assert [g.dtype for g in ours[1]] == [t.dtype for t in tensors]


@pytest.mark.parametrize("name", ["add", "mul"])
def test_numbers_integers_and_complex_are_pytorchs(name):
    ours, theirs = getattr(kw, name), getattr(torch, name)
    x = randn(3, 4, dtype=torch.bfloat16)
    i = torch.arange(4, device=DEVICE)
    for args in ((x, 2.5), (x, 2), (i, i), (i, x), (x, i), (i, 2.5), (x, torch.tensor(3.0)),
                 (x.float(), torch.tensor(2.0 + 1j, device=DEVICE))):  # fmt: skip
        y, want = ours(*args), theirs(*args)
        assert y.dtype == want.dtype
        assert torch.equal(y, want)


def test_add_takes_alpha():
    x, other = randn(3, 4), randn(3, 4, seed=1)
    assert torch.equal(kw.add(x, other, alpha=-0.5), torch.add(x, other, alpha=-0.5))


@pytest.mark.parametrize("name", ["add", "mul"])
def test_shapes_that_do_not_broadcast_are_named(name):
    with pytest.raises(ValueError, match=r"other: shape \(3,\) does not broadcast with .*\(2, 4\)"):
        getattr(kw, name)(randn(2, 4), randn(3))
    with pytest.raises(TypeError, match="input: must be a tensor, is a float"):
        getattr(kw, name)(2.0, randn(3))


@pytest.mark.parametrize("name", ["add", "mul"])
def test_vmap_keeps_a_batch_in_front_of_a_broadcast(name):
    x, other = randn(5, 2, 3, 4), randn(5, 4, seed=1)
    got = torch.func.vmap(getattr(kw, name))(x, other)
    want = torch.stack([getattr(torch, name)(a, b) for a, b in zip(x, other, strict=True)])
    torch.testing.assert_close(got, want)


def test_a_rung_that_broadcasts_nothing_says_so_and_the_grid_takes_a_row():
    x, other = TensorSpec.contiguous((6, 40), torch.float32), randn(1, 40)
    specs = {"x": x, "other": TensorSpec.of(other)}
    assert "shape (1, 40) is not x's (6, 40)" in heuristics.fits_vec16(H200, **specs)
    assert heuristics.fits_grid2d(H200, **specs) is None
    column = {"x": x, "other": TensorSpec.contiguous((6, 1), torch.float32)}
    assert "does not broadcast" in heuristics.fits_grid2d(H200, **column)
    mixed = {"x": x, "other": TensorSpec.contiguous((6, 40), torch.float16)}
    assert "torch.float16 is not x's torch.float32" in heuristics.fits_vec16(H200, **mixed)
    assert heuristics.order(H200, **specs) == ()


BROADCASTS = {
    "a row": ((70, 264), (1, 264), 0),
    "a row that no vector divides": ((700, 33), (1, 33), 0),
    "rows shorter than a vector": ((3001, 3), (1, 3), 0),
    "a batch of rows": ((40, 5, 24), (1, 5, 24), 0),
    "a row for each": ((9, 5, 40), (9, 1, 40), None),
    "a column": ((300, 264), (300, 1), 0),
    "a column that no vector divides": ((700, 33), (700, 1), 0),
    "one element": ((70, 264), (1, 1), 0),
    "the input is the row": ((1, 264), (70, 264), 1),
    "both": ((300, 1), (1, 264), None),
    "a row off its boundary": ((70, 264), (1, 264), 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", BROADCASTS)
def test_vectors_of_what_broadcasts(kind, dtype):
    """The bits of PyTorch's product, over several tiles and a partial last one."""
    left, right, flat = BROADCASTS[kind]
    x, other = randn(*left, dtype=dtype), randn(*right, dtype=dtype, seed=1)
    if "boundary" in kind:
        other = torch.cat((other[:, :1], other), 1)[:, 1:]
    found = tiling.broadcast(*(TensorSpec.of(t) for t in (x, other)))
    if kind == "a row for each":  # x's rows have strides in three dimensions
        assert found == f"x {left} and other {right} do not broadcast by rows and columns alone"
        return
    kinds = [a.kind for a in found.operands]
    assert flat is None or kinds[flat] == "kFlat"
    assert kinds.count("kFlat") == (flat is not None)
    args = {"x": x, "other": other}
    chosen = ladder("mul")
    reason = unsupported(chosen.rung("cuda_broadcast"), specs_of(args), x.device)
    if reason:
        pytest.skip(reason)
    assert torch.equal(launcher(chosen, args, "cuda_broadcast")(x, other), x * other)


@pytest.mark.parametrize(("rows", "cols"), [(3, 8), (700, 33), (2000, 40), (9, 600)])
def test_the_gradient_of_a_row_is_summed_on_the_way(rows, cols):
    chosen = ladder("mul.backward")
    gy, x, other = randn(rows, cols), randn(rows, cols, seed=1), randn(1, cols, seed=2)
    args = {"gy": gy, "x": x, "other": other}
    reason = unsupported(chosen.rung("cuda_broadcast"), specs_of(args), x.device)
    if reason:
        pytest.skip(reason)
    for config in heuristics.STRIPS_CONFIGS:
        gx, gother = launcher(chosen, args, "cuda_broadcast", config)(gy, x, other)
        assert torch.equal(gx, gy * other)
        want = (gy.double() * x.double()).sum(0, keepdim=True)
        torch.testing.assert_close(gother.double(), want, atol=2e-4, rtol=1e-5)


def test_broadcasts_that_vectors_do_not_take_say_why():
    x, row = TensorSpec.contiguous((6, 40), torch.float32), TensorSpec.of(randn(1, 40))
    assert "nothing is broadcast" in heuristics.fits_broadcast(H200, x, x)
    assert "nothing is broadcast" in heuristics.fits_broadcast_backward(H200, x, x, x)
    off = TensorSpec(x.shape, x.strides, x.dtype, align=4)
    assert "x: its memory is not aligned" in heuristics.fits_broadcast(H200, off, row)
    apart = TensorSpec((6, 40), (80, 2), torch.float32)
    assert "x: its last dimension has a stride of 2" in heuristics.fits_broadcast(H200, apart, row)
    column = TensorSpec.contiguous((6, 1), torch.float32)
    assert "is not a row of x" in heuristics.fits_broadcast_backward(H200, x, x, column)
    half = TensorSpec.contiguous((1, 40), torch.float16)
    assert "torch.float16 is not x's torch.float32" in heuristics.fits_broadcast(H200, x, half)
    long = TensorSpec.contiguous((2, 2**31), torch.float32)
    element = TensorSpec.contiguous((1, 1), torch.float32)
    assert "exceeds 32-bit indices" in heuristics.fits_broadcast(H200, long, element)


def test_a_line_of_the_table_is_an_operator_with_every_rung():
    for f in spec.TABLE.values():
        suffixes = ("", "_backward") if f.gradient else ("",)
        for name in (f"{f.name}{s}" for s in suffixes):
            for trick in cuda.RUNGS:
                assert callable(getattr(cuda, f"{trick}_{name}"))
            assert callable(getattr(triton_block, f"plan_{name}"))
            assert callable(getattr(torch_rungs, f"native_{name}"))
        names = {r.name for r in ladder(f.name).rungs}
        assert names >= {"manual", "native", "compiled", "cuda_vec16", "triton_block"}
    for module in (cuda, cuda_broadcast, triton_block, torch_rungs):
        with pytest.raises(AttributeError, match="has no attribute 'vec16_sinus'"):
            _ = module.vec16_sinus


def every_value(dtype):
    """All 65,536 values of a 16-bit type."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ["silu", "sigmoid", "tanh", "silu.backward"])
@pytest.mark.parametrize("rung", ["triton_block", "cuda_vec16"])
def test_rung_at_every_value_of_a_16_bit_type(rung, name, dtype):
    """Within 0.75 ulp, in the tails too: PyTorch's silu is zero from x = -88.8 on, where bfloat16
    has normal numbers. (The slope has a zero, around which digits cancel.)"""
    chosen = ladder(name)
    x = every_value(dtype).to(DEVICE)
    args = {"gy": torch.ones_like(x), "x": x} if "backward" in name else {"x": x}
    reason = unsupported(chosen.rung(rung), specs_of(args), x.device)
    if reason:
        pytest.skip(reason)
    out = launcher(chosen, args, rung)(*args.values())
    want = chosen.operator.reference(**{k: v.double() for k, v in args.items()})
    want = want[0] if isinstance(want, tuple) else want
    assert torch.equal(out.isnan(), want.isnan())
    assert torch.equal(out.isinf(), want.to(dtype).isinf())
    off = (out.double() - want).abs()
    if chosen.operator.noise:  # at the zero of the slope; a GPU's exponential has 22 correct bits
        off = (off - 4 * chosen.operator.noise(**args)[0]).clamp_min(0)
    share = off / ulp(want, dtype)
    assert share[torch.isfinite(want)].nan_to_num(0.0).max() <= 0.75


def test_float32_silu_keeps_its_digits_in_the_tail():
    x = torch.linspace(-100, 100, 20_001)
    out = launcher(ladder("silu"), {"x": x}, "triton_block")(x) if DEVICE == "cpu" else kw.silu(x)
    want = x.double() * torch.sigmoid(x.double())
    off = (out.double() - want).abs() / ulp(want, torch.float32)
    assert off[want.abs() > 2.0**-120].max() <= 4


def kept_by(y):
    """The storages that a result saves for its backward."""
    return {t.data_ptr() for t in y.grad_fn.saved_tensors}


@pytest.mark.parametrize("wanted", ["x", "other"])
def test_a_product_makes_only_the_gradient_that_is_asked_for(wanted, binds):
    """The forward's kernel computes it from one operand; the other is not saved."""
    tensors = {"x": randn(7, 43), "other": randn(7, 43, seed=1)}
    tensors[wanted].requires_grad_()
    (kept,) = (t for n, t in tensors.items() if n != wanted)
    y = kw.mul(*tensors.values())
    assert kept_by(y) == {kept.data_ptr()}
    grad = randn(7, 43, seed=2)
    (gradient,) = torch.autograd.grad(y, tensors[wanted], grad)
    assert torch.equal(gradient, grad * kept)
    assert "mul.backward" not in binds


def test_a_broadcast_or_promoted_factor_gets_its_gradient_by_the_backward(binds):
    for other in (randn(1, 47), randn(5, 47).double()):
        x = randn(5, 47).requires_grad_()
        y = kw.mul(x, other)
        y.backward(torch.ones_like(y))
        torch.testing.assert_close(x.grad, other.expand(5, 47).float())
    assert binds == ["mul", "mul.backward"] * 2


def test_a_product_asked_for_one_gradient_is_twice_differentiable_and_holds_its_rung(binds):
    x, other = randn(3, 45).requires_grad_(), randn(3, 45, seed=1)
    with kw.use({"mul.backward": "manual"}):
        y = kw.mul(x, other)
    grad = randn(3, 45, seed=2).requires_grad_()
    (gx,) = torch.autograd.grad(y, x, grad, create_graph=True)
    assert binds == ["mul", "mul"]  # the second is for the rung that was named
    (again,) = torch.autograd.grad(gx.sum(), grad)
    torch.testing.assert_close(again, other)
