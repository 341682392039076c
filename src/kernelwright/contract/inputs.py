"""Makes the tensors of a case: reproducible random values, with the case's layout and special
values."""

from __future__ import annotations

import hashlib
import math

import torch

from .case import Case, case

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def tensor(
    c: Case,
    name: str,
    device: str = "cpu",
    *,
    shape: tuple[int, ...] | None = None,
    dtype: torch.dtype | None = None,
    scale: float = 1.0,
) -> torch.Tensor:
    """The tensor `name` of a case: normal values times `scale`, then the case's layout and values.

    Args:
        device: "meta" makes a tensor without data, to inspect shapes and strides.
        shape, dtype: by default the case's. A tensor of another shape than the case's is always
            contiguous with ordinary values: layouts and special values apply to the main tensors.
    """
    plain = shape is not None and tuple(shape) != c.shape
    shape = c.shape if shape is None else tuple(shape)
    t = _empty(shape, dtype or c.dtype, "contiguous" if plain else c.layout, device)
    if device == "meta":
        return t
    base = t if 0 not in t.stride() or t.numel() == 0 else _unexpanded(t)
    base.normal_(0.0, scale, generator=generator(_seed(c.id, name, c.seed), device))
    if c.tail:
        other = torch.empty_like(base)
        other.normal_(0.0, scale, generator=generator(_seed(c.id, name, c.tail), device))
        at = torch.arange(base.numel(), device=device).view(base.shape)
        base.copy_(torch.where(at < base.numel() - max(1, base.numel() // 8), base, other))
    if not plain:
        _set_special_values(base, c.values)
    return t


def generator(seed: int, device: str) -> torch.Generator | None:
    """The random generator of a device; None for "meta", which needs none."""
    return None if device == "meta" else torch.Generator(device=device).manual_seed(seed)


def _seed(*parts) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "little")


def _empty(shape, dtype, layout: str, device: str) -> torch.Tensor:
    def empty(*s):
        return torch.empty(s, dtype=dtype, device=device)

    if layout == "contiguous" or not shape:
        return empty(*shape)
    if layout == "sliced":  # a row stride that no vector width divides
        return empty(*shape[:-1], shape[-1] + 3)[..., : shape[-1]]
    if layout == "permuted":  # dense, last dimension strided
        return empty(*reversed(shape)).permute(*reversed(range(len(shape))))
    if layout == "offset":  # the data pointer is one element off every alignment
        return empty(math.prod(shape) + 1)[1:].view(shape)
    assert layout == "expanded", layout
    return empty(1, *shape[1:]).expand(shape)


def _unexpanded(t: torch.Tensor) -> torch.Tensor:
    return t[:1] if t.ndim and t.stride(0) == 0 else t


def _set_special_values(t: torch.Tensor, values: str) -> None:
    """Write the case's special values into the tensor."""
    if values == "normal" or t.numel() == 0:
        return
    if values == "large":
        t.mul_(60.0)  # exp overflows, half does not
    elif values == "constant":
        t.fill_(-1.25)
    elif values == "shifted":  # by so much that the sum with a logarithm loses the latter
        t.add_(2.0**20) if t.itemsize > 2 else t.mul_(16.0).add_(1024.0)
    elif values == "neginf_row":
        rows = t.unsqueeze(0) if t.ndim < 2 else t
        rows[..., ::3] = -math.inf
        rows[0] = -math.inf
    elif values == "both_infs":
        rows = t.unsqueeze(0) if t.ndim < 2 else t
        rows[0][..., 0], rows[0][..., -1] = math.inf, -math.inf
    else:
        flat = t.view(-1) if t.is_contiguous() else t[..., 0]
        flat[flat.numel() // 2 if flat.ndim == 1 else ...] = float(values)


def adversarial(
    *, dtypes=FLOATS, values=("large", "nan", "inf", "neginf_row", "constant"), sweep=(), **params
) -> tuple[Case, ...]:
    """Inputs that every operator must handle: sizes 0 and 1, odd tails, 1-D to 5-D, every layout,
    special values. `sweep`: dicts of further parameters, each used with a few shapes."""
    cases = []
    for dtype in dtypes:
        for shape in ((0,), (1,), (7,), (3, 0), (5, 33), (2, 3, 129), (1, 2, 3, 4, 5), (4, 1000)):
            cases.append(case(shape, dtype, **params))
        for layout in ("sliced", "permuted", "offset", "expanded"):
            cases.append(case((6, 40), dtype, layout=layout, **params))
            cases.append(case((3, 4, 37), dtype, layout=layout, **params))
        cases += [case((4, 66), dtype, values=v, **params) for v in values]
        for extra in sweep:
            cases.append(case((5, 33), dtype, **{**params, **extra}))
            cases.append(case((4, 3, 64), dtype, **{**params, **extra}))
    return tuple(dict.fromkeys(cases))
