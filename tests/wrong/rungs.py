"""Entries of rungs that verification must turn down."""

import torch


def right(x, dim):
    return torch.softmax(x, dim)


def zeros(x, dim):
    return torch.zeros_like(x)


def raises(x, dim):
    raise ArithmeticError("no softmax today")
