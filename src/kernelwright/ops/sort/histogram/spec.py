"""histc: the mathematics. The number of elements in each of `bins` intervals of equal width.

    place = (x - min) * (bins / (max - min)), in float64; an element counts for bin floor(place).

Elements below min or above max are not counted, nor is NaN; max itself belongs to the last bin.
Counts are int64. If max - min = bins, each integer has its own bin: that is bincount.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.sharding import Rows

EVERY = (*FLOATS, torch.float64, torch.int64, torch.int32, torch.bool)
RANGE = {"bins": 100, "low": -3.0, "high": 3.0}
SHAPES = ((0,), (1,), (7,), (5, 33), (2, 3, 129), (9_001,))
BENCH = (
    ((2**28,), {"bins": 256}, ""),
    ((2**28,), {"bins": 256, "equal": True}, "all in one bin"),
    ((2**24,), {"bins": 256}, ""),
    ((2**28,), {"bins": 4096}, ""),
)
CASES = (
    *(case(shape, d, **RANGE) for d in EVERY for shape in SHAPES),
    *(case((4, 66), d, values=v, **RANGE) for d in FLOATS for v in ("nan", "inf", "constant")),
    *(
        case((6, 40), d, layout=layout, **RANGE)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    *(case((700,), torch.float32, **{**RANGE, "bins": bins}) for bins in (1, 257, 20_000)),
    case((3_000,), torch.int64, bins=200, low=-100.0, high=100.0),
    case((5_000,), torch.float32, equal=True, **RANGE),
    *(
        case(shape, d, use="bench", label=label, low=-4.0, high=4.0, **params)
        for shape, params, label in BENCH
        for d in (torch.bfloat16, torch.float32)
    ),
    case((2**28,), torch.int32, use="bench", bins=256, low=-128.0, high=128.0),
    case((2**31 + 5,), torch.bfloat16, use="big", bins=256, low=-4.0, high=4.0),
)


def bins_of(x, bins, low, high):
    """The bin of each element, flat; `bins` for an element that is in none."""
    x = x.reshape(-1).double()
    place = (x - low) * (bins / (high - low))
    inside = (x >= low) & (x <= high)
    return torch.where(inside, place.nan_to_num(0.0).clamp(0, bins - 1), bins).long()


def reference(x, bins, low, high):
    return torch.bincount(bins_of(x, bins, low, high), minlength=bins + 1)[:bins]


def inputs(c, device):
    if c.dtype.is_floating_point:
        x = tensor(c, "x", device)
    else:
        x = tensor(c, "x", device, dtype=torch.float32).mul(30)
        x = x.gt(10) if c.dtype == torch.bool else x.to(c.dtype)
    if c.param("equal") and device != "meta":
        x.fill_(0.25)
    return {"x": x, "bins": c.param("bins"), "low": c.param("low"), "high": c.param("high")}


def every_element_counts_once(args, results):
    """The counts add up to the number of elements in the range."""
    x = args["x"].double()
    inside = int(((x >= args["low"]) & (x <= args["high"])).sum())
    counted = int(results[0].sum())
    return None if inside == counted else f"{counted} elements counted, {inside} are in the range"


FORWARD = Operator(
    name="histc",
    schema="(Tensor x, int bins, float low, float high) -> (Tensor counts)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=lambda x, bins, low, high: Cost(reads=(x.nbytes,), writes=(8 * bins,)),
    outputs=lambda x, bins, low, high: (TensorSpec.contiguous((bins,), torch.int64),),
    layout="dense",
    properties={"total": every_element_counts_once},
    sharding=Rows(main="x", summed=("counts",)),
    source="torch.histc, in float64 and with exact counts",
)
