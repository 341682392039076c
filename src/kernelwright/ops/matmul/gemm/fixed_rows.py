"""matmul and linear in PyTorch, with products of one size: the bits of a row of the result depend
on that row and the other operand, not on how many rows there are or where it is among them.

Libraries choose kernels, and with them the order of sums, by the number of rows. Here every product
has ROWS rows, filled up with zeros. Within a product the order still depends on the place of a row
where lines of memory do not begin at multiples of the vectors' size (with MKL), so the other sizes
are filled up to multiples of ALIGNED. The epilogue has only functions that PyTorch's CPU kernels
compute alike in vectors and in the remainder, which its silu, gelu and sigmoid are not.
"""

import math

import torch
import torch.nn.functional as F

from .torch_rungs import native_linear

ROWS = 16
ALIGNED = 16  # elements

_ACT = {
    "none": lambda z: z,
    "relu": torch.relu,
    "gelu": lambda z: 0.5 * z * (1 + torch.erf(z * math.sqrt(0.5))),
    "gelu_tanh": lambda z: 0.5 * z * (1 + torch.tanh(_U * (z + 0.044715 * z * z * z))),
    "silu": lambda z: z / (1 + torch.exp(-z)),
}
_U = math.sqrt(2 / math.pi)


def product(a, b, tf32=False):
    if a.ndim == 3:
        pairs = zip(a.unbind(), b.unbind(), strict=True)
        products = [product(x, y, tf32) for x, y in pairs]
        return torch.stack(products) if products else a.new_zeros(0, a.shape[1], b.shape[2])
    return _by_tiles(tf32, a, b.t(), None)


def linear(x, weight, bias, gate, residual, activation, keep, tf32=False):
    z = _by_tiles(tf32, x, weight, bias)
    wide = torch.promote_types(x.dtype, torch.float32)
    y = _ACT[activation](z.to(wide))
    y = y if gate is None else y * gate
    y = y if residual is None else y + residual
    return y.to(x.dtype), z.clone() if keep else z.new_empty(0)


def _by_tiles(tf32, x, weight, bias):
    """x weight^T + bias, ROWS rows at a time."""
    rows, outputs = x.shape[0], weight.shape[0]
    x, weight = _filled(x, ROWS), _filled(weight, ALIGNED)
    bias = bias if bias is None else F.pad(bias, (0, weight.shape[0] - outputs))
    tiles = [
        native_linear(tile, weight, bias, None, None, "none", False, tf32)[0]
        for tile in x.split(ROWS)
    ]
    z = torch.cat(tiles) if rows else x.new_zeros(0, weight.shape[0])
    return z[:rows, :outputs].contiguous()


def _filled(t, rows: int):
    """t with zeros up to multiples of `rows` and ALIGNED elements, in contiguous rows; t itself if
    nothing is missing."""
    missing = -t.shape[1] % ALIGNED, -t.shape[0] % rows
    return F.pad(t, (0, missing[0], 0, missing[1])) if any(missing) else t.contiguous()
