"""Forward mode and double backward, compared with finite differences and with PyTorch."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import kernelwright as kw
from kernelwright.dispatch import once
from support.publics import DEVICE, PUBLIC, agree, fullgraph, mapped, publics, randn

# gradients that were computed with the loss
ONCE = {"linear_cross_entropy"}
TWICE = {k: v for k, v in PUBLIC.items() if k not in ONCE}
twice = pytest.mark.parametrize("public", TWICE.values(), ids=TWICE)


@publics
def test_forward_mode_agrees_with_finite_differences(public):
    tensors = public.tensors((2, 3, 5), torch.float64, grad=True)
    # atomics of PyTorch's kernels for float64 add in no fixed order
    assert torch.autograd.gradcheck(
        public.kw, tensors, check_forward_ad=True, fast_mode=True, nondet_tol=1e-12
    )


@twice
def test_double_backward_agrees_with_finite_differences(public):
    tensors = public.tensors((2, 3, 5), torch.float64, grad=True)
    assert torch.autograd.gradgradcheck(public.kw, tensors, fast_mode=True)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "cross_entropy", "gelu"])
def test_forward_over_reverse_and_a_third_derivative(name):
    public = PUBLIC[name]
    tensors = public.tensors((2, 2, 3), torch.float64, grad=True)
    assert torch.autograd.gradgradcheck(public.kw, tensors, fast_mode=True, check_fwd_over_rev=True)

    def once(*t):
        return torch.autograd.grad(public.kw(*t).square().sum(), t, create_graph=True)

    assert torch.autograd.gradgradcheck(once, tensors, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@mapped
@sdpa_kernel(SDPBackend.MATH)  # PyTorch's others have no second or forward derivative
def test_both_are_pytorchs(public, dtype):
    """Gradients of a gradient's square, and a derivative along a direction."""
    tensors = public.tensors((3, 4, 9), dtype)
    again, along = [], []
    for fn in (public.kw, public.pytorch):
        leaves = [t.detach().requires_grad_() for t in tensors]
        if public is not PUBLIC["linear_cross_entropy"]:
            gx = torch.autograd.grad(fn(*leaves).float().pow(3).sum(), leaves, create_graph=True)
            penalty = sum(g.float().square().sum() for g in gx)
            again.append([g.double() for g in torch.autograd.grad(penalty, leaves)])
        direction = tuple(randn(*t.shape, dtype=dtype, seed=5) for t in tensors)
        along.append(torch.func.jvp(fn, tuple(tensors), direction)[1].double())
    slack = {torch.float32: 1e-4, torch.bfloat16: 6e-2}[dtype]
    for mine, right in zip(*again, strict=True) if again else ():
        torch.testing.assert_close(mine, right, rtol=slack, atol=slack * right.abs().max().item())
    if along:
        torch.testing.assert_close(*along, rtol=slack, atol=slack * along[1].abs().max().item())


TARGET = torch.tensor([0, 3, -100, 6, 1], device=DEVICE)
OPTIONS = {
    "norm of a large eps": lambda x, w: kw.layer_norm(x, 7, w, None, 0.5),
    "offset": lambda x, w: kw.rms_norm(x, 7, w, 0.5, offset=1.0),
    "loss": lambda x, w: kw.cross_entropy(
        x, TARGET, torch.arange(1.0, 8, dtype=x.dtype, device=DEVICE), label_smoothing=0.1,
        z_loss=0.01, softcap=2.0,
    ) * w.sum(),
    "losses": lambda x, w: kw.cross_entropy(x, TARGET, reduction="none", softcap=2.0) * w.sum(),
    "class probabilities": lambda x, w: kw.cross_entropy(x, w.expand(5, 7).softmax(-1), z_loss=0.1),
    "product of one and the same": lambda x, w: kw.mul(x, x) + w,
    "product by a constant": lambda x, w: kw.mul(x, randn(5, 7, dtype=x.dtype, seed=3)) * w,
}  # fmt: skip


@pytest.mark.parametrize("call", OPTIONS.values(), ids=OPTIONS)
def test_options_count_in_both(call):
    tensors = [randn(5, 7, dtype=torch.float64), randn(7, dtype=torch.float64, seed=1)]
    tensors = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(call, tensors, check_forward_ad=True, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, tensors, fast_mode=True)


