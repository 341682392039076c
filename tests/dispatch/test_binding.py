"""PyTorch's requirements of an operator: autograd, autocast, subclasses, torch.func."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.dispatch import entry_of, ladders
from kernelwright.workbench.verify.candidate import all_results, map_tensors
from kernelwright.workbench.verify.checks import same_bits
from kernelwright.workbench.verify.verify import thorough_cases
from support.publics import (
    DEVICE,
    LAYOUT,
    PUBLIC,
    agree,
    agree_with_exact,
    dtypes,
    mapped,
    publics,
    randn,
    with_gradients,
)

#: Their arguments cannot be derived from one tensor's shape; tests/ops has tests of each.
OF_SEVERAL_SHAPES = {
    "attention_varlen", "attention_varlen_paged", "batch_norm_backward_elemt",
    "batch_norm_backward_reduce", "batch_norm_inference", "batch_norm_stats", "bernoulli",
    "bernoulli_p", "conv2d", "grouped_mm", "grouped_swiglu", "linear_attention", "nms",
    "paged_attention", "quantized_linear", "rand", "randn", "roi_align", "sample", "scaled_mm",
    "spmv",
}  # fmt: skip
#: Their results are integers, which have no gradient.
COUNTS_AND_PLACES = {"argsort", "histc"}


def test_every_operator_is_in_the_table():
    """Except operators on lists, in-place ones and gradients, which have separate tests."""
    forwards = [x.operator for x in ladders() if not x.name.endswith(".backward")]
    one_by_one = {
        op.name for op in forwards if not op.mutated and all(a.kind != "Tensor[]" for a in op.args)
    }
    one_by_one -= {"cross_entropy_with_grad", *OF_SEVERAL_SHAPES, *COUNTS_AND_PLACES}
    without_a_ladder = {"index_select", "transpose_copy"}
    missing = (one_by_one | without_a_ladder) ^ {k.split()[0] for k in PUBLIC}
    assert not missing, "PUBLIC of publics.py has a line for each operator"


@publics
def test_a_result_on_meta_has_the_shape_of_others(public):
    tensors = public.tensors(dtype=torch.bfloat16)
    found = public.kw(*(t.to("meta") for t in tensors))
    assert found.device.type == "meta" and found.shape == public.kw(*tensors).shape


@publics
@dtypes
def test_result_and_gradients_are_pytorchs(public, dtype):
    tensors = public.tensors(dtype=dtype)
    grad = randn(*public.kw(*tensors).shape, dtype=dtype, seed=9)

    def call(fn, tensors):
        return with_gradients(fn, tensors, grad.to(tensors[0].dtype))

    agree_with_exact(call, public, tensors, dtype)


@publics
@pytest.mark.parametrize("layout", LAYOUT.values(), ids=LAYOUT)
def test_strides_change_no_result(public, layout):
    x, *rest = public.tensors()
    tensors = [layout(x), *rest]
    grad = randn(*public.kw(*tensors).shape, seed=9)

    def call(fn, tensors):
        return with_gradients(fn, tensors, grad.to(tensors[0].dtype))

    agree_with_exact(call, public, tensors, x.dtype)


@publics
def test_gradients_agree_with_finite_differences(public):
    tensors = public.tensors((2, 3, 5), torch.float64, grad=True)
    # atomics of PyTorch's kernels for float64 add in no fixed order
    assert torch.autograd.gradcheck(public.kw, tensors, nondet_tol=1e-12)


@mapped
@pytest.mark.parametrize("how", ["expanded", "transposed"])
def test_the_incoming_gradient_may_have_any_strides(public, how):
    tensors = public.tensors()
    shape = public.pytorch(*tensors).shape
    grad = torch.ones((), device=DEVICE).expand(shape)
    if how == "transposed" and len(shape) > 1:
        grad = randn(*shape, seed=4).mT.contiguous().mT

    def call(fn, tensors):
        return with_gradients(fn, tensors, grad.to(tensors[0].dtype))

    agree_with_exact(call, public, tensors, torch.float32)


@mapped
def test_the_incoming_gradient_may_be_the_result_itself(public):
    def call(fn, tensors):
        leaves = [t.detach().requires_grad_() for t in tensors]
        y = fn(*leaves)
        return torch.autograd.grad(y, leaves, y.detach())

    agree_with_exact(call, public, public.tensors(), torch.float32)


@publics
def test_without_gradient_nothing_is_saved(public):
    tensors = public.tensors(grad=True)
    with torch.no_grad():
        assert public.kw(*tensors).grad_fn is None
    assert public.kw(*tensors).grad_fn is not None
    with torch.inference_mode():
        assert public.kw(*tensors).is_inference()
    assert not public.kw(*(t.detach() for t in tensors)).requires_grad


@publics
def test_only_the_requested_gradients_are_computed(public):
    x, *rest = public.tensors()
    y = public.kw(x.requires_grad_(), *rest)
    y.sum().backward()
    assert x.grad is not None
    assert all(t.grad is None for t in rest)


def test_a_backward_fills_no_zeros_for_results_that_have_no_gradient():
    launched = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            launched.append(func.name())
            return func(*args, **(kwargs or {}))

    y = kw.rms_norm(randn(4, 6).requires_grad_(), (6,))
    g = torch.ones_like(y)
    with Recorder():
        y.backward(g)
    assert launched == ["kernelwright::rms_norm_backward", "aten::detach"]


def test_sum_is_twice_differentiable_its_gradient_being_a_view():
    x = randn(3, 4).requires_grad_()
    (gx,) = torch.autograd.grad(kw.sum(x**3), x, create_graph=True)
    (ggx,) = torch.autograd.grad(gx.sum(), x)
    torch.testing.assert_close(ggx, 6 * x)


def test_a_saved_result_that_was_changed_is_noticed():
    x = randn(3, 4).requires_grad_()
    y = kw.softmax(x, -1)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@publics
def test_checkpoint_recomputes_the_same(public):
    tensors = public.tensors()
    plain = with_gradients(public.kw, tensors)
    again = with_gradients(lambda *t: checkpoint(public.kw, *t, use_reentrant=False), tensors)
    assert all(map(same_bits, plain[1], again[1]))


@publics
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_pytorchs_dtype(public, dtype):
    for inner in (torch.float32, dtype):
        tensors = public.tensors(dtype=inner, grad=True)
        with torch.autocast(DEVICE, dtype=dtype):
            ours, theirs = public.kw(*tensors), public.pytorch(*tensors)
        assert ours.dtype == (inner if public.composed else theirs.dtype)
        (g,) = torch.autograd.grad(ours.sum(), tensors[:1])
        assert g.dtype == inner


@publics
def test_a_parameter_is_a_tensor_and_a_subclass_reaches_the_dispatcher(public):
    class Sub(torch.Tensor):
        pass

    x, *rest = public.tensors()
    want = public.kw(x, *rest)
    agree(public.kw(torch.nn.Parameter(x), *rest), want, x.dtype)
    agree(public.kw(x.as_subclass(Sub), *rest).as_subclass(torch.Tensor), want, x.dtype)


@pytest.mark.parametrize(
    ("ladder", "rung"),
    [
        pytest.param(x, r, id=f"{x.name}.{r.name}")
        for x in ladders()
        for r in x.rungs
        if r.backend == "torch" and any(c.dtype == torch.float32 for c in x.operator.cases)
    ],
)
def test_float64_stays_float64(ladder, rung):
    op = ladder.operator
    case = next(c for c in thorough_cases(ladder) if c.dtype == torch.float32)
    made = op.inputs(case, DEVICE)
    args = op.with_defaults(made)
    want = map_tensors(args, lambda t: t.double() if t.is_floating_point() else t.clone())
    got = map_tensors(want, torch.clone)
    for name in op.mutated:  # a step of adamw remains float32
        steps = map_tensors({name: got[name]}, lambda t: t.float() if t.numel() == 1 else t)
        got.update(steps)
    results = all_results(op, want, op.reference(**want))
    ours = all_results(op, got, entry_of(ladder, rung)(*got.values()))
    for mine, reference in zip(ours, results, strict=True):
        tolerance = 1e-11 if mine.dtype == torch.float64 else 1e-5
        torch.testing.assert_close(
            mine.double(), reference.double(), rtol=tolerance, atol=tolerance
        )


@mapped
@pytest.mark.parametrize("where", [0, 1])
def test_vmap_is_a_loop_over_samples(public, where):
    x, *rest = public.tensors((5, 7, 16))
    got = torch.func.vmap(public.kw, in_dims=(where, *(None for _ in rest)))(x, *rest)
    want = torch.stack([public.pytorch(s, *rest) for s in x.unbind(where)])
    agree(got, want, x.dtype)


def test_vmap_over_every_tensor():
    x, w = randn(5, 3, 16), randn(5, 16, seed=1)
    got = torch.func.vmap(lambda a, b: kw.rms_norm(a, (16,), b))(x, w)
    agree(got, torch.stack([F.rms_norm(a, (16,), b) for a, b in zip(x, w, strict=True)]), x.dtype)


def test_nested_vmap():
    x = randn(3, 4, 5, 6)
    got = torch.func.vmap(torch.func.vmap(lambda t: kw.softmax(t, 0)))(x)
    agree(got, torch.softmax(x, 2), x.dtype)


@pytest.mark.parametrize("name", ["softmax", "add", "linear_cross_entropy"])
def test_a_call_without_gradients_skips_pythons_autograd_function(name, monkeypatch):
    """Neither to bind defaults in the forward nor, for operators, to look up the backward."""

    def reached(*args, **kwargs):
        raise AssertionError("a layer for watchers")

    public = PUBLIC[name]
    tensors = public.tensors(grad=True)
    expected = with_gradients(public.kw, tensors)
    monkeypatch.setattr("inspect.signature", reached)
    if name != "linear_cross_entropy":
        monkeypatch.setattr(torch.autograd.function.BackwardCFunction, "apply", reached)
    found = with_gradients(public.kw, tensors)
    monkeypatch.undo()
    torch.testing.assert_close(found, expected)
