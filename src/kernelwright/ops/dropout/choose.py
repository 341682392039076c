"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.inputs import FLOATS

# quads: Philox counters of a program, four elements each
CONFIGS = (
    {"quads": 512, "num_warps": 4},
    {"quads": 256, "num_warps": 4},
    {"quads": 1024, "num_warps": 4},
)


def main(tensors):
    return tensors.get("x") or tensors["gy"]


def fits(gpu, **args):
    dtype = main(args).dtype
    return None if dtype in FLOATS else f"{dtype} is not float32, float16 or bfloat16"


def order(gpu, **args):
    return ("triton_philox",)


def bucket(**args):
    """Key of a call in the tuned table: dtype and number of elements by powers of two."""
    t = main(args)
    return f"{str(t.dtype).removeprefix('torch.')}/{next_power_of_2(t.numel())}"
