"""sort in PyTorch: first positions, then a gather of the elements; and PyTorch's own operator."""

import torch


def manual(x, descending=False):
    """Sorts the positions, then gathers: each element is moved once more."""
    indices = torch.argsort(x, dim=-1, descending=descending, stable=True)
    return x.gather(-1, indices), indices


def native(x, descending=False):
    values, indices = torch.sort(x, dim=-1, descending=descending, stable=True)
    return values, indices


def manual_values(x):
    return manual(x)[0]


def native_values(x):
    return native(x)[0]


def manual_indices(x, descending=False):
    """A complete sort whose values are discarded."""
    return native(x, descending)[1]


def native_indices(x, descending=False):
    return torch.argsort(x, dim=-1, descending=descending, stable=True)


def manual_backward(gvalues, indices):
    """The inverse permutation by a sort, then a gather with it."""
    return gvalues.gather(-1, indices.argsort(-1))


def native_backward(gvalues, indices):
    return torch.zeros_like(gvalues).scatter(-1, indices, gvalues)
