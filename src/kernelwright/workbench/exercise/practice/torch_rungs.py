"""The operators in PyTorch, whose error a learner's error is compared with."""

import torch.nn.functional as F

from .spec import count


def vector_add(a, b):
    return a + b


def transpose(x):
    return x.t().contiguous()


def row_sum(x):
    return x.sum(-1)


def prefix_sum(x):
    return x.cumsum(-1)


def histogram(x, bins):
    return count(x, bins)


def layernorm(x, weight, bias, eps):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
