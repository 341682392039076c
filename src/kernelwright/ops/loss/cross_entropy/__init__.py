"""cross_entropy, alone or with its gradient in the same pass, for rows of up to 262,144 classes."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, autocast, rungs
from kernelwright.dispatch import bind

from .. import _options
from . import heuristics, heuristics_superset, probabilities, spec, torch_rungs


def _cuda(name: str, side: str, idea: str, supports, configs, **more) -> Rung:
    """A rung of cuda.py, which also includes the source that adds up the targets' weights."""
    totals = ("cuda_totals.cu",)
    return rungs.cuda(name, side, idea, supports, configs, sources=totals, **more)


def _rungs(side: str, *cuda: Rung, **pytorch) -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is the suffix of their entries."""
    return (
        *rungs.pytorch(side, native="PyTorch's log_softmax and nll_loss", **pytorch),
        rungs.triton(
            "online",
            side,
            "any length: maximum and sum in one read, gradients in a second",
            heuristics.fits,
            heuristics.TRITON_CONFIGS,
        ),
        *cuda,
    )


def _superset(side: str, supports, configs, heuristic=None) -> Rung:
    return Rung(
        "cuda_superset",
        "cuda",
        f"cuda_superset:superset{side}",
        "rows of an odd vocabulary in 16-byte vectors",
        supports=supports,
        configs=configs,
        heuristic=heuristic,
        sources=("cuda_superset.cu", "cuda_totals.cu"),
    )


def _held(side: str) -> tuple[Rung, ...]:
    """The rungs that read a row once and write its gradient."""
    return (
        _cuda(
            "block",
            side,
            "one read: a row in a block's registers until its gradient is known",
            heuristics.fits_block,
            heuristics.BLOCK_CONFIGS,
            heuristic=heuristics.choose_block,
        ),
        _cuda(
            "cluster",
            side,
            "a row in the registers of several multiprocessors",
            heuristics.fits_cluster,
            heuristics.CLUSTER_CONFIGS,
            heuristic=heuristics.choose_cluster,
        ),
    )


def _online(side: str, idea: str, configs) -> Rung:
    return _cuda("online", side, idea, heuristics.fits, configs)


def _ladder(operator, rungs, order, public=None) -> Ladder:
    return Ladder(operator, rungs, __name__, order, heuristics.bucket, "peers:PEERS", public)


LADDER = _ladder(
    spec.FORWARD,
    _rungs(
        "",
        _superset("", heuristics_superset.fits, heuristics_superset.CONFIGS),
        _online("", "one block per row, 16-byte loads, exp2", heuristics.ONLINE_CONFIGS),
    ),
    heuristics.order,
    spec.public,
)
LADDER_BACKWARD = _ladder(
    spec.BACKWARD,
    _rungs(
        "_backward",
        _superset("_backward", heuristics_superset.fits, heuristics_superset.CONFIGS_BACKWARD),
        _online(
            "_backward", "elementwise: one block per piece of a row", heuristics.BACKWARD_CONFIGS
        ),
    ),
    heuristics.order,
)
LADDER_WITH_GRAD = _ladder(
    spec.WITH_GRAD,
    _rungs(
        "_with_grad",
        _superset(
            "_with_grad",
            heuristics_superset.fits_with_grad,
            heuristics_superset.CONFIGS_WITH_GRAD,
            heuristics_superset.choose_with_grad,
        ),
        *_held("_with_grad"),
    ),
    heuristics.order_with_grad,
    spec.public,
)
LADDER_WITH_GRAD_IN_PLACE = _ladder(
    spec.WITH_GRAD_IN_PLACE,
    _rungs("_with_grad_", *_held("_with_grad_"), compiled=None),
    heuristics.order_with_grad_in_place,
)
# the loss of a batch is not a batch of losses
_cross_entropy = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=torch_rungs.max_and_sum)
_with_grad = bind(LADDER_WITH_GRAD, vmap="loop")
_with_grad_in_place = bind(LADDER_WITH_GRAD_IN_PLACE, vmap="loop")


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    z_loss: float = 0.0,
    softcap: float | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """-log softmax(input)[target], as torch.nn.functional.cross_entropy, with two additional
    options.

    Args:
        input: logits, shape (C,), (N, C) or (N, C, d1, ...). float32, float16 and bfloat16 have
            GPU rungs and are accumulated in float32; float64 uses PyTorch's kernels. If the
            dimension of the classes is not contiguous, the logits are copied.
        target: class indices, int64, int32 or uint8, of the input's shape without C; or class
            probabilities, floating point, of the input's shape, for which PyTorch's kernels are
            used.
        weight: a weight for each class, shape (C,). A mean is divided by the sum of the targets'
            weights; for class probabilities, by the number of tokens.
        size_average, reduce: deprecated; if one is given, it replaces `reduction`.
        ignore_index: targets of this value are ignored and have no gradient. With probabilities it
            must be negative, because it would name a class.
        reduction: "mean" over the targets that are not ignored (NaN where there is none), "sum",
            or "none".
        label_smoothing: share of the target that is spread over all classes.
        z_loss: factor of log(sum exp logits)^2, which is added to each token's loss and weighted
            like it (Chowdhery et al. 2022).
        softcap: logits are softcap * tanh(input / softcap) (Gemma Team 2024).
        dtype: of the loss; the input's, or float32 for 16-bit input under autocast.

    Returns:
        The loss: one number, or one for each target if reduction is "none".

    Raises:
        TypeError: input is not floating point, target neither integers nor floating point.
        ValueError: a shape or an option does not agree.
        IndexError: on a CPU, a target is out of range; on a GPU the kernel fails with a device-side
            assertion, as in PyTorch.
    """
    if size_average is not None or reduce is not None:
        reduction = _options.legacy_reduction(size_average, reduce, reduction)
    if isinstance(target, torch.Tensor) and target.is_floating_point():
        _options.no_ignored_class(ignore_index)
        return probabilities.cross_entropy(
            input, target, weight, reduction, label_smoothing, z_loss, softcap, dtype
        )
    rows, target, weight = _checked(input, target, weight, reduction)
    form = _options.form(ignore_index, label_smoothing, z_loss, softcap)
    return _cross_entropy(
        rows, target, weight, reduction, *form, dtype or autocast.of_a_loss(input)
    )[0]


def cross_entropy_with_grad(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and its gradient in one pass over the logits, with two thirds of the memory traffic
    of two passes.

    Args:
        input, ...: as in `cross_entropy`. No graph is recorded.

    Returns:
        (loss, gradient): the loss of `cross_entropy`, and its gradient with respect to the input,
        in the input's dtype (with reduction "none", of each token's own loss):
        `input.backward(gradient)`.

    Raises:
        As in `cross_entropy`.

    Source: torch.nn.functional.cross_entropy; z-loss: arXiv:2204.02311; softcap: arXiv:2408.00118.
    """
    rows, target, weight = _checked(input.detach(), target, weight, reduction)
    form = _options.form(ignore_index, label_smoothing, z_loss, softcap)
    loss, grad = _with_grad(rows, target, weight, reduction, *form, autocast.of_a_loss(input))
    return loss, grad.movedim(-1, 1) if input.ndim > 2 else grad


