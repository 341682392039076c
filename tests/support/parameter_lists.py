"""Lists of parameters, and AdamW's other arguments, for tests of operators on lists."""

import torch

from support.publics import DEVICE, randn

HYPER = {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
SHAPES = ((7, 33), (129,), (), (2, 3, 5))


def state(dtype=torch.float32, requires_grad=False):
    params = [randn(*s, dtype=dtype, seed=i).requires_grad_(requires_grad)
              for i, s in enumerate(SHAPES)]  # fmt: skip
    zeros = [[torch.zeros_like(p, requires_grad=False) for p in params] for _ in range(2)]
    steps = [torch.tensor(0.0, device=DEVICE) for _ in params]
    return params, *zeros, steps


def gradients(step, dtype=torch.float32):
    return [randn(*s, dtype=dtype, seed=100 * step + i) for i, s in enumerate(SHAPES)]
