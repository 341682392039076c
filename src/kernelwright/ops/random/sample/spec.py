"""sample: the mathematics. One token per row of logits, drawn from those that the filters leave.

With w_i = exp((x_i - max x) / temperature), these filters apply in this order, each to the tokens
that the previous ones leave:

1. top_k: tokens whose logit is not below the k-th largest; all tokens if k is below 1 or not below
their number.
2. top_p: tokens i with sum of w_j over x_j > x_i below p times the sum of all w_j.
3. min_p: tokens with w_i >= min_p w_max.

Tokens with equal logits are either all kept or all removed. Of those kept, the token with the
smallest E_i / w_i is drawn, where E_i = -log(1 - u_i) is exponential: u_i is computed from word i %
4 of Philox's position offset / 4 + i // 4 of sequence r under the seed, where r is the row. A race
of exponential clocks is won with probability w_i / sum w. At temperature 0, the first of the
largest logits is selected.
"""

from __future__ import annotations

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case
from kernelwright.contract.inputs import FLOATS, generator, tensor

from .definition import sample

K, P, MIN, ALL = {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.05}, {"top_k": 20, "top_p": 0.9}
SWEEP = (
    {},
    K,
    P,
    MIN,
    {**ALL, "min_p": 0.1, "temperature": 0.7},
    {"temperature": 0.0},
    {"top_p": 0.1, "temperature": 2.0},
    {"each": True},
)
SHAPES = ((7,), (3, 0), (0, 5), (1, 1), (5, 33), (2, 3, 129), (4, 1000), (2, 5001))
VALUES = ("large", "nan", "inf", "neginf_row", "constant", "both_infs", "shifted")
BENCH = (
    ((64, 128256), "Llama 3's vocabulary, batch 64"),
    ((1, 128256), "Llama 3's vocabulary"),
    ((512, 50257), "GPT-2's vocabulary"),
)
_CASES = (
    *(
        case(shape, d, **SWEEP[(i + j) % len(SWEEP)])
        for i, d in enumerate(FLOATS)
        for j, shape in enumerate(SHAPES)
    ),
    *(case((5, 33), torch.float32, **how) for how in (*SWEEP, ALL)),
    *(case((4, 1000), torch.bfloat16, **how) for how in SWEEP),
    *(case((4, 66), d, values=v, **ALL) for d in FLOATS for v in VALUES),
    *(case((4, 66), torch.float32, values=v) for v in VALUES),
    *(
        case((6, 40), d, layout=layout, **P)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset", "expanded")
    ),
    case((1, 70_001), torch.float32, **ALL),  # more than registers hold
    *(
        case(shape, d, use="bench", label=label, **how)
        for shape, label in BENCH
        for d in (torch.bfloat16, torch.float32)
        for how in ({"top_k": 50, "top_p": 0.9}, {"top_p": 0.9}, {})
    ),
    case((2**17 + 1, 16384), torch.bfloat16, use="big", top_p=0.9),
)


def reference(logits, state, each, temperature, top_k, top_p, min_p, filtered):
    return sample(logits, state, each, temperature, top_k, top_p, min_p)


def inputs(c, device):
    own = c.param("each", False)
    how = {
        "temperature": float(c.param("temperature", 1.0)),
        "top_k": float(c.param("top_k", 0)),
        "top_p": float(c.param("top_p", 1.0)),
        "min_p": float(c.param("min_p", 0.0)),
    }
    return {
        "logits": tensor(c, "logits", device),
        "state": state(c, device),
        "each": each(c, device) if own else None,
        **how,
        "filtered": own or how["top_k"] > 0 or how["top_p"] < 1 or how["min_p"] > 0,
    }


def state(c, device):
    words = torch.randint(2**63 - 1, (2,), generator=generator(c.seed, "cpu"))
    return words.to(device)


def each(c, device):
    """For each row a different temperature and different filters, some of which keep all tokens."""
    rows = c.numel // max(c.shape[-1], 1)
    row = torch.arange(rows)
    settings = 0.5 * (row % 4), 3.0 * (row % 3), 0.4 + 0.2 * (row % 5), 0.1 * (row % 2)
    return torch.stack(settings, -1).float().to(device)


def outputs(logits, **rest):
    return (TensorSpec.contiguous(logits.shape[:-1], torch.int64),)


def cost(logits, **rest):
    rows = logits.numel() // max(logits.shape[-1], 1)
    return Cost(reads=(logits.nbytes,), writes=(8 * rows,))


SAMPLE = Operator(
    name="sample",
    schema="(Tensor logits, Tensor state, Tensor? each, float temperature, float top_k, "
    "float top_p, float min_p, bool filtered) -> (Tensor token)",
    reference=reference,
    inputs=inputs,
    cases=tuple(dict.fromkeys(_CASES)),
    cost=cost,
    outputs=outputs,
    layout="rows",
    source="top-k: Fan et al. 2018; top-p: Holtzman et al. 2020; min-p: Nguyen et al. 2024",
)
