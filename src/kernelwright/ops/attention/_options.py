"""Options that change scores or hide keys, checked alike for packed sequences and for pages."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import arguments


def scale_of(
    query: torch.Tensor,
    window: tuple[int, int],
    softcap: float,
    sinks: torch.Tensor | None,
    alibi_slopes: torch.Tensor | None,
    scale: float | None,
) -> float:
    """The scale of the scores, after all options are checked.

    Args:
        query: (tokens, H, E).

    Raises:
        TypeError: sinks or alibi_slopes are not floating point.
        ValueError: an option is out of range or has another shape than (H,).
    """
    _, heads, size = query.shape
    left, right = window
    if left < -1 or right < -1:
        raise ValueError(f"window: must be two numbers of at least -1, is {window}")
    if softcap < 0:
        raise ValueError(f"softcap: must be at least 0, is {softcap}")
    for name, t in (("sinks", sinks), ("alibi_slopes", alibi_slopes)):
        if t is not None:
            arguments.floating(name, t)
            if t.shape != (heads,):
                raise ValueError(f"{name}: has shape {tuple(t.shape)}, should be ({heads},)")
    if scale is None:
        return 1.0 / math.sqrt(size) if size else 1.0
    if scale < 0:
        raise ValueError(f"scale: must be at least 0, is {scale}")
    return float(scale)
