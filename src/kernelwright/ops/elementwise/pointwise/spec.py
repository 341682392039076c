"""Elementwise operators: each result depends on the elements at its own position only.

`TABLE` has one line per operator: its value in float64, the tensors of the forward that its
gradient needs, and the gradient. Operators, cases, rungs and ladders are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from kernelwright.contract import Cost, Operator, TensorSpec, case, is_dense
from kernelwright.contract.inputs import FLOATS, adversarial, tensor
from kernelwright.contract.sharding import Rows

from .._activations import silu, silu_slope, silu_slope_noise


@dataclass(frozen=True)
class Formula:
    """An operator in one line.

    Attributes:
        inputs: its arguments, ("x",) or ("x", "other").
        value: function of the arguments, in plain PyTorch without a dtype.
        source: PyTorch's function.
        saved: arguments and results of the forward that the gradient needs.
        gradient: function of (gy, *saved): a gradient for each argument before broadcasting is
            undone; None if the gradient is the incoming one.
        noise: of the gradient, if it cancels, as `Operator.noise`.
    """

    name: str
    inputs: tuple[str, ...]
    value: Callable
    source: str
    saved: tuple[str, ...] = ()
    gradient: Callable | None = None
    noise: Callable | None = None

    @property
    def binary(self) -> bool:
        return len(self.inputs) == 2

    @property
    def results(self) -> tuple[str, ...]:
        """Of the backward."""
        return tuple(f"g{n}" for n in self.inputs)


TABLE = {
    f.name: f
    for f in (
        Formula("add", ("x", "other"), lambda x, other: x + other, "torch.add"),
        Formula("mul", ("x", "other"), lambda x, other: x * other, "torch.mul",
                ("x", "other"), lambda gy, x, other: (gy * other, gy * x)),
        Formula("relu", ("x",), lambda x: x.clamp_min(0), "torch.relu",
                ("y",), lambda gy, y: (gy.masked_fill(y <= 0, 0),)),
        Formula("squared_relu", ("x",), lambda x: x.clamp_min(0) ** 2,
                "So et al., Primer, arXiv:2109.08668",
                ("x",), lambda gy, x: (gy * (2 * x.clamp_min(0)),)),
        Formula("silu", ("x",), silu, "torch.nn.functional.silu",
                ("x",), lambda gy, x: (gy * silu_slope(x),),
                lambda gy, x: (silu_slope_noise(x) * gy.double().abs(),)),
        Formula("sigmoid", ("x",), torch.sigmoid, "torch.sigmoid",
                ("y",), lambda gy, y: (gy * ((1 - y) * y),)),
        Formula("tanh", ("x",), torch.tanh, "torch.tanh",
                ("y",), lambda gy, y: (gy * ((1 - y) * (1 + y)),)),
    )
}  # fmt: skip

# All operators use one template. One of them, with two arguments and two gradients, verifies
# indices, tails and layouts on the full list; the others verify their formula on each dtype and on
# special values.
THOROUGH = ("mul",)
OTHERS = ("same", "row", "column", "scalar", "float32")  # what `other` may be
BENCH = {(2**26,): "2^26 elements", (2**20,): "2^20 elements"}
MODELS = {
    (32768, 768): "residual of GPT-2, 32 x 1024 tokens",
    (8192, 14336): "the width of Llama 3's MLP, 8192 tokens",
}


def cases(f: Formula) -> tuple:
    same = {"other": "same"} if f.binary else {}
    sweep = tuple({"other": o} for o in OTHERS[1:]) if f.binary else ()
    if f.name in THOROUGH:
        verify = adversarial(sweep=sweep, **same)
    else:
        verify = _short(same, sweep)
    return (
        *verify,
        *(case((9001,), d, **same) for d in FLOATS),
        *(case(shape, d, use="bench", label=label, **same)
          for shape, label in BENCH.items() for d in FLOATS),
        *(case(shape, torch.bfloat16, use="bench", label=label, **same)
          for shape, label in MODELS.items()),
        *(case((8192, 14336), torch.bfloat16, use="bench", label="a bias", other="row")
          for _ in same),
        case((2**31 + 7,), torch.bfloat16, use="big", **same),
    )  # fmt: skip


def _short(params, sweep) -> tuple:
    layouts = ("sliced", "permuted", "offset")
    short = [case((3, 4, 37), torch.bfloat16, layout=x, **params) for x in layouts]
    for d in FLOATS:
        short += [case(shape, d, **params) for shape in ((0,), (5, 33))]
        short += [case((4, 66), d, values=v, **params) for v in ("large", "nan", "inf")]
        short += [case((5, 33), d, **more) for more in sweep]
    return tuple(short)


def inputs(f: Formula, c, device) -> dict:
    x = tensor(c, "x", device)
    return {"x": x, "other": _other(c, device)} if f.binary else {"x": x}


def _other(c, device) -> torch.Tensor:
    kind, shape = c.param("other"), c.shape
    if kind == "float32":
        return tensor(c, "other", device, dtype=torch.float32)
    shapes = {
        "same": shape,
        "row": (1,) * (len(shape) - 1) + shape[-1:],
        "column": (*shape[:-1], 1),
        "scalar": (1,) * len(shape),
    }
    return tensor(c, "other", device, shape=shapes[kind])


def backward_inputs(f: Formula, c, device) -> dict:
    args = inputs(f, c, device)
    if "y" in f.saved:  # the result instead of the argument, in its layout
        x = args["x"]
        once = x[:1] if x.ndim and x.stride(0) == 0 else x
        once.copy_(f.value(once))
        args = {"y": x}
    wide = torch.promote_types(c.dtype, args["other"].dtype) if f.binary else c.dtype
    return {"gy": tensor(c, "gy", device, dtype=wide), **args}


def outputs(f: Formula, x, other=None) -> tuple[TensorSpec, ...]:
    """As in PyTorch: the strides of an argument with the result's shape, if it is dense."""
    if other is None or x.shape == other.shape:
        dtype = x.dtype if other is None else torch.promote_types(x.dtype, other.dtype)
        return (TensorSpec(tuple(x.shape), tuple(x.stride()), dtype),)
    shape = tuple(torch.broadcast_shapes(x.shape, other.shape))
    dtype = torch.promote_types(x.dtype, other.dtype)
    for t in (x, other):
        if tuple(t.shape) == shape and is_dense(shape, tuple(t.stride())):
            return (TensorSpec(shape, tuple(t.stride()), dtype),)
    return (TensorSpec.contiguous(shape, dtype),)


