"""A mixture-of-experts layer made of grouped products: each token is processed by a few of many
MLPs.

    y = sum over a token's experts e of  w_e down_e (silu(gate_e x) up_e x)

Tokens are sorted by expert, so that the rows of each expert form one group; `grouped_swiglu` and
`grouped_mm` process all groups in one launch each; the results are returned to their tokens and
weighted. The host reads nothing back: a CUDA graph can capture the layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelwright.contract import TensorSpec, arguments, autocast
from kernelwright.dispatch import Rule, compose, operator

from .grouped import grouped_mm, grouped_swiglu


def moe_route(
    logits: torch.Tensor, top_k: int, *, normalize: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The experts of each token and their weights. Source: as torch.softmax, in float32, then
    torch.topk, as in Mixtral (arXiv:2401.04088).

    Args:
        logits: shape (T, E), from a router.
        top_k: number of experts per token, 1 to E.
        normalize: divide the weights of a token by their sum, as Mixtral does. This equals the
            softmax of the selected logits.

    Returns:
        Weights of shape (T, top_k) and the logits' dtype, and indices of the experts, int64.

    Raises:
        TypeError: the logits are not floating point.
        ValueError: they are not a matrix, or have fewer than top_k columns.
    """
    arguments.floating("logits", logits)
    if logits.ndim != 2:
        raise ValueError(f"logits: has {logits.ndim} dimensions, should have 2")
    if not 1 <= top_k <= logits.shape[1]:
        raise ValueError(f"top_k: must be between 1 and {logits.shape[1]}, is {top_k}")
    wide = torch.promote_types(logits.dtype, torch.float32)
    weights, indices = torch.softmax(logits, -1, dtype=wide).topk(top_k, -1)
    if normalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights.to(logits.dtype), indices


def moe_ffn(
    input: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    weights: torch.Tensor,
    indices: torch.Tensor,
) -> torch.Tensor:
    """The sum of a token's experts, each a gated MLP: weights down (silu(gate x) up x).

    Source: as torch.nn.functional.linear and silu for each expert; layouts of the weights as in
    transformers' MixtralExperts and Qwen3MoeExperts.

    Args:
        input: shape (T, H).
        gate_up: shape (E, 2 F, H): for each expert the rows of its gate, followed by those of its
            values.
        down: shape (E, H, F).
        weights: shape (T, K): the weights of each token's experts, from `moe_route`.
        indices: shape (T, K), int64, 0 to E - 1; not checked on a GPU.

    Returns:
        Shape (T, H). Differentiable with respect to all arguments except the indices. Under
        autocast all are cast to its dtype.

    Raises:
        TypeError: an argument has another dtype.
        ValueError: a shape does not fit.
    """
    input, gate_up, down = autocast.cast(input, input, gate_up, down)
    _check(input, gate_up, down, weights, indices)

    def mlp(rows: torch.Tensor, offsets: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return grouped_mm(grouped_swiglu(rows, gate_up.mT, offsets), down.mT, offsets)

    return through_experts(input, weights, indices, gate_up.shape[0], mlp)


def through_experts(
    input: torch.Tensor,
    weights: torch.Tensor,
    indices: torch.Tensor,
    experts: int,
    mlp: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The weighted sum of the results of `mlp` for each token and each of its experts.

    Args:
        input, weights, indices: as in `moe_ffn`.
        experts: number of experts.
        mlp: takes rows sorted by expert, the end of each expert's rows in the format of
            `grouped_mm`, and the index of each row's expert; returns as many rows.

    Returns:
        Shape (T, columns that `mlp` returns); under autocast in its dtype.
    """
    input, weights = autocast.cast(input, input, weights)
    tokens, per_token = indices.shape
    chosen = indices.reshape(-1)
    ordered, order = torch.sort(chosen, stable=True)
    numbers = torch.arange(experts, device=chosen.device)
    offsets = torch.searchsorted(ordered, numbers, right=True, out_int32=True)
    back = torch.empty_like(order)
    back[order] = torch.arange(order.numel(), device=order.device)

    of_experts = mlp(_take(input, order, back, per_token), offsets, ordered)
    returned = _take(of_experts, back, order, 1).view(tokens, per_token, of_experts.shape[1])
    return torch.bmm(weights.to(returned.dtype).unsqueeze(1), returned).squeeze(1)


def _rows(x, order, back, each, rung=None):
    """Row order[i] // each of x for each i; `back` is the inverse permutation of `order`."""
    return x.index_select(0, order // each if each > 1 else order)


def _rows_spec(x, order, back, each):
    shape = order.shape[0], x.shape[1]
    return (TensorSpec.contiguous(shape, x.dtype),)


def _save_order(ctx, inputs, output):
    _, order, back, ctx.each = inputs
    ctx.save_for_backward(order, back)


def _rows_backward(ctx, g):
    order, back = ctx.saved_tensors
    gx = _take(g, back, order, 1)
    return gx.view(-1, ctx.each, g.shape[1]).sum(1), None, None, None


_take = compose(
    operator(
        "moe_rows", "(Tensor x, Tensor order, Tensor back, int each) -> (Tensor y)", _rows_spec
    ),
    _rows,
    Rule(_save_order, _rows_backward),
    _rows,
)


def _check(input, gate_up, down, weights, indices) -> None:
    for name, t in (("input", input), ("gate_up", gate_up), ("down", down), ("weights", weights)):
        arguments.floating(name, t)
    arguments.tensor("indices", indices)
    for name, t in (("gate_up", gate_up), ("down", down)):
        if t.dtype != input.dtype:
            raise TypeError(f"{name}: is {t.dtype}, should be {input.dtype} as the input")
    if indices.dtype != torch.int64:
        raise TypeError(f"indices: is {indices.dtype}, should be torch.int64")
    if input.ndim != 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2")
    tokens, width = input.shape
    if gate_up.ndim != 3 or gate_up.shape[1] % 2 or gate_up.shape[2] != width:
        raise ValueError(f"gate_up: has shape {tuple(gate_up.shape)}, should be (E, 2 F, {width})")
    wanted = (gate_up.shape[0], width, gate_up.shape[1] // 2)
    if tuple(down.shape) != wanted:
        raise ValueError(f"down: has shape {tuple(down.shape)}, should be {wanted}")
    if indices.ndim != 2 or indices.shape[0] != tokens or indices.shape[1] == 0:
        raise ValueError(f"indices: has shape {tuple(indices.shape)}, should be ({tokens}, K)")
    if weights.shape != indices.shape:
        raise ValueError(
            f"weights: has shape {tuple(weights.shape)}, should be {tuple(indices.shape)}"
        )
    known = type(indices) is torch.Tensor and not torch.compiler.is_compiling()
    if indices.device.type == "cpu" and known and indices.numel():
        low, high = indices.aminmax()
        if low < 0 or high >= gate_up.shape[0]:
            raise ValueError(
                f"indices: has values from {int(low)} to {int(high)} for {gate_up.shape[0]} experts"
            )