def test_a_gradient_penalty_under_vmap():
    x = randn(4, 6)

    def penalty(fn):
        return lambda s: torch.func.grad(lambda t: fn(t, -1)[0])(s).square().sum()

    ours, theirs = (
        torch.func.vmap(torch.func.grad(penalty(f)))(x) for f in (kw.softmax, torch.softmax)
    )
    agree(ours, theirs, x.dtype)


def test_a_dual_level_without_tangents_changes_nothing():
    x = randn(3, 4)
    with forward_ad.dual_level():
        agree(kw.softmax(x, -1), torch.softmax(x, -1), x.dtype)


def _by_backward(gx, x, weight):
    (gx.square().sum() + x.sum()).backward()


#: Ways to differentiate a gradient again.
AGAIN = {
    "backward": _by_backward,
    "named input": lambda gx, x, weight: torch.autograd.grad(gx.square().sum(), x),
    "named weight": lambda gx, x, weight: torch.autograd.grad(gx.square().sum(), weight),
    "backward to named inputs": lambda gx, x, weight: gx.sum().backward(inputs=[x]),
}


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_double_backward_of_linear_cross_entropy_names_the_alternative(again, reduction):
    hidden, weight = randn(3, 4).requires_grad_(), randn(5, 4, seed=1).requires_grad_()
    x, target = hidden.square(), torch.tensor([0, 4, 1], device=DEVICE)
    loss = kw.linear_cross_entropy(x, weight, target, reduction=reduction).sum()
    (gx,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"use kw\.linear and kw\.cross_entropy"):
        again(gx, hidden, weight)


def test_autograds_hessian_of_linear_cross_entropy_names_the_alternative():
    public = PUBLIC["linear_cross_entropy"]
    with pytest.raises(NotImplementedError, match=r"use kw\.linear and kw\.cross_entropy"):
        torch.autograd.functional.hessian(public.kw, public.tensors((4, 6))[0])


class _Constants(torch.autograd.Function):
    """Saves nothing that an input of the second derivative can be reached from."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(2 * x.detach())
        return x.detach().square()

    @staticmethod
    @once("square: use kw.mul")
    def backward(ctx, gy):
        return gy * ctx.saved_tensors[0]


def test_a_gradient_of_constants_alone_refuses_to_be_in_a_graph():
    x = randn(3).requires_grad_()
    y = _Constants.apply(x).sum()
    with pytest.raises(NotImplementedError, match=r"square: use kw\.mul"):
        torch.autograd.grad(y, x, create_graph=True)
    _Constants.apply(x).sum().backward()
    agree(x.grad, 2 * x.detach(), x.dtype)


def test_a_penalty_through_a_checkpoint_unpacks_once():
    public = PUBLIC["linear_cross_entropy"]
    (x,) = public.tensors((4, 6), grad=True)
    y = checkpoint(public.kw, x, use_reentrant=False)
    (gx,) = torch.autograd.grad(y, x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"use kw\.linear and kw\.cross_entropy"):
        torch.autograd.grad(gx.sum(), x)


def test_a_gradient_by_torch_func_of_what_autograd_follows():
    public, found = PUBLIC["linear_cross_entropy"], []
    for fn in (public.kw, public.pytorch):
        (x,) = public.tensors((4, 6), grad=True)
        torch.func.grad(fn)(x).square().sum().backward()
        found.append(x.grad)
    agree(*found, torch.float16)
    assert found[1].any()


def test_arguments_that_change_refuse_forward_mode():
    p = torch.nn.Parameter(randn(3))
    p.grad = randn(3)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="outside of them"):
        kw.clip_grads_with_norm_([p], 1.0, torch.ones((), device=DEVICE))


def test_forward_mode_compiled():
    x, t = randn(3, 4), randn(3, 4, seed=1)
    ours, theirs = (
        fullgraph(lambda a, b, f=f: torch.func.jvp(lambda s: f(s, -1), (a,), (b,)))(x, t)
        for f in (kw.softmax, torch.softmax)
    )
    agree(ours, theirs, x.dtype)
