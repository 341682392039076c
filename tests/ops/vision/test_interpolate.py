"""Tests of interpolate: any scale on any rung, corners, modes, memory formats, arguments."""

import random

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright.contract import H200
from kernelwright.dispatch import launcher, specs_of
from kernelwright.ops.vision.interpolate import LADDER, LADDER_BACKWARD
from support.publics import randn, with_gradients

CUDA = [r.name for r in LADDER.rungs if r.is_gpu]


def as_images(t):
    return t.permute(0, 2, 3, 1).contiguous()


def run(ladder, rung, args):
    """The rung's result, or None if it does not take the call."""
    if ladder.rung(rung).supports(H200, **specs_of(args)):
        return None
    return launcher(ladder, args, rung)(*args.values())


@pytest.mark.parametrize("rung", CUDA)
def test_any_size_both_ways(rung):
    draw, ran = random.Random(5), 0
    for k in range(12):
        n, h, w, c = draw.randint(1, 3), draw.randint(1, 9), draw.randint(1, 12), 8 ** (k % 2)
        size, corners = [draw.randint(1, 20), draw.randint(1, 20)], draw.random() < 0.5
        if k > 8:
            size = [h * 2, w * 2]
        more = {"mode": "bilinear", "align_corners": corners}
        x = randn(n, c, h, w, seed=k)
        y, (gx,) = with_gradients(lambda t, s=size, m=more: F.interpolate(t, s, **m), [x])
        gy = randn(*y.shape, seed=9)
        args = {"hw": [h, w], "size": size, "corners": corners, "given": False,
                "scale_h": 0.0, "scale_w": 0.0}  # fmt: skip
        for ladder, given, right in (
            (LADDER, {"x": as_images(x)}, y),
            (LADDER_BACKWARD, {"gy": as_images(gy)}, gx),
        ):
            found = run(ladder, rung, {**given, **args})
            if found is not None:
                ran += 1
                torch.testing.assert_close(found, as_images(right), rtol=1e-4, atol=1e-4)
    assert ran >= 6


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        {"size": (7, 4), "mode": "bilinear"},
        {"size": (9, 1), "mode": "bilinear", "align_corners": True},
        {"scale_factor": (1.7, 0.6), "mode": "bilinear"},
        {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True},
        {"scale_factor": 1.7, "mode": "nearest", "recompute_scale_factor": True},
    ],
    ids=str,
)
def test_as_pytorch_in_both_formats(channels_last, how):
    x = randn(2, 3, 5, 6)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    mine, right = (
        with_gradients(lambda t, f=f: f(t, **how), [x]) for f in (kw.interpolate, F.interpolate)
    )
    assert mine[0].stride() == right[0].stride()
    torch.testing.assert_close(mine, right)


@pytest.mark.parametrize(
    ("input", "more", "error", "words"),
    [
        (torch.ones(2, 3, 4), {"size": 2}, NotImplementedError, "input: has 3 dimensions"),
        (torch.ones(1, 2, 3, 4), {"size": 2, "mode": "area"}, NotImplementedError, "mode: 'area'"),
        (torch.ones(1, 2, 3, 4), {"size": 2, "antialias": True}, NotImplementedError, "antialias:"),
        (torch.ones(1, 2, 3, 4), {"size": 2, "align_corners": True}, ValueError, "align_corners:"),
        (
            torch.ones(1, 2, 3, 4),
            {"size": 2, "recompute_scale_factor": True},
            ValueError,
            "recompute_scale_factor:",
        ),
    ],
)
def test_what_is_wrong_is_named(input, more, error, words):
    with pytest.raises(error, match=words):
        kw.interpolate(input, **more)
