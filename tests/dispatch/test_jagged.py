"""Operators on jagged tensors, compared with the same operators on each sample."""

import pytest
import torch

import kernelwright as kw
from support.publics import DEVICE, agree, fullgraph, randn

W, B = randn(8, seed=7), randn(8, seed=8)
CALLS = {
    "relu": kw.relu,
    "silu": kw.silu,
    "gelu": lambda x: kw.gelu(x, approximate="tanh"),
    "add": lambda x: kw.add(x, x),
    "mul by a row": lambda x: kw.mul(x, W),
    "add of a batch of one": lambda x: kw.add(x, B.view(1, 1, 8)) if x.is_nested else x + B,
    "swiglu": lambda x: kw.swiglu(x, 1 - x),
    "bias_gelu": lambda x: kw.bias_gelu(x, B),
    "softmax": lambda x: kw.softmax(x, -1),
    "log_softmax": lambda x: kw.log_softmax(x, -1),
    "layer_norm": lambda x: kw.layer_norm(x, 8, W, B),
    "rms_norm": lambda x: kw.rms_norm(x, 8, W),
    "add_rms_norm": lambda x: kw.add(*kw.add_rms_norm(x, x, 8, W)),
    "sum": lambda x: kw.sum(x, -1),
}
SAMPLES = [randn(3, 8), randn(5, 8, seed=1), randn(1, 8, seed=2)]


def jagged(samples=SAMPLES):
    return torch.nested.nested_tensor(samples, layout=torch.jagged, device=DEVICE)


@pytest.mark.parametrize("name", CALLS)
def test_each_sample_as_by_itself(name):
    x = jagged().requires_grad_()
    y = CALLS[name](x)
    assert y.is_nested and y.layout == torch.jagged and y.shape[1] == x.shape[1]
    leaves = [s.clone().requires_grad_() for s in SAMPLES]
    alone = [CALLS[name](s) for s in leaves]
    for mine, right in zip(y.unbind(), alone, strict=True):
        agree(mine, right, torch.float32)
    (gx,) = torch.autograd.grad(y.values().square().sum(), x)
    gradients = torch.autograd.grad(sum(a.square().sum() for a in alone), leaves)
    for mine, right in zip(gx.unbind(), gradients, strict=True):
        agree(mine, right, torch.float32)


def test_samples_with_gaps_between_them():
    values = randn(3, 6, 8)
    starts, lengths = torch.tensor([[0, 1, 2], [2, 5, 4]], device=values.device)
    x = torch.nested.narrow(values, 1, starts, lengths, layout=torch.jagged)
    y = kw.softmax(x, -1)
    for mine, sample in zip(y.unbind(), x.unbind(), strict=True):
        agree(mine, torch.softmax(sample, -1), torch.float32)


def test_a_jagged_dimension_elsewhere():
    x = jagged().transpose(1, 2)  # rows of different lengths
    for mine, sample in zip(kw.silu(x).unbind(), x.unbind(), strict=True):
        agree(mine, kw.silu(sample), torch.float32)
    with pytest.raises(
        NotImplementedError, match="x: is jagged, which softmax does not support here"
    ):
        kw.softmax(x, -1)


def test_embedding_of_jagged_indices():
    table = randn(7, 4)
    samples = [torch.tensor([1, 2, 6], device=DEVICE), torch.tensor([0], device=DEVICE)]
    y = kw.embedding(jagged(samples), table)
    assert [len(s) for s in y.unbind()] == [3, 1]
    assert torch.equal(y.values(), table[torch.cat(samples)])


def test_what_depends_on_other_samples_is_refused():
    x = jagged()
    with pytest.raises(
        NotImplementedError, match="x: is jagged, which softmax does not support here"
    ):
        kw.softmax(x, 1)
    with pytest.raises(NotImplementedError, match=r"input: is jagged; pass values\(\)"):
        kw.cross_entropy(x, x)
    with pytest.raises(NotImplementedError, match=r"input: is jagged in dim"):
        kw.log_softmax(x, 1)


def test_samples_of_other_lengths_are_named():
    other = jagged([randn(4, 8), randn(4, 8), randn(1, 8)])
    with pytest.raises(ValueError, match="other: "):
        kw.mul(jagged(), other)
    with pytest.raises(ValueError, match=r"other: shape \(3, 1, 8\) does not fit samples"):
        kw.mul(jagged(), randn(3, 1, 8))


@pytest.mark.parametrize("name", ["silu", "softmax", "layer_norm"])
def test_compiled(name):
    x = jagged()
    y = fullgraph(CALLS[name])(x)
    agree(y.values(), CALLS[name](x.values()), torch.float32)
