"""dropout with a seed: the mask is a function of a tensor, computed twice and never stored."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments
from kernelwright.dispatch import bind

from . import choose, spec


def _rungs(backward: str = "") -> tuple[Rung, ...]:
    """The ladder from the bottom up; `backward` is the suffix of the backward's entries."""
    return (
        Rung(
            "native",
            "torch",
            f"torch_rungs:native{backward}",
            "Philox in PyTorch's integer operators",
        ),
        Rung(
            "triton_philox",
            "triton",
            f"triton_philox:plan{backward}",
            "four random words a call, drawn where they are used",
            supports=choose.fits,
            configs=choose.CONFIGS,
        ),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, choose.order, choose.bucket, "peers:PEERS")
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, choose.order, choose.bucket, "peers:PEERS"
)
# a batch in front would move every element to another place of the mask
_dropout = bind(LADDER, LADDER_BACKWARD, vmap="loop")


def dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """Zero each element with probability p and divide the others by 1 - p, as
    torch.nn.functional.dropout.

    The seed of each call comes from PyTorch's generator of the input's device:
    torch.manual_seed, CUDA graphs and checkpoint's recomputation hold for it.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs.
        p: probability of zeroing, 0 to 1, in steps of 2**-24.
        training: False returns the input itself.
        inplace: write the result over the input (by way of a temporary of its size).

    Returns:
        A contiguous tensor of the input's shape; the input where nothing can be zeroed.

    Raises:
        TypeError: input is not floating point.
        ValueError: p is not a probability.
    """
    arguments.floating("input", input)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p: dropout probability has to be between 0 and 1, but got {p}")
    if p == 0.0 or not training or input.numel() == 0:
        return input
    seed = torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=input.device)
    output = _dropout(input, seed, p)
    return input.copy_(output) if inplace else output
