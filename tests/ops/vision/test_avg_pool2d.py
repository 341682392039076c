"""Tests of avg_pool2d: any window on any rung, divisors, formats."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.dispatch import launcher, specs_of
from kernelwright.ops.vision.avg_pool2d import LADDER, LADDER_BACKWARD
from support.publics import DEVICE, randn, with_gradients

GPU = sorted({r.name for r in (*LADDER.rungs, *LADDER_BACKWARD.rungs) if r.is_gpu})


USUAL = (([2, 2], [2, 2], [0, 0]), ([3, 3], [2, 2], [1, 1]), ([3, 3], [1, 1], [1, 1]))


def geometries(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        kernel = list(draw.choice(((2, 2), (3, 3), (3, 2), (1, 4))))
        stride = [draw.choice((1, 2, 2, 3)) for _ in range(2)]
        padding = [draw.randint(0, k // 2) for k in kernel]
        shape = (2, draw.choice((1, 8)), draw.randint(5, 12), draw.choice((5, 7, 8, 12, 16)))
        if draw.random() < 0.5:  # rows of whole vectors
            kernel, stride, padding = draw.choice(USUAL)
            shape = (2, 1, shape[2], draw.choice((8, 12, 16)))
        ceil, counted = draw.random() < 0.5, draw.random() < 0.5
        yield shape, kernel, stride, padding, ceil, counted, draw.choice((0, 0, 5))


def as_images(t):
    return t.permute(0, 2, 3, 1).contiguous()


def run(ladder, rung, args):
    """The rung's result, or None if the rung is absent or does not take the call."""
    if rung not in ladder.names or ladder.rung(rung).supports(H200, **specs_of(args)):
        return None
    return launcher(ladder, args, rung)(*args.values())


@pytest.mark.parametrize("rung", GPU)
def test_any_window_both_ways(rung):
    ran = 0
    for shape, *geometry, divisor in geometries(11, 14):
        x = randn(*shape)
        y, (gx,) = with_gradients(
            lambda t, g=geometry, d=divisor: F.avg_pool2d(t, *g, d or None), [x]
        )
        gy = randn(*y.shape, seed=9)
        names = ("hw", "kernel", "stride", "padding", "ceil", "count_padding", "divisor")
        args = dict(zip(names, (list(shape[2:]), *geometry, divisor), strict=True))
        for ladder, given, right in (
            (LADDER, {"x": as_images(x)}, y),
            (LADDER_BACKWARD, {"gy": as_images(gy)}, gx),
        ):
            found = run(ladder, rung, {**given, **args})
            if found is not None:
                ran += 1
                torch.testing.assert_close(found, as_images(right))
    assert ran >= 6


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "how",
    [(2,), (3, 2, 1, False, False), ((2, 3), (1, 2), (1, 0), True), (3, 2, 1, True, True, -4)],
)
def test_as_pytorch(channels_last, how):
    x = randn(2, 3, 9, 8)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    grad = randn(*F.avg_pool2d(x, *how).shape, seed=9)
    mine = with_gradients(lambda t: kw.avg_pool2d(t, *how), [x], grad)
    right = with_gradients(lambda t: F.avg_pool2d(t, *how), [x.cpu()], grad.cpu())
    assert mine[0].stride() == right[0].stride()
    torch.testing.assert_close(mine, right, check_device=False)


def test_images_without_a_batch_and_large_windows():
    x = torch.arange(48.0, device=DEVICE).view(3, 4, 4)
    torch.testing.assert_close(kw.avg_pool2d(x, 4), F.avg_pool2d(x, 4))
    torch.testing.assert_close(kw.avg_pool2d(x, 20, 1, 10), F.avg_pool2d(x, 20, 1, 10))


@pytest.mark.parametrize(
    ("input", "more", "error", "words"),
    [
        (torch.ones(3, 3), {}, ValueError, "input: has 2 dimensions"),
        (torch.ones(1, 3, 3) > 0, {}, TypeError, "input: must be real numbers"),
        (torch.ones(1, 3, 3), {"divisor_override": 0}, ValueError, "divisor_override: must not"),
        (torch.ones(1, 3, 3), {"padding": 2}, ValueError, "padding: 2 is more than half"),
    ],
)
def test_what_is_wrong_is_named(input, more, error, words):
    with pytest.raises(error, match=words):
        kw.avg_pool2d(input, **{"kernel_size": 2, **more})
