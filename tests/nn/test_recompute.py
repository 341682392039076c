"""A product that recomputes its operand in the backward: what it saves, and its gradients."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from kernelwright.nn.recompute import recomputed_product
from kernelwright.train.memory import Storages


def _operands():
    draw = torch.Generator().manual_seed(0)
    sizes = (2, 3, 8), (2, 3, 8), (5, 8)
    return [torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_() for s in sizes]


def swiglu(gate, up):
    return F.silu(gate) * up


def ours(gate, up, weight):
    return recomputed_product(lambda hidden: F.linear(hidden, weight), swiglu, (gate, up))


def theirs(gate, up, weight):
    return F.linear(swiglu(gate, up), weight)


def _gradients(function, around=nullcontext):
    operands = _operands()
    with around():
        y = function(*operands)
    return torch.autograd.grad(y.sin().sum(), operands)


@pytest.mark.parametrize("around", [nullcontext, save_on_cpu])
@pytest.mark.parametrize("again", [False, True], ids=["once", "checkpoint"])
def test_gradients_are_those_of_the_two_operators(around, again):
    """Also where other hooks of saved tensors are active."""
    function = partial(checkpoint, ours, use_reentrant=False) if again else ours
    for found, want in zip(_gradients(function, around), _gradients(theirs), strict=True):
        assert torch.equal(found, want)


def test_other_hooks_see_the_inputs_and_not_the_result():
    gate, up, weight = _operands()
    seen = []

    def saved(t):
        seen.append(t.data_ptr())
        return t

    hidden = []

    def product(h):
        hidden.append(h.data_ptr())
        seen.clear()  # those of the activation
        return F.linear(h, weight)

    with saved_tensors_hooks(saved, lambda t: t):
        y = recomputed_product(product, swiglu, (gate, up))
    assert hidden[0] not in seen
    assert {gate.data_ptr(), up.data_ptr()} <= set(seen)
    y.sum().backward()


def test_the_result_is_freed_with_its_last_use():
    gate, up, weight = _operands()
    calls = []

    def again(*inputs):
        calls.append(inputs)
        return swiglu(*inputs)

    def product(hidden):
        return F.linear(hidden, weight) + F.linear(hidden, 2 * weight)

    y = recomputed_product(product, swiglu, (gate, up), again)
    for times in (1, 2):  # a retained graph computes it again
        y.sum().backward(retain_graph=True)
        assert len(calls) == times


def test_an_input_changed_in_place_is_an_error():
    gate, up, weight = (t.detach() for t in _operands())
    y = ours(gate, up, weight.requires_grad_())
    up.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_fake_tensors_save_as_little():
    """`train` predicts its memory on them."""
    live = []
    with FakeTensorMode():
        for function in (ours, theirs):
            operands = [torch.empty(t.shape, requires_grad=True) for t in _operands()]
            storages = Storages()
            storages.add(operands)
            with storages:
                y = function(*operands)
                live.append(storages.live)
            del y
    hidden = 4 * 2 * 3 * 8  # bytes
    assert live[1] - live[0] == hidden


def test_gradients_are_differentiated():
    assert torch.autograd.gradgradcheck(ours, _operands())
