"""Tests of upsample_nearest2d: any scale on any rung, memory formats, arguments."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.dispatch import launcher, specs_of
from kernelwright.ops.vision.upsample_nearest2d import LADDER, LADDER_BACKWARD
from support.publics import randn, with_gradients

CUDA = [r for r in LADDER.rungs if r.is_gpu]


def run(ladder, rung, args):
    """The rung's result, or None if it does not take the call."""
    if rung.supports(H200, **specs_of(args)):
        return None
    return launcher(ladder, args, rung.name)(*args.values())


@pytest.mark.parametrize("rung", [r.name for r in CUDA])
def test_any_size_both_ways(rung):
    draw, ran = random.Random(3), 0
    for k in range(10):
        n, h, w = draw.randint(1, 3), draw.randint(1, 9), draw.choice((1, 4, 5, 8, 12))
        c = draw.choice((1, 1, 1, 8, 16))
        size = [h * 2, w * 2] if k % 2 else [draw.randint(1, 20), draw.randint(1, 20)]
        x = randn(n, c, h, w, seed=k)
        y, (gx,) = with_gradients(lambda t, s=size: F.interpolate(t, s), [x])
        gy = randn(*y.shape, seed=9)
        common = {"hw": [h, w], "size": size, "given": False, "scale_h": 0.0, "scale_w": 0.0}
        x, y, gx, gy = (
            t.permute(0, 2, 3, 1).contiguous() if c > 1 else t[:, 0, :, :, None]
            for t in (x, y, gx, gy)
        )
        for ladder, args, right in (
            (LADDER, {"x": x, **common}, y),
            (LADDER_BACKWARD, {"gy": gy, **common}, gx),
        ):
            found = run(ladder, ladder.rung(rung), args)
            if found is not None:
                ran += 1
                torch.testing.assert_close(found, right)
    assert ran >= 4


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "how",
    [{"size": (7, 4)}, {"size": 6}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)}],
    ids=str,
)
def test_as_pytorch_in_both_formats(channels_last, how):
    x = randn(2, 3, 5, 6)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    mine, right = (
        with_gradients(lambda t, f=f: f(t, **how), [x])
        for f in (kw.upsample_nearest2d, F.interpolate)
    )
    assert torch.equal(mine[0], right[0]) and mine[0].stride() == right[0].stride()
    torch.testing.assert_close(mine[1], right[1])


def test_views():
    part = randn(2, 8, 6, 8).to(memory_format=torch.channels_last)[:, 2:5, 1:, 2:]
    assert torch.equal(kw.upsample_nearest2d(part, 9), F.interpolate(part, 9))


@pytest.mark.parametrize(
    ("input", "more", "error", "words"),
    [
        (torch.ones(2, 3, 4), {"size": 2}, ValueError, "input: has 3 dimensions"),
        (torch.ones(1, 2, 3, 4).int(), {"size": 2}, TypeError, "input: must be floating point"),
        (torch.ones(1, 2, 0, 3), {"size": 2}, ValueError, "input: has no pixels"),
        (torch.ones(1, 2, 3, 3), {}, ValueError, "size: one of size and scale_factor"),
        (torch.ones(1, 2, 3, 3), {"size": 0}, ValueError, "size: must be at least 1"),
        (torch.ones(1, 2, 3, 3), {"size": (1, 2, 3)}, TypeError, "size: must be one or two"),
        (
            torch.ones(1, 2, 3, 3),
            {"scale_factor": 0.1},
            ValueError,
            "scale_factor: 0.1 of .* gives no pixels",
        ),
        (torch.ones(1, 2, 3, 3), {"scale_factor": -1.0}, ValueError, "scale_factor: must be pos"),
        (torch.ones(1, 2, 3, 3), {"scale_factor": "2"}, TypeError, "scale_factor: must be one or"),
    ],
)
def test_what_is_wrong_is_named(input, more, error, words):
    with pytest.raises(error, match=words):
        kw.upsample_nearest2d(input, **more)
