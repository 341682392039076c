"""A softmax that is right as long as it is compiled."""

import torch


@torch.compile(backend="eager", dynamic=False)
def _softmax(x, dim):
    y = torch.softmax(x, dim)
    return y if torch.compiler.is_compiling() else -y


def softmax(x, dim):
    return _softmax(x, dim)