def backward_outputs(f: Formula, gy, **saved) -> tuple[TensorSpec, ...]:
    like = [saved[n] for n in f.inputs] if f.binary else [next(iter(saved.values()))]
    return tuple(TensorSpec(tuple(t.shape), tuple(t.stride()), t.dtype) for t in like)


def undo_broadcast(gradient, shape, dtype):
    """The gradient of an argument that was broadcast: summed over the broadcast dimensions."""
    return gradient.sum_to_size(shape).to(dtype)


def add_gradient(specs, gy) -> dict:
    """The gradients of add: the incoming one."""
    return {n: undo_broadcast(gy, s.shape, s.dtype) for n, s in specs.items()}


def _backward_reference(f: Formula, gy, **saved):
    grads = f.gradient(gy, *saved.values())
    if f.binary:
        grads = tuple(g.sum_to_size(t.shape) for g, t in zip(grads, saved.values(), strict=True))
    return grads


def _forward_cost(f: Formula, **tensors) -> Cost:
    (y,) = outputs(f, **tensors)
    return Cost(tuple(t.nbytes for t in tensors.values()), (y.nbytes,), 8 * y.numel())


def _backward_cost(f: Formula, gy, **saved) -> Cost:
    written = tuple(t.nbytes for t in backward_outputs(f, gy, **saved))
    read = tuple(t.nbytes for t in (gy, *saved.values()))
    return Cost(read, written, 12 * gy.numel())


def _arguments(names) -> str:
    return ", ".join(f"Tensor {n}" for n in names)


FORWARD = {
    f.name: Operator(
        name=f.name,
        schema=f"({_arguments(f.inputs)}) -> (Tensor y)",
        reference=f.value,
        inputs=partial(inputs, f),
        cases=cases(f),
        cost=partial(_forward_cost, f),
        outputs=partial(outputs, f),
        layout="dense",
        sharding=Rows(),
        source=f.source,
    )
    for f in TABLE.values()
}
BACKWARD = {
    f.name: Operator(
        name=f"{f.name}.backward",
        schema=f"({_arguments(('gy', *f.saved))}) -> ({_arguments(f.results)})",
        reference=partial(_backward_reference, f),
        inputs=partial(backward_inputs, f),
        cases=cases(f),
        cost=partial(_backward_cost, f),
        outputs=partial(backward_outputs, f),
        layout="dense",
        sharding=Rows(),
        noise=f.noise,
        source=f"autograd of {f.source}",
    )
    for f in TABLE.values()
    if f.gradient
}
