"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.inputs import FLOATS

COLS = 32768  # elements that a Triton program holds in registers with 32 warps
COLS_BACKWARD = 8192  # it holds four arrays of them

# tile: elements of a program's tile, at least; items: of them, in a thread
CONFIGS = ({"tile": 1024, "items": 8}, {"tile": 2048, "items": 16}, {"tile": 4096, "items": 32})
# programs: on each multiprocessor
CONFIGS_BACKWARD = (
    {"tile": 1024, "items": 8, "programs": 4},
    {"tile": 1024, "items": 8, "programs": 2},
    {"tile": 2048, "items": 16, "programs": 4},
)


def fits(gpu, x, **others):
    return _fits(x, COLS)


def fits_backward(gpu, x, **others):
    return _fits(x, COLS_BACKWARD)


def _fits(x, limit):
    if x.dtype not in FLOATS:
        return f"{x.dtype} is not float32, float16 or bfloat16"
    if x.shape[-1] > limit:
        return f"a row of {x.shape[-1]} does not fit a program's registers ({limit})"
    return None


def order(gpu, **args):
    return ("triton_row",)


def bucket(x, weight, **others):
    """Key of a call in the tuned table: dtypes, row length and number of rows by powers of two."""
    cols = x.shape[-1]
    rows = x.numel() // max(cols, 1)
    kind = str(x.dtype).removeprefix("torch.")
    side = "none" if weight is None else str(weight.dtype).removeprefix("torch.")
    return f"{kind}/{side}/{next_power_of_2(cols)}/{next_power_of_2(rows)}"
