"""Clipping gradients by the norm of all of them: one launch for the norm, one to scale."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kernelwright.contract import Ladder, Rung, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec


def _rungs(what: str, fits, configs, choose_list=None) -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `what` is the suffix of their entries."""
    return (
        *rungs.pytorch(
            f"_{what}",
            manual="tensor by tensor",
            native="PyTorch's own operators, on many tensors at a time",
            compiled=None,
        ),
        rungs.triton(
            "list",
            f"_{what}",
            "one launch; each program looks up its part of a tensor",
            fits,
            heuristics.TRITON,
        ),
        Rung(
            "cuda_list",
            "cuda",
            f"cuda:plan_{what}",
            "the same with 16-byte vectors, for any alignment of each tensor",
            supports=fits,
            configs=configs,
            heuristic=choose_list,
            sources=("cuda_list.cu",),
        ),
    )


NORM = Ladder(
    spec.NORM,
    _rungs("norm", heuristics.fits_norm, heuristics.NORM, heuristics.choose_list),
    __name__,
    heuristics.order,
    heuristics.bucket_norm,
)
CLIP = Ladder(
    spec.CLIP,
    _rungs("clip", heuristics.fits_clip, heuristics.CLIP),
    __name__,
    heuristics.order,
    heuristics.bucket_clip,
)
_norm = bind(NORM, vmap="loop")
_clip = bind(CLIP, vmap="loop")

Tensors = torch.Tensor | Iterable[torch.Tensor]


@torch.no_grad()
def get_total_norm(
    tensors: Tensors,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """The norm of tensors taken as one vector, as torch.nn.utils.get_total_norm.

    Args:
        tensors: one or several. For DTensors and for tensors on several devices PyTorch's function
            is used: the norm of shards is a reduction over ranks, which DTensor implements.
        norm_type: p of the norm; 1, 2 and infinity have GPU rungs.
        error_if_nonfinite: check the result, which waits for the device.
        foreach: passed to PyTorch's function; the rungs here ignore it.

    Returns:
        A tensor without dimensions, of the tensors' common dtype; 0 for no tensors.

    Raises:
        RuntimeError: the norm is infinite or NaN, and error_if_nonfinite is set.
    """
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    filled = [t for t in listed if t.numel()]
    p = float(norm_type)
    if not filled or not _plain(listed):
        return torch.nn.utils.get_total_norm(listed, p, error_if_nonfinite, foreach)
    norm = _norm(filled if p > 0 else listed, str(p))
    if error_if_nonfinite and not bool(norm.isfinite()):
        raise RuntimeError(
            f"The total norm of order {p} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped. To disable this error and scale the gradients by the non-finite "
            "norm anyway, set `error_if_nonfinite=False`"
        )
    return norm


@torch.no_grad()
def clip_grads_with_norm_(
    parameters: Tensors,
    max_norm: float,
    total_norm: torch.Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients of parameters by max_norm / (total_norm + 1e-6) if that is below 1, as
    torch.nn.utils.clip_grads_with_norm_. Otherwise no gradient is read or written.

    Args:
        parameters: those without a gradient are skipped. For DTensors, the local shards are scaled.
        max_norm: maximum of the norm, read at each call.
        total_norm: of one element; may be a DTensor.
        foreach: passed to PyTorch's function; the rungs here ignore it.
    """
    several = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    grads = [p.grad for p in several if p.grad is not None]
    if not grads:
        return
    local = [g for g in map(_local, grads) if g.numel()]
    norm = total_norm.full_tensor() if _is_dtensor(total_norm) else total_norm
    if not _plain(local):
        torch.nn.utils.clip_grads_with_norm_(several, max_norm, total_norm, foreach)
    elif local:
        _clip(local, norm.to(local[0].device), float(max_norm))


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Clip the norm of all gradients, in place, as torch.nn.utils.clip_grad_norm_, with two
    launches and without waiting for the device.

    Args:
        parameters: one or several; those without a gradient are skipped.
        max_norm: maximum of the norm.
        norm_type, error_if_nonfinite, foreach: as in `get_total_norm`.

    Returns:
        The norm before clipping; a DTensor where the gradients are.

    Raises:
        RuntimeError: the norm is infinite or NaN, and error_if_nonfinite is set.
    """
    several = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    grads = [p.grad for p in several if p.grad is not None]
    norm = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(several, max_norm, norm, foreach)
    return norm


def _plain(tensors: list[torch.Tensor]) -> bool:
    """Whether all are ordinary strided tensors on one device."""
    kinds = {torch.Tensor, torch.nn.Parameter}
    one = all(t.device == tensors[0].device and t.layout == torch.strided for t in tensors)
    return one and kinds.issuperset(map(type, tensors))


def _is_dtensor(t: torch.Tensor) -> bool:
    return hasattr(t, "placements")


def _local(t: torch.Tensor) -> torch.Tensor:
    return t.to_local() if _is_dtensor(t) else t
