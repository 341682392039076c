"""dropout with a seed, whose mask is recomputed in the backward; with a stored mask of one bit per
element; and between a bias and a residual, in one pass."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Operator, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.arguments import agreed, draw_seed, probability

from . import fused_spec, heuristics, spec
from .mask import pack


def _rungs(backward: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `backward` is the suffix of the backward's
    entries."""
    return (
        Rung(
            "native",
            "torch",
            f"torch_rungs:native{backward}",
            "Philox in PyTorch's integer operators",
        ),
        rungs.triton(
            "philox",
            backward,
            "eight elements per Philox call, drawn where they are used",
            heuristics.fits,
            heuristics.CONFIGS,
        ),
        _vec16("", backward),
        _octets("", backward),
    )


def _vec16(kept: str, backward: str) -> Rung:
    """`kept` is the suffix of the entry that writes a mask."""
    return rungs.cuda(
        "vec16",
        f"{kept}{backward}",
        "16-byte vectors; random words are drawn while the vectors are loaded",
        heuristics.fits_vec16,
        heuristics.STRIPS_CONFIGS if backward else heuristics.VEC16_CONFIGS,
        heuristic=heuristics.choose_strips if backward else heuristics.choose_vec16,
    )


def _octets(kept: str, backward: str, sums: bool = False) -> Rung:
    """`sums`: a bias may have a gradient."""
    return Rung(
        "cuda_octets",
        "cuda",
        f"cuda_octets:octets{kept}{backward}",
        "one vector after another; random words are compared as they are drawn",
        supports=heuristics.fits_cuda_octets,
        configs=heuristics.OCTET_STRIPS_CONFIGS if sums else heuristics.OCTET_CONFIGS,
        heuristic=heuristics.choose_octet_strips if sums else heuristics.choose_octets,
        sources=("cuda_octets.cu",),
    )


def _fused_rungs(name: str, kept: str, backward: str) -> tuple[Rung, ...]:
    """The ladder of an operator whose PyTorch rungs are called `name`."""
    return (
        *(
            Rung(
                way,
                "torch",
                f"torch_rungs:{way}_{name}{backward}",
                idea,
                dispatchable=way == "native",
            )
            for way, idea in (
                ("manual", "the formula, rounded once"),
                ("native", "PyTorch's operators, and Philox in its integer operators"),
            )
            if name != "with_mask" or way == "native"
        ),
        rungs.triton(
            "octets",
            f"{kept}{backward}",
            "eight neighbors share an index, a Philox call and a byte of mask",
            heuristics.fits_octets,
            heuristics.OCTETS_CONFIGS,
        ),
        _vec16(kept, backward),
        _octets(kept, backward, sums=bool(backward) and name != "with_mask"),
    )


def _fused(forward: Operator, backward: Operator, name: str, kept: str):
    rest = __name__, heuristics.order_octets, heuristics.bucket, "peers:PEERS"
    # a batch dimension in front would move every element to another position of the mask
    return bind(
        Ladder(forward, _fused_rungs(name, kept, ""), *rest, emulated=True),
        Ladder(backward, _fused_rungs(name, "", "_backward"), *rest, emulated=True),
        vmap="loop",
        same_gradient={} if name == "with_mask" else {"residual": "y"},
    )


_ORDER = heuristics.order, heuristics.bucket, "peers:PEERS"
LADDER = Ladder(spec.FORWARD, _rungs(), __name__, *_ORDER, emulated=True)
LADDER_BACKWARD = Ladder(spec.BACKWARD, _rungs("_backward"), __name__, *_ORDER, emulated=True)
# a batch dimension in front would move every element to another position of the mask
_dropout = bind(LADDER, LADDER_BACKWARD, vmap="loop")
_with_mask = _fused(
    fused_spec.DROPOUT_WITH_MASK,
    fused_spec.DROPOUT_WITH_MASK_BACKWARD,
    "with_mask",
    "_with_mask",
)
_bias_dropout_add = _fused(
    fused_spec.BIAS_DROPOUT_ADD, fused_spec.BIAS_DROPOUT_ADD_BACKWARD, "bias_dropout_add", ""
)
_bias_dropout_add_with_mask = _fused(
    fused_spec.BIAS_DROPOUT_ADD_WITH_MASK,
    fused_spec.BIAS_DROPOUT_ADD_WITH_MASK_BACKWARD,
    "bias_dropout_add_with_mask",
    "_with_mask",
)


def dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """Zero each element with probability p and divide the others by 1 - p, as
    torch.nn.functional.dropout.

    The seed of each call comes from PyTorch's generator of the input's device:
    torch.manual_seed, CUDA graphs and recomputation by checkpoint work as usual.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs.
        p: probability of zeroing, 0 to 1, in steps of 2**-24.
        training: False returns the input itself.
        inplace: write the result to the input (through a temporary of its size).

    Returns:
        A contiguous tensor of the input's shape; the input itself if nothing can be zeroed.

    Raises:
        TypeError: input is not floating point.
        ValueError: p is not a probability.
    """
    arguments.floating("input", input)
    probability(p)
    if p == 0.0 or not training or input.numel() == 0:
        return input
    output = _dropout(input, draw_seed(input.device), p)
    return input.copy_(output) if inplace else output


def dropout_with_mask(
    input: torch.Tensor, p: float = 0.5, training: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """dropout, and its mask with one bit per element, which the backward reads.

    The elements that are dropped are those of `dropout` for the same state of PyTorch's generator.

    Args:
        input, p, training: as in `dropout`.

    Returns:
        (output, mask): a contiguous tensor of the input's shape, and int32 words of shape
        (ceil(input.numel() / 32),), in which bit i % 32 of word i // 32 says whether element i, in
        row-major order, is kept; the bits after the last element are 0. If nothing can be zeroed,
        the input itself and a mask that keeps all elements.

    Raises:
        TypeError: input is not floating point.
        ValueError: p is not a probability.

    Source: torch.native_dropout; Philox: Salmon et al., SC 2011.
    """
    arguments.floating("input", input)
    probability(p)
    if p == 0.0 or not training or input.numel() == 0:
        return input, pack(torch.ones(input.shape, dtype=torch.bool, device=input.device))
    return _with_mask(input, draw_seed(input.device), p)


def bias_dropout_add(
    input: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor,
    p: float = 0.5,
    training: bool = True,
    *,
    keep_mask: bool = False,
) -> torch.Tensor:
    """dropout(input + bias) + residual, in one pass, as after the projections of a transformer.

    Sums are computed in float32 and rounded once. The seed is drawn as in `dropout`, so the same
    elements are dropped for the same state of PyTorch's generator.

    Args:
        input: any shape but 0-d. float32, float16 and bfloat16 have GPU rungs; other floating types
            use PyTorch's kernels. Rows may have any stride.
        bias: of shape (input.shape[-1],), or None.
        residual: of the input's shape; if dtypes differ, both are promoted to the wider one.
        p: probability of zeroing an element of input + bias, 0 to 1, in steps of 2**-24.
        training: False drops nothing.
        keep_mask: save one bit per element for the backward, which otherwise recomputes the mask.

    Returns:
        A contiguous tensor of the input's shape and the wider dtype.

    Raises:
        TypeError: an argument is not floating point.
        ValueError: p is not a probability, or a shape does not agree.

    Source: Megatron-LM, Shoeybi et al., arXiv:1909.08053.
    """
    arguments.floating("input", input)
    probability(p)
    if bias is not None:
        arguments.floating("bias", bias)
        if bias.shape != input.shape[-1:] or not input.ndim:
            raise ValueError(
                f"bias: has shape {tuple(bias.shape)}, should be {tuple(input.shape[-1:])}"
            )
    input, residual = agreed(input, residual)
    if p == 0.0 or not training or input.numel() == 0:
        return _bias_dropout_add(input, bias, residual, None, 0.0)
    if keep_mask:
        return _bias_dropout_add_with_mask(input, bias, residual, draw_seed(input.device), p)[0]
    return _bias_dropout_add(input, bias, residual, draw_seed(input.device), p)
