"""adamw: the maths. One step of Adam with decoupled weight decay, over lists of tensors, in place.

step += 1
p    *= 1 - lr * weight_decay
m    += (1 - beta1) * (g - m)
v    += (1 - beta2) * (g^2 - v)
p    -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Cost, Operator, case
from kernelwright.contract.inputs import FLOATS, tensor

# GPT-2 124M: embeddings, then per layer norms, attention and MLP, then the last norm.
_LAYER = (
    (768,), (768,), (2304, 768), (2304,), (768, 768), (768,),
    (768,), (768,), (3072, 768), (3072,), (768, 3072), (768,),
)  # fmt: skip
GPT2 = ((50257, 768), (1024, 768), *_LAYER * 12, (768,), (768,))
LISTS = {
    "one": lambda shape: (shape,),
    "few": lambda shape: (shape, (1,), (129,), (3, 40), (), shape),
    "gpt2": lambda shape: GPT2,
}
# What a case leaves unsaid.
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
    *(case((5, 33), d, **extra) for d in FLOATS for extra in SWEEP),
    *(
        case((2**26,), d, use="bench", label="one parameter", list="one")
        for d in (torch.float32, torch.bfloat16)
    ),
    case(
        (sum(math.prod(s) for s in GPT2),),
        torch.float32,
        use="bench",
        label="GPT-2 124M, 148 parameters",
        list="gpt2",
    ),
    case((2**31 + 5,), torch.bfloat16, use="big", list="one"),
)


def reference(
    params, grads, exp_avgs, exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, maximize
):
    for p, g, m, v, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        g = -g if maximize else g
        step += 1
        p *= 1 - lr * weight_decay
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        denominator = (v / (1 - beta2**step)).sqrt() + eps
        p -= lr / (1 - beta1**step) * m / denominator


def inputs(c, device):
    said = {**DEFAULTS, **dict(c.params)}
    shapes = LISTS[said.pop("list")](c.shape)
    step = float(said.pop("step"))

    def tensors(name):
        return [tensor(c, f"{name}{i}", device, shape=s) for i, s in enumerate(shapes)]

    return {
        "params": tensors("params"),
        "grads": tensors("grads"),
        "exp_avgs": tensors("exp_avgs"),
        "exp_avg_sqs": [v.abs_() for v in tensors("exp_avg_sqs")],
        "state_steps": [torch.tensor(step, device=device) for _ in shapes],
        **said,
    }


def cost(params, grads, exp_avgs, exp_avg_sqs, **others):
    def size(tensors):
        return sum(t.nbytes for t in tensors)

    changed = [size(params), size(exp_avgs), size(exp_avg_sqs)]
    flops = 14 * sum(p.numel() for p in params)
    return Cost(reads=(*changed, size(grads)), writes=tuple(changed), flops=flops)


def noise(
    params, grads, exp_avgs, exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, maximize
):
    """The rounding error of float32 where m cancels, and what it makes of p.

    m' = m + (1 - beta1) (g - m) rounds both of its terms, each at most u of its size, so m' errs
    by u (|m| + (1 - beta1) |g|) however small it is. In p' = decay p - s m' / d the quotient errs
    by that much times s / d, and by u of its own size in each of its three other operations.
    v' adds what is not negative, and the step is exact.
    """
    u = torch.finfo(torch.float32).eps / 2
    of_p, of_m = [], []
    for p, g, m, v, step in zip(params, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True):
        p, g, m, v, t = p.double(), g.double(), m.double(), v.double(), step.double() + 1
        g = -g if maximize else g
        terms = m.abs() + (1 - beta1) * g.abs()
        v = v + (1 - beta2) * (g * g - v)
        per_m = lr / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)
        quotient = per_m * (m + (1 - beta1) * (g - m)).abs()
        of_m.append(u * terms)
        of_p.append(u * (p.abs() + 3 * quotient + per_m * terms))
    of_v = [torch.zeros_like(n) for n in of_m]
    return (*of_p, *of_m, *of_v, *(torch.zeros_like(s, dtype=torch.float64) for s in state_steps))


def second_moment(args, results):
    """No second moment is negative."""
    negative = [bool((v < 0).any()) for v in args["exp_avg_sqs"]]
    return f"exp_avg_sqs[{negative.index(True)}] is negative" if any(negative) else None


OPERATOR = Operator(
    name="adamw",
    schema=(
        "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs,"
        " Tensor(d!)[] state_steps, float lr, float beta1, float beta2, float weight_decay,"
        " float eps, bool maximize) -> ()"
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
