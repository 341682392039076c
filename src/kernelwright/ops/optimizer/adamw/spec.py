"""adamw: the mathematics. One step of Adam with decoupled weight decay, on lists of tensors, in
place.

step += 1
p    *= 1 - lr * weight_decay
m    += (1 - beta1) * (g - m)
v    += (1 - beta2) * (g^2 - v)
p    -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from kernelwright.contract import Cost, Operator, case
from kernelwright.contract.inputs import FLOATS, tensor
from kernelwright.contract.parameters import GPT2
from kernelwright.contract.rounding import U

LISTS = {
    "one": lambda shape: (shape,),
    "few": lambda shape: (shape, (129,), ()),
    "gpt2": lambda shape: GPT2,
}
# Defaults of a case's parameters.
DEFAULTS = {
    "lr": 1e-3,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.01,
    "eps": 1e-8,
    "maximize": False,
    "step": 2,
    "list": "few",
}
SWEEP = (
    {"step": 0},
    {"step": 100_000},
    {"maximize": True},
    {"weight_decay": 0.0},
    {"lr": 0.0},
    {"lr": 0.3, "weight_decay": 0.5, "eps": 1e-2, "beta1": 0.5, "beta2": 0.95},
)
# Optional arguments of a call; "states" and "copies" name dtypes.
VARIANTS = (
    {"device_lr": True},
    {"grad_scale": 128.0, "found_inf": 0.0},
    {"found_inf": 1.0},
    {"amsgrad": True},
    {"states": "bf16", "seed": True},
    {"states": "f32", "copies": "bf16"},
    {"states": "bf16", "copies": "bf16", "seed": True, "maximize": True},
)
# Gradients whose square overflows float32 or the dtype of the states; states that have overflowed.
LARGE = (
    case((5, 77), torch.float32, grads=1e20),
    case((5, 77), torch.bfloat16, grads=1e20),
    case((5, 77), torch.float16, grads=6e4),
    case((5, 77), torch.float16, overflowed=True),
    case((5, 77), torch.bfloat16, overflowed=True),
)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CASES = (
    *(
        case(shape, d)
        for d in FLOATS
        for shape in ((0,), (1,), (7,), (5, 33), (2, 3, 129), (1, 2, 3, 4, 5), (5, 1000))
    ),
    *(
        case((3, 4, 37), d, layout=layout)
        for d in FLOATS
        for layout in ("sliced", "permuted", "offset")
    ),
    *(
        case((4, 66), d, values=values)
        for d in FLOATS
        for values in ("large", "nan", "inf", "constant")
    ),
    *(case((5, 33), d, **extra) for d in FLOATS[::2] for extra in SWEEP),
    *(case((5, 77), torch.float32, **extra) for extra in VARIANTS),
    *(case((5, 77), torch.bfloat16, **extra) for extra in (VARIANTS[1], VARIANTS[4])),
    *LARGE,
    *(
        case((3, 4, 37), torch.float32, layout=layout, **VARIANTS[6])
        for layout in ("sliced", "permuted", "offset")
    ),
    *(
        case((n,), d, use="bench", label="one parameter", list="one")
        for n, d in ((2**26, torch.float32), (2**26, torch.bfloat16), (2**28, torch.float32))
    ),
    *(
        case(
            (sum(map(math.prod, GPT2)),), torch.float32, use="bench", list="gpt2", label=label, **v
        )
        for label, v in (
            ("GPT-2 124M, 148 parameters", {}),
            ("GPT-2 124M, bfloat16 states", VARIANTS[4]),
            ("GPT-2 124M, float32 masters of bfloat16 parameters", VARIANTS[5]),
        )
    ),
    case((2**31 + 5,), torch.bfloat16, use="big", list="one"),
)


class Arguments(NamedTuple):
    """A call's arguments, named and ordered as in the schema."""

    params: list[torch.Tensor]
    grads: list[torch.Tensor]
    exp_avgs: list[torch.Tensor]
    exp_avg_sqs: list[torch.Tensor]
    max_exp_avg_sqs: list[torch.Tensor]
    state_steps: list[torch.Tensor]
    copies: list[torch.Tensor]
    lr: float
    beta1: float
    beta2: float
    weight_decay: float
    eps: float
    maximize: bool
    lr_tensor: torch.Tensor | None = None
    grad_scale: torch.Tensor | None = None
    found_inf: torch.Tensor | None = None
    seed: torch.Tensor | None = None

    def of_each(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """For each parameter: itself, its gradient (unscaled, with the sign of a descent), its
        moments, the second moment by which it is divided, and its step."""
        largest = self.max_exp_avg_sqs or self.exp_avg_sqs
        moments = self.exp_avgs, self.exp_avg_sqs, largest
        for p, g, *others in zip(self.params, self.grads, *moments, self.state_steps, strict=True):
            g = -g if self.maximize else g
            yield p, g if self.grad_scale is None else g / self.grad_scale, *others


def reference(**args):
    a = Arguments(**args)
    if a.found_inf is not None and a.found_inf != 0:
        return
    lr = a.lr if a.lr_tensor is None else a.lr_tensor
    for k, (p, g, m, v, top, step) in enumerate(a.of_each()):
        step += 1
        p *= 1 - lr * a.weight_decay
        m += (1 - a.beta1) * (g - m)
        v *= a.beta2  # an infinite v remains so, as in PyTorch's steps
        v += (1 - a.beta2) * g * g
        if a.max_exp_avg_sqs:
            top.copy_(torch.maximum(top, v))
        denominator = (top / (1 - a.beta2**step)).sqrt() + a.eps
        p -= lr / (1 - a.beta1**step) * m / denominator
        if a.copies:
            a.copies[k].copy_(p)


def inputs(c, device):
    said = {**DEFAULTS, **dict(c.params)}
    shapes = LISTS[said.pop("list")](c.shape)
    step = float(said.pop("step"))
    large, overflowed = said.pop("grads", None), said.pop("overflowed", False)
    states, copies = said.pop("states", None), said.pop("copies", None)

    def tensors(name, dtype=None):
        dtype = DTYPES.get(dtype, c.dtype)
        return [tensor(c, f"{name}{i}", device, shape=s, dtype=dtype) for i, s in enumerate(shapes)]

    def number(value):
        return torch.tensor(value, device=device)

    args = {
        "params": tensors("params"),
        # a low-precision parameter has gradients of the same dtype
        "grads": tensors("grads", copies),
        "exp_avgs": tensors("exp_avgs", states),
        "exp_avg_sqs": [v.abs_() for v in tensors("exp_avg_sqs", states)],
        "max_exp_avg_sqs": [],
        "state_steps": [number(step) for _ in shapes],
        "copies": tensors("copies", copies) if copies else [],
    }
    if large:
        args["grads"] = [g.clamp_(-1, 1).mul_(large) for g in args["grads"]]
    if overflowed:
        for v in args["exp_avg_sqs"]:
            v.view(-1)[::3] = math.inf
    if said.pop("amsgrad", False):
        args["max_exp_avg_sqs"] = [v.abs_() for v in tensors("max_exp_avg_sqs", states)]
    if said.pop("device_lr", False):
        args["lr_tensor"] = number(said["lr"])
    for name in ("grad_scale", "found_inf"):
        if name in said:
            args[name] = number(said.pop(name))
    if said.pop("seed", False):
        args["seed"] = torch.tensor([c.seed + 1], device=device)
    return {**args, **said}


def cost(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs=(), state_steps=(), copies=(), **others
):
    def size(tensors):
        return sum(t.nbytes for t in tensors)

    changed = [size(t) for t in (params, exp_avgs, exp_avg_sqs, max_exp_avg_sqs) if t]
    flops = 14 * sum(p.numel() for p in params)
    written = [size(copies)] if copies else []
    return Cost(reads=(*changed, size(grads)), writes=(*changed, *written), flops=flops)


def noise(**args):
    """The rounding error of float32 where m cancels, and its effect on p.

    m' = m + (1 - beta1) (g - m) rounds both of its terms, each by at most u of its size, so the
    error of m' is u (|m| + (1 - beta1) |g|) however small m' is. In p' = decay p - s m' / d the
    quotient has this error times s / d, and u of its own size from each of its three other
    operations. v' is a sum of non-negative terms, and the step is exact.
    """
    wide = {k: [t.double() for t in v] for k, v in args.items() if isinstance(v, list)}
    a = Arguments(**{**args, **wide})
    of_p, of_m = [], []
    for p, g, m, v, top, step in a.of_each():
        t = step + 1
        terms = m.abs() + (1 - a.beta1) * g.abs()
        v = torch.maximum(
            a.beta2 * v + (1 - a.beta2) * g * g,
            top if a.max_exp_avg_sqs else torch.zeros_like(v),
        )
        per_m = a.lr / (1 - a.beta1**t) / ((v / (1 - a.beta2**t)).sqrt() + a.eps)
        quotient = per_m * (m + (1 - a.beta1) * (g - m)).abs()
        of_m.append(U * terms)
        of_p.append(U * (p.abs() + 3 * quotient + per_m * terms))
    of_v = [torch.zeros_like(n) for n in of_m]
    of_step = [torch.zeros_like(s) for s in a.state_steps]
    return (
        *of_p,
        *of_m,
        *of_v,
        *(of_v if a.max_exp_avg_sqs else ()),
        *of_step,
        *(of_p if a.copies else ()),
    )


def second_moment(args, results):
    """No second moment is negative."""
    negative = [bool((v < 0).any()) for v in args["exp_avg_sqs"]]
    return f"exp_avg_sqs[{negative.index(True)}] is negative" if any(negative) else None


OPERATOR = Operator(
    name="adamw",
    schema=(
        "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs,"
        " Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] state_steps, Tensor(f!)[] copies, float lr,"
        " float beta1, float beta2, float weight_decay, float eps, bool maximize,"
        " Tensor? lr_tensor=None, Tensor? grad_scale=None, Tensor? found_inf=None,"
        " Tensor? seed=None) -> ()"
    ),
    reference=reference,
    inputs=inputs,
    cases=CASES,
    cost=cost,
    outputs=lambda **args: (),
    layout="any",
    noise=noise,
    properties={"second moments are not negative": second_moment},
    source="torch.optim.adamw.adamw; Loshchilov and Hutter 2019, arXiv:1711.05101",
)
