"""Linear attention with a scalar decay: the mathematics.

    S_t = exp(g_t) S_{t-1} + k_t v_t^T,    y_t = scale q_t S_t

for each head, where S is a K x V matrix with a given initial value. With gs_t the gradient of S_t,

    gs_t = scale q_t gy_t^T + exp(g_{t+1}) gs_{t+1}
    gq_t = scale S_t gy_t,    gk_t = gs_t v_t,    gv_t = gs_t^T k_t
    gg_t = exp(g_t) <S_{t-1}, gs_t>

The reference computes both in chunks (chunks.py), in float64; the rung `manual` is the recurrence.
A non-finite token affects no result of an earlier token and no gradient of a later one.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec, case
from kernelwright.contract.case import SHORT
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.ops.attention.sdpa.spec import accumulated, ordered_as

from . import chunks, errors

F32, F16, BF16 = FLOATS

# Shapes (B, H, L, K). `v`: V if it differs; `decay`: of tokens (the default), of "heads", "none",
# "resets" (some are -inf) or "strong" (a chunk's product is 0); `state`: the dtype of an initial
# state; `final`: the last state is returned; `order`: heads after tokens in memory.
BENCH = (
    ((4, 16, 8192, 128), {"label": "8k"}),
    ((1, 16, 32768, 128), {"label": "32k"}),
    ((4, 32, 8192, 64), {"label": "8k"}),
    ((1, 32, 32768, 64), {"label": "32k"}),
    ((1, 80, 8192, 128), {"v": 64, "label": "Mamba-2 2.7B"}),
    ((4, 8, 8192, 256), {"v": 256, "decay": "heads", "label": "RetNet"}),
)
DECODE = (
    ((64, 16, 1, 128), {"label": "decoding"}),
    ((1, 16, 1, 128), {"label": "decoding"}),
    ((64, 80, 1, 128), {"v": 64, "label": "Mamba-2 2.7B, decoding"}),
)


SHORTEST = (1, 1, 70, 16)  # more than one chunk
STATES = {"decay": "resets", "state": "f32", "final": True}


def _verified(d: torch.dtype) -> tuple[Case, ...]:
    return (
        case(SHORTEST, d),
        case(SHORTEST, d, layout="sliced"),
        case(SHORTEST, d, layout="permuted", values="constant"),
        case(SHORTEST, d, layout="offset", values="large"),
        case((2, 1, 1, 24), d, layout="expanded", **STATES),
        case(SHORTEST, d, special="k", values="nan", decay="none"),
        case(SHORTEST, d, decay="strong"),
        case(SHORTEST, d, **STATES),
        case((0, 2, 8, 16), d),
        case((1, 2, 0, 16), d, **STATES),
    )


CASES = (
    *(c for d in (BF16, F16, F32) for c in _verified(d)),
    *(case(SHORTEST, BF16, special=x, values="nan") for x in ("q", "v")),
    case((1, 1, 33, 7), BF16, v=5, state="own", final=True),
    case((1, 2, 9, 72), BF16, v=40, decay="heads", order="blhd"),
    case((1, 1, 20, 1), F16, v=1, scale=0.0),
    *(case(shape, BF16, use="bench", **more) for shape, more in BENCH),
    case((4, 16, 8192, 128), F16, use="bench"),
    *(
        case(shape, BF16, use="bench", state="f32", final=True, **more)
        for shape, more in DECODE
    ),
)  # fmt: skip


def reference(q, k, v, g, state, want_final, scale):
    y, end = chunks.forward(q, k, v, g, state, scale)
    return y, end if want_final else end.new_empty(0)


def backward_reference(gy, gfinal, q, k, v, g, state, want_final, scale):
    gradients = chunks.backward(gy, gfinal, q, k, v, g, state, scale)
    given = (q, k, v, g, state)
    return tuple(
        t if x is not None else t.new_empty(0) for t, x in zip(gradients, given, strict=True)
    )


def inputs(c: Case, device: str):
    b, h, length, d = c.shape
    dv, special = c.param("v", d), c.param("special", "q")
    shapes = {"q": c.shape, "k": c.shape, "v": (b, h, length, dv)}
    state = c.param("state")
    if state is not None:
        dtype = F32 if state == "f32" else c.dtype
        plain = replace(c, values="normal", layout="contiguous")
        state = tensor(plain, "state", device, shape=(b, h, d, dv), dtype=dtype)
    return {
        **{
            name: _operand(c, name, shape, c.values if name == special else "normal", device)
            for name, shape in shapes.items()
        },
        "g": _decay(c, device),
        "state": state,
        "want_final": c.param("final", False),
        "scale": float(c.param("scale", max(d, 1) ** -0.5)),
    }


def _operand(c: Case, name: str, shape, values: str, device: str) -> torch.Tensor:
    """A tensor in the layout of the case, or with the heads after the tokens in memory."""
    own = replace(c, shape=tuple(shape), values=values)
    if c.param("order") == "blhd":
        b, h, length, d = shape
        own = replace(own, shape=(b, length, h, d))
        return tensor(own, name, device).transpose(1, 2)
    return tensor(own, name, device)


def _decay(c: Case, device: str):
    """Log decay, near 0 as in models; for "heads" as in RetNet, expanded."""
    kind, shape = c.param("decay", "tokens"), c.shape[:3]
    if kind == "none":
        return None
    plain = replace(c, values="normal", layout="contiguous")
    if kind == "heads":
        g = tensor(plain, "g", device, shape=(1, shape[1], 1), dtype=F32, scale=0.02)
        return (g if device == "meta" else g.abs_().neg_()).expand(shape)
    g = tensor(plain, "g", device, shape=shape, dtype=F32, scale=40.0 if kind == "strong" else 0.1)
    if device != "meta":
        g.abs_().neg_()
        if kind == "resets":
            g[..., 2::11] = -torch.inf
    return g


def backward_inputs(c: Case, device: str):
    args = inputs(c, device)
    gy = _operand(c, "gy", args["v"].shape, "normal", device)
    q, v, gfinal = args["q"], args["v"], None
    if args["want_final"]:
        shape, plain = (*q.shape[:2], q.shape[3], v.shape[3]), replace(c, values="normal")
        plain = replace(plain, layout="contiguous")
        gfinal = tensor(plain, "gfinal", device, shape=shape, dtype=accumulated(c.dtype))
    return {"gy": gy, "gfinal": gfinal, **args}


def outputs(q, k, v, g, state, want_final, scale):
    shape = (*q.shape[:2], q.shape[3], v.shape[3]) if want_final else (0,)
    final = TensorSpec.contiguous(shape, accumulated(q.dtype))
    return ordered_as(q, (*q.shape[:3], v.shape[3])), final


def backward_outputs(gy, gfinal, q, k, v, g, state, want_final, scale):
    def alike(t):
        if t is None:
            return TensorSpec.contiguous((0,), q.dtype)
        return TensorSpec.contiguous(t.shape, t.dtype)

    return *(ordered_as(t, t.shape) for t in (q, k, v)), alike(g), alike(state)


def cost(q, k, v, g, state, want_final, scale):
    products = _flops(q, v, squares=2, states=2)
    given = tuple(t.nbytes for t in (q, k, v, g, state) if t is not None)
    written = tuple(s.nbytes for s in outputs(q, k, v, g, state, want_final, scale))
    return Cost(given, written, products, {SHORT[q.dtype]: products})


def backward_cost(gy, gfinal, q, k, v, g, state, want_final, scale):
    products = _flops(q, v, squares=5, states=5)
    given = tuple(t.nbytes for t in (gy, gfinal, q, k, v, g, state) if t is not None)
    written = tuple(
        s.nbytes for s in backward_outputs(gy, gfinal, q, k, v, g, state, want_final, scale)
    )
    return Cost(given, written, products, {SHORT[q.dtype]: products})


def _flops(q, v, squares: int, states: int) -> int:
    """Operations with chunks of 64 tokens: products with the earlier tokens of a chunk, 32.5 on
    average, and with states."""
    b, h, length, d = q.shape
    seen = min(length, chunks.CHUNK) + 1
    wide = (d + v.shape[3]) // 2
    return b * h * length * (seen * wide * squares + 2 * states * d * v.shape[3])


def noise(q, k, v, g, state, want_final, scale):
    of_y, of_final = errors.of_results(q.dtype, *_wide(q * scale, k, v), g, state)
    return of_y, of_final if want_final else of_final.new_empty(0)


def backward_noise(gy, gfinal, q, k, v, g, state, want_final, scale):
    """gq is linear attention of gy, v, k; gk and gv are linear attention of v, gy, q and of k, q,
    gy, from the last token to the first, where the decay of a token is that of its successor."""
    dtype = q.dtype
    gy, q, k, v = _wide(gy * scale, q, k, v)
    of_gq, _ = errors.of_results(dtype, gy, v, k, g, None if state is None else state.mT)
    after = None if g is None else torch.cat((g[..., :1] * 0, g[..., 1:].flip(2)), 2)
    turned = [t.flip(2) for t in (gy, q, k, v)]
    last = None if gfinal is None else gfinal.mT
    of_gk, _ = errors.of_results(dtype, turned[3], turned[0], turned[1], after, last)
    of_gv, of_first = errors.of_results(dtype, turned[2], turned[1], turned[0], after, gfinal)
    of_gg = of_state = q.new_empty(0)
    if g is not None:
        of_gg = errors.of_decay(dtype, gy, gfinal, q, k, v, g, state)
    if state is not None:
        of_state = of_first
        if g is not None and q.shape[2]:
            of_state = of_first * g[:, :, 0].double().exp()[..., None, None]
    return of_gq, of_gk.flip(2), of_gv.flip(2), of_gg, of_state


def _wide(*tensors):
    return tuple(t.double() for t in tensors)


def sharding(args, results):
    """Over batches and over heads."""
    for dim in (0, 1):
        if args["q"].shape[dim] > 1:
            given = (*args.items(), *results.items())
            yield {n: dim for n, t in given if isinstance(t, TensorSpec) and t.ndim > 1} | {
                n: None for n, t in given if isinstance(t, TensorSpec) and t.ndim == 1
            }


_ARGUMENTS = "Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? state, bool want_final, float scale"
FORWARD = Operator(
    name="linear_attention",
    schema=f"({_ARGUMENTS}) -> (Tensor y, Tensor final)",
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=outputs,
    layout="any",
    noise=noise,
    sharding=sharding,
    source="Katharopoulos et al., arXiv:2006.16236; Sun et al., RetNet, arXiv:2307.08621;"
    " Dao and Gu, Mamba-2, arXiv:2405.21060",
)
BACKWARD = Operator(
    name="linear_attention.backward",
    schema=f"(Tensor gy, Tensor? gfinal, {_ARGUMENTS})"
    " -> (Tensor gq, Tensor gk, Tensor gv, Tensor gg, Tensor gstate)",
    reference=backward_reference,
    inputs=backward_inputs,
    cases=CASES,
    cost=backward_cost,
    outputs=backward_outputs,
    layout="any",
    noise=backward_noise,
    sharding=sharding,
    source="autograd of linear_attention",
)
