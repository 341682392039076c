"""Which rung takes a call, and with which launch parameters. Imports no kernel language.

`supports` answers why a call does not fit a rung, or None; heuristics pick one of the rung's
configs by shape; `order` ranks the rungs where no tuned table decides.
"""

from __future__ import annotations

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.inputs import FLOATS

ROW_COLS = 32768  # elements that a Triton program holds in registers with 32 warps

ROW_CONFIGS = (
    {"tile": 1024, "items": 8},
    {"tile": 2048, "items": 16},
    {"tile": 4096, "items": 32},
)


def main(tensors):
    """The tensor that decides: x of the forward, y of the backward (gy may be broadcast)."""
    return tensors.get("x") or tensors["y"]


def fits_rows(gpu, dim, **tensors):
    """What every rung over contiguous rows asks."""
    t = main(tensors)
    if t.dtype not in FLOATS:
        return f"{t.dtype} is not float32, float16 or bfloat16"
    if dim != -1:
        return f"dim {dim} is not the last"
    return None


def fits_triton_row(gpu, dim, **tensors):
    cols = main(tensors).shape[-1:]
    if cols and cols[0] > ROW_COLS:
        return f"a row of {cols[0]} does not fit a program's registers ({ROW_COLS})"
    return fits_rows(gpu, dim, **tensors)


def choose_triton_row(gpu, dim, **tensors):
    return ROW_CONFIGS[0]


def order(gpu, dim, **tensors):
    return ("triton_row",)


def bucket(dim, **tensors):
    """Key of a call in the tuned table: dtype, row length and number of rows by powers of two."""
    t = main(tensors)
    cols = t.shape[-1] if t.shape else 1
    rows = t.numel() // max(cols, 1)
    kind = str(t.dtype).removeprefix("torch.")
    side = "" if dim == -1 else f"/dim{dim}"
    return f"{kind}{side}/{next_power_of_2(cols)}/{next_power_of_2(rows)}"
