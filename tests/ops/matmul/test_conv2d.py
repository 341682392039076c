"""conv2d: meaning, gradients and errors of the public function."""

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from support.publics import fullgraph, randn

F64 = torch.float64


@pytest.mark.parametrize(
    "geometry",
    [{}, {"stride": 2, "padding": 1}, {"stride": (1, 2), "padding": (2, 0), "dilation": (2, 1)}],
    ids=str,
)
@pytest.mark.parametrize("bias", [False, True])
def test_means_what_torch_means(geometry, bias):
    shapes = [(2, 3, 9, 8), (4, 3, 3, 2)] + [(4,)] * bias
    leaves = [randn(*s, dtype=F64, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    y, want = kw.conv2d(*leaves, **geometry), F.conv2d(*leaves, **geometry)
    torch.testing.assert_close(y, want)
    assert y.is_contiguous(memory_format=torch.channels_last)
    g = randn(*want.shape, dtype=F64, seed=5)
    torch.testing.assert_close(
        torch.autograd.grad(y, leaves, g), torch.autograd.grad(want, leaves, g)
    )


def test_compiles_without_a_break():
    x, w = randn(2, 3, 9, 8), randn(4, 3, 3, 2, seed=1)
    call = fullgraph(lambda x, w: kw.conv2d(x, w, padding=1))
    torch.testing.assert_close(call(x, w), F.conv2d(x, w, padding=1))


@pytest.mark.parametrize(
    ("args", "more", "error", "message"),
    [
        ((randn(2, 3, 9), randn(4, 3, 3, 2)), {}, ValueError, "input: has 3"),
        ((randn(2, 3, 9, 8), randn(4, 5, 3, 2)), {}, ValueError, "weight: has shape"),
        ((randn(2, 3, 9, 8), randn(4, 3, 3, 2).half()), {}, TypeError, "weight: is"),
        ((randn(2, 3, 9, 8), randn(4, 3, 3, 2), randn(5)), {}, ValueError, "bias: has shape"),
        ((randn(2, 3, 2, 8), randn(4, 3, 3, 2)), {}, ValueError, "input: its height"),
        ((randn(2, 3, 9, 8), randn(4, 3, 3, 2)), {"stride": 0}, ValueError, "stride: 0"),
        ((randn(2, 3, 9, 8), randn(4, 3, 3, 2)), {"padding": (1, 2, 3)}, ValueError, "padding: "),
    ],
)
def test_errors_name_the_argument(args, more, error, message):
    with pytest.raises(error, match=message):
        kw.conv2d(*args, **more)
