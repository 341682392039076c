"""layer_norm and rms_norm over the last dimensions, alone or after adding a residual.

One computation with two formulas: the four operators share every rung.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, Operator, Rung, autocast, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.arguments import agreed, flat, normalized, number

from . import heuristics, heuristics_superset, spec, statistics

# From torch 2.12 on, autocast casts rms_norm to float32, as it has always done for layer_norm.
_RMS_NORM_IN_FLOAT32 = torch.torch_version.TorchVersion(torch.__version__) >= (2, 12)


_LOOP = rungs.triton(
    "loop",
    "",
    "a row read twice, the second time from cache: any length in few registers",
    heuristics.fits_loop,
    heuristics.LOOP_CONFIGS,
    heuristic=heuristics.choose_loop,
)


def _rungs(name: str, suffix: str) -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `suffix` is "_backward" in a backward's."""

    def tuned(what):
        """The entry of heuristics.py with this name for this side, if there is one."""
        return getattr(heuristics, f"{what}{suffix.upper() if what.isupper() else suffix}", None)

    def cuda(trick: str, idea: str) -> Rung:
        """A rung of cuda.py; a backward also adds its partial sums of gweight and gbias."""
        return rungs.cuda(
            trick,
            suffix,
            idea,
            tuned(f"fits_{trick}"),
            tuned(f"{trick.upper()}_CONFIGS"),
            heuristic=tuned(f"choose_{trick}"),
            sources=("cuda_parts.cu",) if suffix else (),
        )

    looped = () if suffix else (_LOOP,)
    return (
        *rungs.pytorch(f"_{name}{suffix}", compiled=None),
        Rung(
            "compiled",
            "inductor",
            f"torch_rungs:manual_{name}{suffix}",
            "the formula, fused by torch.compile",
            supports=heuristics.fits_compiled,
        ),
        rungs.triton(
            "row",
            suffix,
            "one row in registers; gradients of weight and bias in two steps",
            heuristics.fits_triton,
            tuned("TRITON_CONFIGS"),
        ),
        *looped,
        Rung(
            "cuda_superset",
            "cuda",
            f"cuda_superset:superset{suffix}",
            "rows of any length in 16-byte vectors, by as many warps as they fill",
            supports=getattr(heuristics_superset, f"fits{suffix}"),
            configs=getattr(heuristics_superset, f"CONFIGS{suffix.upper()}"),
            heuristic=getattr(heuristics_superset, f"choose{suffix}"),
            sources=(f"cuda_superset{suffix}.cu", *(("cuda_parts.cu",) if suffix else ())),
        ),
        cuda("warp", "a row in a warp's registers; in the backward, the next rows are prefetched"),
        cuda("block", "a row in a block's registers, one barrier"),
        cuda("cluster", "a row divided among several multiprocessors"),
    )


def _ladders(forward: Operator, backward: Operator) -> tuple[Ladder, Ladder]:
    name = forward.name
    rest = __name__, heuristics.order, heuristics.bucket, "peers:PEERS", spec.public
    rest_backward = __name__, heuristics.order_backward, heuristics.bucket, "peers:PEERS"
    return (
        Ladder(forward, _rungs(name, ""), *rest),
        Ladder(backward, _rungs(name, "_backward"), *rest_backward),
    )


# The defaults of the functions below are not floats: torch.compile(dynamic=True) first treats a
# float argument as a variable, and recompiles when a kernel needs it as a number.

# the samples of a vmap may each have a weight, so that they cannot be rows with a common weight
_layer_norm = bind(
    *_ladders(spec.LAYER_NORM, spec.LAYER_NORM_BACKWARD),
    vmap="loop",
    statistics=statistics.of_x,
)
_rms_norm = bind(
    *_ladders(spec.RMS_NORM, spec.RMS_NORM_BACKWARD), vmap="loop", statistics=statistics.of_x
)
# the gradient of h is that of x and of the residual
_add_layer_norm = bind(
    *_ladders(spec.ADD_LAYER_NORM, spec.ADD_LAYER_NORM_BACKWARD),
    vmap="loop",
    same_gradient={"residual": "x"},
    statistics=statistics.of_h,
)
_add_rms_norm = bind(
    *_ladders(spec.ADD_RMS_NORM, spec.ADD_RMS_NORM_BACKWARD),
    vmap="loop",
    same_gradient={"residual": "x"},
    statistics=statistics.of_h,
)


