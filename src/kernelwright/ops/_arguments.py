"""Arguments that several subjects' public functions take: their checks, which name the argument,
and the form that kernels read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kernelwright.contract import arguments


def normalized(
    input: torch.Tensor, normalized_shape: int | Sequence[int], **parameters: torch.Tensor | None
) -> int:
    """How many last dimensions are normalised, an int being the last one alone; `parameters`, where
    there are any, have their shape.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree.
    """
    arguments.floating("input", input)
    if isinstance(normalized_shape, (int, torch.SymInt)):
        normalized_shape = (normalized_shape,)
    dims = tuple(normalized_shape)
    if not dims:
        raise ValueError("normalized_shape: must name at least one dimension")
    if tuple(input.shape[-len(dims) :]) != dims:
        raise ValueError(
            f"normalized_shape: {dims} is not the end of the input's shape {tuple(input.shape)}"
        )
    for name, p in parameters.items():
        if p is not None and tuple(p.shape) != dims:
            raise ValueError(f"{name}: has shape {tuple(p.shape)}, should be {dims}")
    return len(dims)


def flat(dims: int, *tensors: torch.Tensor | None) -> Iterator[torch.Tensor | None]:
    """The last `dims` dimensions of each as one."""
    return (t if t is None else t.flatten(-dims) for t in tensors)


def agreed(input: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both in one dtype, as their sum would be.

    Raises:
        TypeError: residual is not floating point.
        ValueError: residual has another shape.
    """
    arguments.floating("residual", residual)
    if residual.shape != input.shape:
        raise ValueError(
            f"residual: has shape {tuple(residual.shape)}, should be {tuple(input.shape)}"
        )
    if residual.dtype != input.dtype:
        wide = torch.promote_types(input.dtype, residual.dtype)
        input, residual = input.to(wide), residual.to(wide)
    return input, residual


def probability(p: float) -> None:
    """Raise ValueError where p is none."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p: dropout probability has to be between 0 and 1, but got {p}")


def draw_seed(device: torch.device) -> torch.Tensor:
    """One int64 on the device, from PyTorch's generator there: CUDA graphs, checkpoints and
    torch.manual_seed hold for it."""
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=device)
