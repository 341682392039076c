"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind


def order(gpu, **args):
    return ()


def bucket(q, k, table, left, capped, split, **more):
    sizes = (q.shape[0], table.shape[0], table.shape[1] * k.shape[1])
    powers = "/".join(str(next_power_of_2(max(n, 1))) for n in sizes)
    options = f"{next_power_of_2(left + 1)}{'/cap' if capped else ''}{f'/{split}' if split else ''}"
    heads = f"{q.shape[2]}/{q.shape[1] // max(k.shape[2], 1)}"
    return f"{kind(q.dtype)}/{kind(k.dtype)}/{heads}/{k.shape[1]}/{powers}/{options}"
