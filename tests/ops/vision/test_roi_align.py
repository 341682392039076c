"""Tests of roi_align: positions computed by hand, regions at the edges, boxes as lists."""

import math

import pytest
import torch

import kernelwright as kw
from kernelwright.dispatch import launcher
from kernelwright.ops.vision.roi_align import LADDER
from support.publics import DEVICE, randn

RUNGS = [r.name for r in LADDER.rungs]


def by_hand(image, box, size, scale, sampling, aligned):
    """One channel (H, W), in plain Python."""
    h, w = image.shape
    pixels = image.tolist()
    offset = 0.5 if aligned else 0.0
    x1, y1, x2, y2 = (v * scale - offset for v in box)
    extent = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1.0), max(x2 - x1, 1.0)]
    bins = [e / n for e, n in zip(extent, size, strict=True)]
    counts = [sampling if sampling > 0 else max(math.ceil(b), 0) for b in bins]

    def point(y, x):
        if not (-1 <= y <= h and -1 <= x <= w):
            return 0.0
        y, x = (min(max(v, 0.0), n - 1) for v, n in ((y, h), (x, w)))
        a, b = int(y), int(x)
        c, d = min(a + 1, h - 1), min(b + 1, w - 1)
        t, s = y - a, x - b
        top = (1 - s) * pixels[a][b] + s * pixels[a][d]
        return (1 - t) * top + t * ((1 - s) * pixels[c][b] + s * pixels[c][d])

    def place(start, bin, p, k, count):
        return start + p * bin + (k + 0.5) * bin / count

    return [
        [
            sum(
                point(place(y1, bins[0], p, j, counts[0]), place(x1, bins[1], q, k, counts[1]))
                for j in range(counts[0])
                for k in range(counts[1])
            )
            / max(counts[0] * counts[1], 1)
            for q in range(size[1])
        ]
        for p in range(size[0])
    ]


BOXES = ((0.3, 1.2, 5.1, 6.8), (-3.0, -2.5, 2.2, 3.1), (4.0, 4.0, 12.5, 15.0), (3, 3, 3, 3),
         (5, 6, 2, 1), (-9, -9, -7, -7))  # fmt: skip


@pytest.mark.parametrize(
    ("rung", "sampling"),
    [
        (r, n) for r in RUNGS for n in (0, 2) if n or r != "cuda_shared"
    ],  # whose points are constants
)
@pytest.mark.parametrize("aligned", [False, True])
def test_regions_by_hand(rung, sampling, aligned):
    """Regions inside, over the edges, of size zero, with swapped corners, and outside."""
    x = randn(2, 2, 7, 9)
    rois = torch.tensor([[i % 2, *b] for i, b in enumerate(BOXES)], device=DEVICE)
    args = {"x": x[..., None], "rois": rois, "size": [3, 2], "scale": 0.9, "sampling": sampling,
            "aligned": aligned}  # fmt: skip
    y = launcher(LADDER, args, rung)(*args.values())
    right = [
        [by_hand(x[i % 2, c], b, (3, 2), 0.9, sampling, aligned) for c in range(2)]
        for i, b in enumerate(BOXES)
    ]
    torch.testing.assert_close(y[..., 0], torch.tensor(right, device=DEVICE), rtol=1e-4, atol=1e-5)


def test_formats_and_lists():
    x = randn(2, 8, 6, 7)
    lists = [torch.tensor([[0, 1, 4.0, 5]], device=DEVICE), torch.zeros(0, 4, device=DEVICE)]
    y = kw.roi_align(x, lists, 2, sampling_ratio=2)
    assert y.shape == (1, 8, 2, 2)
    rois = torch.tensor([[0, 0, 1, 4.0, 5]], device=DEVICE)
    last = kw.roi_align(x.to(memory_format=torch.channels_last), rois, 2, sampling_ratio=2)
    torch.testing.assert_close(last, y)
    assert kw.roi_align(x, [t[:0] for t in lists], (2, 3)).shape == (0, 8, 2, 3)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("sampling", [0, 2])
def test_gradients(last, sampling):
    """A detector's backbone is trained through its regions."""
    x = randn(2, 2, 4, 3, dtype=torch.float64)
    x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
    rois = torch.tensor([[i % 2, *b] for i, b in enumerate(BOXES[:3])], device=DEVICE).double()
    torch.autograd.gradcheck(lambda x: kw.roi_align(x, rois, (1, 2), 0.4, sampling), x)


def test_boxes_are_constants():
    rois = torch.tensor([[0, 0, 0, 3.0, 3]], device=DEVICE, requires_grad=True)
    assert not kw.roi_align(randn(1, 2, 4, 4), rois, 2).requires_grad


@pytest.mark.parametrize(
    ("input", "boxes", "size", "error", "words"),
    [
        (torch.ones(2, 3, 4), torch.ones(1, 5), 2, ValueError, "input: has 3 dimensions"),
        (torch.ones(1, 2, 3, 4), torch.ones(1, 4), 2, ValueError, r"boxes: has shape \(1, 4\)"),
        (torch.ones(1, 2, 3, 4), [torch.ones(1, 5)], 2, ValueError, r"boxes\[0\]: has shape"),
        (torch.ones(1, 2, 3, 4), torch.ones(1, 5).half(), 2, TypeError, "boxes: is torch.float16"),
        (torch.ones(1, 2, 3, 4), 3, 2, TypeError, "boxes: must be a tensor or a list"),
        (torch.ones(1, 2, 3, 4), torch.ones(1, 5), 0, ValueError, "output_size: must be at least"),
    ],
)
def test_what_is_wrong_is_named(input, boxes, size, error, words):
    with pytest.raises(error, match=words):
        kw.roi_align(input, boxes, size)
