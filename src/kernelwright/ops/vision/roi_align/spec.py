"""roi_align: the mathematics. A region (image, x1, y1, x2, y2), scaled, and shifted by half a pixel
if `aligned`, is divided into bins. A result is the mean of an image at sampling^2 evenly spaced
points of a bin, each a bilinear mean of four pixels. A point more than a pixel outside counts as 0,
a closer one as the edge. Without `aligned`, a region is at least one pixel wide and high. With
`sampling` 0, a bin has as many points along a dimension as pixels, rounded up.

x is (N, P, H, W, C): planes of NCHW images have C = 1, images with channels last P = 1.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.rounding import U

# (images, planes, height, width, channels), more
SHAPES = (
    ((2, 3, 8, 9, 1), {"regions": 5}),
    ((2, 1, 8, 9, 8), {"regions": 4, "sampling": 0}),
    ((1, 4, 12, 7, 1), {"regions": 3, "size": (7, 7), "aligned": True}),
    ((2, 1, 10, 10, 5), {"regions": 3, "sampling": 3, "aligned": True, "scale": 0.25}),
    ((1, 1, 1, 1, 1), {"regions": 2}),
    ((1, 2, 6, 6, 1), {"regions": 4, "sampling": 0, "aligned": True, "scale": 2.0}),
    ((2, 3, 8, 9, 1), {"regions": 0}),
    ((0, 3, 8, 9, 1), {"regions": 0}),
)
BENCH = (
    ((2, 256, 200, 272, 1), {"regions": 1024, "size": (7, 7), "scale": 0.25}, "Mask R-CNN, boxes"),
    ((2, 256, 200, 272, 1), {"regions": 256, "size": (14, 14), "scale": 0.25}, "its masks"),
    ((2, 1, 200, 272, 256), {"regions": 1024, "size": (7, 7), "scale": 0.25}, "channels last"),
)
CASES = (
    *(case(s, d, **more) for d in FLOATS for s, more in SHAPES),
    *(
        case((2, 1, 6, 7, 8), d, layout=layout, regions=3)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((2, 3, 8, 9, 1), d, values=v, regions=5) for d in FLOATS for v in ("nan", "inf")),
    *(
        case(shape, d, use="bench", label=label, **more)
        for shape, more, label in BENCH
        for d in (torch.float32, torch.float16)
    ),
    case((2**11 + 1, 256, 64, 64, 1), torch.float32, use="big", regions=64),
)


def points(rois, axis, n, size, scale, sampling, aligned):
    """Along a dimension (1 for columns, 0 for rows), for each region, bin and index of a point: the
    two pixels, the weight of the second, and the weight of the point. Indices past a bin's points
    have weight 0."""
    start, end = (rois[:, 2 - axis + k] * scale - (0.5 if aligned else 0.0) for k in (0, 2))
    extent = end - start if aligned else (end - start).clamp(min=1.0)
    bins = extent / size
    count = torch.full_like(bins, sampling) if sampling else bins.ceil().clamp(min=0)
    most = sampling or (int(count.max()) if len(count) else 0)
    of = torch.arange(most, device=rois.device, dtype=rois.dtype)
    p = torch.arange(size, device=rois.device, dtype=rois.dtype)[:, None]
    start, bins, counts = (t[:, None, None] for t in (start, bins, count))
    at = start + p * bins + (of + 0.5) * bins / counts
    there = (of < counts) & (at >= -1) & (at <= n)
    at = at.nan_to_num(0).clamp(0, n - 1)
    first = at.long()
    weights = torch.where(there, 1.0, 0.0).to(rois.dtype)
    return first, (first + 1).clamp(max=n - 1), at - first, weights, count


def reference(x, rois, size, scale, sampling, aligned):
    """One point of all bins after another."""
    axes = [points(rois, a, x.shape[2 + a], size[a], scale, sampling, aligned) for a in (0, 1)]
    image = rois[:, 0].long()[:, None, None]
    y = x.new_zeros(len(rois), *size, x.shape[1], x.shape[4])
    moved = x.permute(0, 2, 3, 1, 4)
    for i in range(axes[0][0].shape[2]):
        for j in range(axes[1][0].shape[2]):
            top, bottom, t, h = (v[:, :, i, None] for v in axes[0][:4])
            left, right, s, w = (v[:, None, :, j] for v in axes[1][:4])
            four = ((top, left, (1 - t) * (1 - s)), (top, right, (1 - t) * s),
                    (bottom, left, t * (1 - s)), (bottom, right, t * s))  # fmt: skip
            there = (h * w != 0)[..., None, None]
            point = sum(share[..., None, None] * moved[image, r, c] for r, c, share in four)
            y = y + torch.where(there, point, 0.0)
    count = (axes[0][4] * axes[1][4]).clamp(min=1)
    return (y / count.view(-1, 1, 1, 1, 1)).permute(0, 3, 1, 2, 4).contiguous()


def inputs(c, device):
    n, regions = c.shape[0], c.param("regions")
    scale = c.param("scale", 1.0)
    x = tensor(c, "x", device)
    rois = tensor(replace(c, shape=(regions, 5), layout="contiguous", values="normal"), "rois",
                  device)  # fmt: skip
    if device != "meta" and regions:
        h, w = c.shape[2] / scale, c.shape[3] / scale
        image = (n - 1 - torch.arange(regions, device=device)).remainder(max(n, 1)).to(rois.dtype)
        extent = torch.tensor([w, h], device=device, dtype=rois.dtype)
        start = (rois[:, 1:3] * 0.3 + 0.3) * extent
        rois = torch.cat((image[:, None], start, start + rois[:, 3:].abs() * 0.3 * extent), 1)
    return {
        "x": x,
        "rois": rois,
        "size": c.param("size", (2, 3)),
        "scale": scale,
        "sampling": c.param("sampling", 2),
        "aligned": c.param("aligned", False),
    }


def outputs(x, rois, size, scale, sampling, aligned):
    shape = (rois.shape[0], x.shape[1], *size, x.shape[4])
    return (TensorSpec.contiguous(shape, x.dtype),)


def cost(x, rois, size, scale, sampling, aligned):
    """The elements of x that `sampling` points of each bin read, at most all of x."""
    (y,) = outputs(x, rois, size, scale, sampling, aligned)
    each = max(sampling, 1) ** 2 * 4
    read = min(x.nbytes, y.nbytes * each)
    return Cost((read, rois.nbytes), (y.nbytes,), flops=y.numel() * each * 2)


def noise(x, rois, size, scale, sampling, aligned):
    """The rounding error of a mean in float32: of the coordinates, a few u times their magnitude
    times the largest pixel, and of products and sums."""
    (y,) = outputs(x, rois, size, scale, sampling, aligned)
    if not y.numel():
        return (x.new_zeros(y.shape, dtype=torch.float64),)
    largest = x.double().abs().nan_to_num(0, 0, 0).amax()
    reach = max(x.shape[2], x.shape[3]) + rois.double().abs().amax() * abs(scale)
    n = math.prod(x.shape[2:4]) if not sampling else sampling**2
    unit = U * largest * (16 * reach + 4 * n)
    return (unit.expand(y.shape).double(),)


def large(x, rois, size, scale, sampling, aligned):
    given = rois.double(), size, scale, sampling, aligned
    return {"y": (reference(x, *given), noise(x, *given)[0])}


FORWARD = Operator(
    name="roi_align",
    schema="(Tensor x, Tensor rois, int[] size, float scale, int sampling, bool aligned)"
    " -> (Tensor y)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="rows",
    noise=noise,
    large=large,
    source="torchvision.ops.roi_align",
)
