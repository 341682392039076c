"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from types import SimpleNamespace

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.inputs import FLOATS

from .shape import BackwardCall, Call

COLS = 32768  # elements that a Triton program holds in registers with 32 warps
COLS_BACKWARD = 8192  # it holds four arrays of them

# tile: elements of a program's tile, at least; items: of them, in a thread
TRITON_CONFIGS = (
    {"tile": 1024, "items": 8},
    {"tile": 2048, "items": 16},
    {"tile": 4096, "items": 32},
)
# programs: on each multiprocessor; stages: tiles in flight and in work
TRITON_CONFIGS_BACKWARD = (
    {"tile": 1024, "items": 8, "programs": 4, "stages": 1},
    {"tile": 1024, "items": 8, "programs": 2, "stages": 2},
    {"tile": 2048, "items": 16, "programs": 2, "stages": 3},
)


def fits_compiled(gpu, **args):
    main = args["h"] if "h" in args else args["x"]
    return "an empty row has no mean" if main.shape and main.shape[-1] == 0 else None


def _fits(of, limit):
    def fits(gpu, **args):
        c = of(args)
        if c.dtype not in FLOATS:
            return f"{c.dtype} is not float32, float16 or bfloat16"
        if c.cols > limit:
            return f"a row of {c.cols} does not fit a program's registers ({limit})"
        return None

    return fits


def order(gpu, **args):
    return ("triton_row",)


def bucket(**args):
    """Key of a call in the tuned table: dtypes, row length and number of rows by powers of two."""
    x = args["h"] if "h" in args else args["x"]
    cols = x.shape[-1]
    rows = x.numel() // max(cols, 1)
    weight = args["weight"]
    side = "none" if weight is None else _kind(weight.dtype)
    return f"{_kind(x.dtype)}/{side}/{next_power_of_2(cols)}/{next_power_of_2(rows)}"


def _kind(dtype):
    return str(dtype).removeprefix("torch.")


FORWARD = SimpleNamespace(
    fits_triton=_fits(Call, COLS), triton_configs=TRITON_CONFIGS, order=order, bucket=bucket
)
BACKWARD = SimpleNamespace(
    fits_triton=_fits(BackwardCall, COLS_BACKWARD),
    triton_configs=TRITON_CONFIGS_BACKWARD,
    order=order,
    bucket=bucket,
)
