"""Tests of max_pool2d: any window on any rung, the chosen pixel, indices, formats."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.dispatch import launcher, specs_of
from kernelwright.ops.vision.max_pool2d import LADDER, LADDER_BACKWARD
from support.publics import DEVICE, randn, with_gradients

GPU = [r.name for r in (*LADDER.rungs, *LADDER_BACKWARD.rungs) if r.is_gpu]
NAN, INF = float("nan"), float("inf")


USUAL = (([2, 2], [2, 2], [0, 0]), ([3, 3], [2, 2], [1, 1]), ([3, 3], [1, 1], [1, 1]))


def geometries(seed, count, kernels=((2, 2), (3, 3), (3, 2), (1, 4))):
    draw = random.Random(seed)
    while count:
        kernel = list(draw.choice(kernels))
        stride = [draw.choice((1, 2, 2, 3)) for _ in range(2)]
        padding = [draw.randint(0, k // 2) for k in kernel]
        dilation = [draw.choice((1, 1, 1, 2)) for _ in range(2)]
        shape = (2, draw.choice((1, 8)), draw.randint(5, 12), draw.choice((5, 7, 8, 12, 16)))
        if draw.random() < 0.5:  # rows of whole vectors
            kernel, stride, padding = draw.choice(USUAL)
            shape, dilation = (2, 1, shape[2], draw.choice((8, 12, 16))), [1, 1]
        yield shape, kernel, stride, padding, dilation, draw.random() < 0.4
        count -= 1


def as_images(t):
    return t.permute(0, 2, 3, 1).contiguous()


@pytest.mark.parametrize("rung", sorted(set(GPU)))
def test_any_window_both_ways(rung):
    ran = 0
    for shape, *geometry in geometries(11, 16):
        x = randn(*shape).round()  # many pixels are equal
        gy = randn(*F.max_pool2d(x, *geometry).shape, seed=2)
        y, (gx,) = with_gradients(lambda t, g=geometry: F.max_pool2d(t, *g), [x], gy)
        args = dict(zip(("kernel", "stride", "padding", "dilation", "ceil"), geometry, strict=True))
        args = {"hw": list(shape[2:]), **args, "keep": True}
        results = run(LADDER, rung, {"x": as_images(x), **args})
        _, at = launcher(LADDER, {"x": as_images(x), **args}, "manual")(
            as_images(x), *args.values()
        )
        if results:
            ran += 1
            assert torch.equal(results[0], as_images(y)) and torch.equal(results[1], at)
        found = run(LADDER_BACKWARD, rung, {"gy": as_images(gy), "at": at, **args})
        if found is not None:
            ran += 1
            torch.testing.assert_close(found, as_images(gx))
    assert ran >= 5


def run(ladder, rung, args):
    """The rung's results, or None if the rung is absent or does not take the call."""
    if rung not in ladder.names or ladder.rung(rung).supports(H200, **specs_of(args)):
        return None
    return launcher(ladder, args, rung)(*args.values())


@pytest.mark.parametrize("name", ["manual", "native", "cuda_naive", "cuda_rows"])
def test_which_pixel_is_chosen(name):
    """The first of equal pixels, the last NaN, or the first pixel inside if all are -inf."""
    windows = [[1, 3, 3, 2], [NAN, 5, NAN, 9], [-INF] * 4, [0.0, -0.0, -1, 0.0], [INF, NAN, INF, 0]]
    x = torch.tensor(windows, device=DEVICE).view(5, 2, 2, 1)
    args = {"x": x, "hw": [2, 2], "kernel": [2, 2], "stride": [2, 2], "padding": [0, 0],
            "dilation": [1, 1], "ceil": False, "keep": True}  # fmt: skip
    y, at = launcher(LADDER, args, name)(*args.values())
    assert at.flatten().tolist() == [1, 2, 0, 0, 1]
    assert y.flatten().nan_to_num(7, INF, -INF).tolist() == [3, 7, -INF, 0, 7]
    low = {**args, "x": torch.full((1, 2, 2, 1), -INF, device=DEVICE), "padding": [1, 1]}
    _, at = launcher(LADDER, low, name)(*low.values())
    assert at.flatten().tolist() == [3, 2, 1, 0]  # the only one inside


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "how", [(2,), (3, 2, 1), ((2, 3), (1, 2), (1, 0), 2), (3, 2, 1, 1, True)], ids=str
)
def test_as_pytorch_with_indices(channels_last, how):
    x = randn(2, 3, 9, 8)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    mine, right = (
        with_gradients(lambda t, f=f: f(t, *how), [x]) for f in (kw.max_pool2d, F.max_pool2d)
    )
    assert torch.equal(mine[0], right[0]) and mine[0].stride() == right[0].stride()
    torch.testing.assert_close(mine[1], right[1])
    more = dict(zip(("stride", "padding", "dilation", "ceil_mode"), how[1:], strict=False))
    ours, theirs = (
        f(x, how[0], **more, return_indices=True) for f in (kw.max_pool2d, F.max_pool2d)
    )
    assert torch.equal(ours[1], theirs[1]) and ours[1].dtype == torch.int64


def test_integers_and_images_without_a_batch():
    x = torch.arange(48).view(3, 4, 4)  # PyTorch has no kernel for integers on a GPU
    assert torch.equal(kw.max_pool2d(x, 2), F.max_pool2d(x, 2))
    x = x.to(DEVICE)
    assert torch.equal(kw.max_pool2d(x.float(), 20, 1, 10), F.max_pool2d(x.float(), 20, 1, 10))


@pytest.mark.parametrize(
    ("input", "more", "error", "words"),
    [
        (torch.ones(3, 3), {}, ValueError, "input: has 2 dimensions"),
        (torch.ones(1, 3, 3) > 0, {}, TypeError, "input: must be real numbers"),
        (torch.ones(1, 0, 3), {}, ValueError, "input: has no pixels"),
        (torch.ones(1, 3, 3), {"kernel_size": 4}, ValueError, "kernel_size: 4 is larger than"),
        (torch.ones(1, 3, 3), {"kernel_size": (2, 2, 2)}, TypeError, "kernel_size: must be one or"),
        (torch.ones(1, 3, 3), {"padding": 2}, ValueError, "padding: 2 is more than half"),
        (torch.ones(1, 3, 3), {"stride": 0}, ValueError, "stride: must be at least 1"),
        (torch.ones(1, 3, 3), {"dilation": 0}, ValueError, "dilation: must be at least 1"),
    ],
)
def test_what_is_wrong_is_named(input, more, error, words):
    with pytest.raises(error, match=words):
        kw.max_pool2d(input, **{"kernel_size": 2, **more})
