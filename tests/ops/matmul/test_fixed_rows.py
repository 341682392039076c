"""linear.fixed_rows and matmul.fixed_rows: a row's bits do not depend on the rows beside it."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from support.publics import DEVICE, randn

FIXED = {"linear": "fixed_rows", "matmul": "fixed_rows"}
ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh", "silu")
pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="cuBLAS is another library")


def layer(draw, dtype):
    """(weight, bias, activation, gate of a row, residual of a row)."""
    n, k = (draw.choice((draw.randint(1, 12), draw.randint(1, 300), 64, 96)) for _ in range(2))
    maybe = (draw.choice((None, randn(n, dtype=dtype, seed=i))) for i in (1, 3, 4))
    return randn(n, k, dtype=dtype, seed=2), *maybe, draw.choice(ACTIVATIONS)


def applied(x, weight, bias, gate, residual, activation):
    shape = (x.shape[0], weight.shape[0])
    gate, residual = (None if t is None else t.expand(shape) for t in (gate, residual))
    return kw.linear(x, weight, bias, activation=activation, gate=gate, residual=residual)


def depends_on_the_batch(draw, dtype, of_layer):
    rows = draw.choice((1, draw.randint(1, 15), 16, draw.randint(17, 70)))
    x = randn(rows, of_layer[0].shape[1], dtype=dtype, seed=5)
    y = applied(x, *of_layer)
    chosen = torch.tensor(draw.choices(range(rows), k=draw.randint(1, 40)))
    return not torch.equal(applied(x[chosen], *of_layer), y[chosen])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_is_the_same_in_any_batch(dtype, threads):
    """10 random layers each. PyTorch's own product fails on some, so the test can fail."""
    draw = random.Random(f"{dtype} {threads}")
    layers, before = [layer(draw, dtype) for _ in range(10)], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with kw.use(FIXED):
            assert not any(depends_on_the_batch(draw, dtype, x) for x in layers for _ in range(3))
        if dtype != torch.bfloat16:  # of which oneDNN's rows are alike
            assert any(depends_on_the_batch(draw, dtype, x) for x in layers for _ in range(10))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_pytorch(activation):
    x, w, b, g, r = (
        randn(*s, dtype=torch.float64, seed=i)
        for i, s in enumerate(((21, 19), (7, 19), (7,), (21, 7), (21, 7)))
    )
    with kw.use(FIXED):
        y = kw.linear(x, w, b, activation=activation, gate=g, residual=r)
        plain, none = kw.linear(x, w), kw.linear(x[:0], w, b)
        pairs = kw.matmul(x.view(3, 7, 19), x.view(3, 7, 19).mT)
    acts = {
        None: lambda z: z, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
        "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    }  # fmt: skip
    torch.testing.assert_close(y, acts[activation](F.linear(x, w, b)) * g + r)
    torch.testing.assert_close(plain, x @ w.t())
    torch.testing.assert_close(pairs, x.view(3, 7, 19) @ x.view(3, 7, 19).mT)
    assert none.shape == (0, 7)
