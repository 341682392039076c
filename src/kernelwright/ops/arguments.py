"""Arguments that the public functions of several operators take: checks, whose messages name the
argument, and conversion to the form that kernels read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kernelwright.contract import arguments


def normalized(
    input: torch.Tensor, normalized_shape: int | Sequence[int], **parameters: torch.Tensor | None
) -> int:
    """The number of last dimensions that are normalized. An int stands for the last dimension
    alone. Each of the `parameters` that is given must have the shape of these dimensions.

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
    """Each tensor with its last `dims` dimensions flattened to one."""
    return (t if t is None else t.flatten(-dims) for t in tensors)


def agreed(input: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both tensors in one dtype, the dtype of their sum.

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


def number(eps):
    """`eps`. Raises TypeError unless it is a real number."""
    if type(eps) is not float:
        arguments.real("eps", eps)
    return eps


def probability(p: float) -> None:
    """Raise ValueError unless p is a probability, TypeError unless it is a number."""
    arguments.real("p", p)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p: dropout probability has to be between 0 and 1, but got {p}")


def draw_seed(device: torch.device) -> torch.Tensor:
    """One int64 on the device, from PyTorch's generator of that device, so that CUDA graphs,
    activation checkpointing and torch.manual_seed work as usual."""
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=device)