def cross_entropy_with_grad_(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    scale: torch.Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
) -> torch.Tensor:
    """The losses of tokens; their gradients overwrite the logits.

    For callers that compute logits in chunks and do not need them afterwards. `scale` holds factors
    that depend on all chunks, such as 1 over the number of all tokens.

    Args:
        input: logits, shape (N, C) or (C,), contiguous in C; becomes scale * d loss / d logits.
        scale: float32, one number or one for each token.
        others: as in `cross_entropy`.

    Returns:
        The tokens' losses, float32 (float64 for float64 logits), unscaled.

    Raises:
        As in `cross_entropy`; ValueError if input has more than two dimensions.

    Source: as `cross_entropy_with_grad`.
    """
    arguments.tensor("scale", scale)
    rows, target, weight = _checked(input, target, weight, "none")
    if input.ndim > 2:
        raise ValueError(f"input: must have 1 or 2 dimensions, has {input.ndim}")
    if scale.numel() != 1 and scale.shape != target.shape:
        raise ValueError(
            f"scale: has shape {tuple(scale.shape)}, should be one number or {tuple(target.shape)}"
        )
    form = _options.form(ignore_index, label_smoothing, z_loss, softcap)
    return _with_grad_in_place(rows, target, weight, scale, *form)


def _checked(input, target, weight, reduction):
    """(logits with the classes as the last dimension, target, weight in the form that kernels
    read)."""
    arguments.floating("input", input)
    if input.is_nested:
        _options.not_jagged(input)
    if input.ndim == 0:
        raise ValueError("input: must have a dimension of classes")
    rows = input.movedim(1, -1) if input.ndim > 2 else input
    return rows, *_options.classes(rows.shape, input.dtype, target, weight, reduction)