def layer_norm(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """(x - mean x) / sqrt(var x + eps) * weight + bias, as torch.nn.functional.layer_norm.

    Args:
        input: shape (*, *normalized_shape). float32, float16 and bfloat16 have GPU rungs; float64
            uses PyTorch's kernels. Under CUDA autocast, 16-bit input is cast to float32.
        normalized_shape: the last dimensions, over which mean and variance are computed; a number
            means only the last one.
        weight, bias: of normalized_shape, or None; may be wider than the input.
        eps: added to the variance; by default 1e-5.

    Returns:
        A tensor of the input's shape and dtype.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree.
    """
    eps = 1e-5 if eps is None else number(eps)
    dims = normalized(input, normalized_shape, weight=weight, bias=bias)
    input = autocast.float32_on_cuda(input)
    if dims == 1:
        return _layer_norm(input, weight, bias, eps)[0]
    return _layer_norm(*flat(dims, input), *flat(dims, weight, bias), eps)[0].view(input.shape)


def rms_norm(
    input: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    *,
    offset: float = 0,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * (weight + offset), as torch.nn.functional.rms_norm.

    Args:
        input: shape (*, *normalized_shape). float32, float16 and bfloat16 have GPU rungs; float64
            uses PyTorch's kernels. Under CUDA autocast, 16-bit input is cast to float32 where
            PyTorch does so (from 2.12).
        normalized_shape: the last dimensions, over which the mean is computed; a number means only
            the last one.
        weight: of normalized_shape, or None for no scaling; may be wider than the input.
        eps: added to the mean square; by default float32's epsilon (float64's for float64).
        offset: added to the weight, in float32; Gemma stores its weights minus 1.

    Returns:
        A tensor of the input's shape and dtype.

    Raises:
        TypeError: input is not floating point.
        ValueError: a shape does not agree.
    """
    dims = normalized(input, normalized_shape, weight=weight)
    if _RMS_NORM_IN_FLOAT32:
        input = autocast.float32_on_cuda(input)
    eps = _eps(eps, input)
    if dims == 1:
        return _rms_norm(input, weight, eps, offset)[0]
    return _rms_norm(*flat(dims, input), *flat(dims, weight), eps, offset)[0].view(input.shape)


def add_layer_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """h = input + residual and layer_norm(h), in one pass.

    h is rounded to its dtype before it is normalized, so the results equal those of the two
    separate operations. Autocast does not change their dtypes.

    Args:
        residual: of the input's shape; if dtypes differ, both are promoted to the wider one.
        input, normalized_shape, weight, bias, eps: as in `layer_norm`.

    Returns:
        (layer_norm(h), h), of the input's shape.

    Raises:
        TypeError: input or residual is not floating point.
        ValueError: a shape does not agree.

    Source: layer_norm, Ba, Kiros and Hinton, arXiv:1607.06450, of a residual stream.
    """
    eps = 1e-5 if eps is None else number(eps)
    dims = normalized(input, normalized_shape, weight=weight, bias=bias)
    input, residual = agreed(input, residual)
    if dims == 1:
        return _add_layer_norm(input, residual, weight, bias, eps)[:2]
    y, h = _add_layer_norm(*flat(dims, input, residual), *flat(dims, weight, bias), eps)[:2]
    return y.view(input.shape), h.view(input.shape)


def add_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    *,
    offset: float = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """h = input + residual and rms_norm(h), in one pass.

    h is rounded to its dtype before it is normalized, so the results equal those of the two
    separate operations. Autocast does not change their dtypes.

    Args:
        residual: of the input's shape; if dtypes differ, both are promoted to the wider one.
        input, normalized_shape, weight, eps, offset: as in `rms_norm`.

    Returns:
        (rms_norm(h), h), of the input's shape.

    Raises:
        TypeError: input or residual is not floating point.
        ValueError: a shape does not agree.

    Source: rms_norm, Zhang and Sennrich, arXiv:1910.07467, of a residual stream.
    """
    dims = normalized(input, normalized_shape, weight=weight)
    input, residual = agreed(input, residual)
    eps = _eps(eps, input)
    if dims == 1:
        return _add_rms_norm(input, residual, weight, eps, offset)[:2]
    y, h = _add_rms_norm(*flat(dims, input, residual), *flat(dims, weight), eps, offset)[:2]
    return y.view(input.shape), h.view(input.shape)


def _eps(eps, input):
    """PyTorch's default: the epsilon of float32, or of float64 for float64."""
    if eps is None:
        return torch.finfo(torch.promote_types(input.dtype, torch.float32)).eps
    return number(eps)
