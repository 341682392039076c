"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract import is_dense
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.inputs import FLOATS

CONFIGS = (
    {"block": 1024, "num_warps": 4},
    {"block": 2048, "num_warps": 8},
    {"block": 512, "num_warps": 4},
)


def fits(gpu, params, grads, exp_avgs, exp_avg_sqs, **others):
    for k, p in enumerate(params):
        if p.dtype not in FLOATS:
            return f"params[{k}]: {p.dtype} is not float32, float16 or bfloat16"
        if not is_dense(p.shape, p.strides):
            return f"params[{k}] has gaps between its elements"
        for name, tensors in (
            ("grads", grads),
            ("exp_avgs", exp_avgs),
            ("exp_avg_sqs", exp_avg_sqs),
        ):
            if tensors[k].strides != p.strides:
                return f"{name}[{k}] has other strides than params[{k}]"
    return None


def order(gpu, params, **others):
    # two launches a parameter: on lists of many small ones PyTorch's multi-tensor kernel is ahead
    return ("triton_each",) if len(params) <= 4 else ()


def bucket(params, **others):
    """Key of a call in the tuned table: dtype, elements and parameters by powers of two."""
    n = sum(p.numel() for p in params)
    kind = str(params[0].dtype).removeprefix("torch.")
    return f"{kind}/{next_power_of_2(n)}/{next_power_of_2(len(params))}"
