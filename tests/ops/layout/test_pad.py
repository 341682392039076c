"""Tests of pad: margins of any dimensions, merging, negative amounts."""

import math
import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import TensorSpec
from kernelwright.dispatch import launcher
from kernelwright.ops.layout.pad import LADDER, boxes
from support.publics import DEVICE, randn, with_gradients

GPU = [r.name for r in LADDER.rungs if r.is_gpu]


@pytest.mark.parametrize("rung", GPU)
def test_any_margin_of_any_view(rung):
    """Rows, margins and x share vectors of the result."""
    draw = random.Random(5)
    for _ in range(8):
        ndim = draw.randint(1, 4)
        shape = [draw.choice((1, 2, 3, 8, 16)) for _ in range(ndim)]
        x = randn(math.prod(shape) + 1)[1:].view(shape)  # not 16-byte aligned: loaded by elements
        x = x.permute(draw.sample(range(ndim), ndim))
        amounts = [draw.choice((0, 0, 1, 3, 8)) for _ in range(2 * draw.randint(0, ndim))]
        args = {"x": x, "pad": amounts, "value": -2.5}
        got = launcher(LADDER, args, rung)(*args.values())
        assert torch.equal(got, F.pad(x, amounts, value=-2.5)), (x.shape, x.stride(), amounts)


def test_dimensions_without_margins_are_merged():
    """Tokens of (batch, tokens, features) are padded as rows of tokens times features."""
    x = TensorSpec.contiguous((4, 5, 6, 7), torch.float32)
    assert boxes.walk(x, (0, 0, 0, 0, 1, 2)) == ((4, 4, 0, 210), (8 * 42, 5 * 42, 42, 1))
    assert len(boxes.walk(x, (1, 0))) == 2
    assert boxes.walk(x, ()) == ((840, 840, 0, 1),)


@pytest.mark.parametrize(
    "amounts", [(1, 2), [0, 0, 3, 0], (-1, 2, 1, -3), (-2, -3), (-5, 0), (), (-6, 8)]
)
def test_negative_padding_and_its_gradient(amounts):
    x = randn(2, 4, 6)
    mine, right = (
        with_gradients(lambda t, f=f: f(t, amounts, value=0.5), [x]) for f in (kw.pad, F.pad)
    )
    assert torch.equal(mine[0], right[0]) and torch.equal(mine[1][0], right[1][0])
    assert mine[0].is_contiguous()


def test_integers_and_scalars():
    x = torch.arange(6, device=DEVICE).view(2, 3)
    assert torch.equal(kw.pad(x, (1, 0), value=7), F.pad(x, (1, 0), value=7))
    assert torch.equal(kw.pad(x > 2, (1, 0), value=1), F.pad(x > 2, (1, 0), value=True))
    assert kw.pad(torch.tensor(2.0, device=DEVICE), ()) == 2


@pytest.mark.parametrize(
    ("amounts", "more", "error", "words"),
    [
        ((1,), {}, ValueError, "pad: has 1 numbers"),
        ((1,) * 6, {}, ValueError, "pad: has 6 numbers; must have two for each of up to 2"),
        ((-2, -3), {}, ValueError, "pad: takes 5 elements from dimension 1, which has 4"),
        ((1.5, 0), {}, TypeError, "pad: must be a sequence of integers"),
        (3, {}, TypeError, "pad: must be a sequence of integers"),
        ((1, 1), {"mode": "reflect"}, NotImplementedError, "mode: 'reflect' is not implemented"),
    ],
)
def test_what_is_wrong_is_named(amounts, more, error, words):
    with pytest.raises(error, match=words):
        kw.pad(randn(3, 4), amounts, **more)
