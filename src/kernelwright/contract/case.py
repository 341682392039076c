"""A case: one set of inputs that a rung is verified or timed on, as data that prints as an id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

SHORT = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "b8",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}

#: Memory layouts of a case's tensors. `contract/inputs.py` makes each of them.
LAYOUTS = ("contiguous", "sliced", "permuted", "offset", "expanded")

#: Kinds of tensor contents. `contract/inputs.py` makes each of them.
VALUES = ("normal", "large", "nan", "inf", "neginf_row", "both_infs", "constant", "shifted")


@dataclass(frozen=True)
class Case:
    """One input of an operator.

    Attributes:
        shape: shape of the operator's main tensor.
        dtype: dtype of its floating tensors.
        params: the operator's other arguments (dim, eps, ...), as a sorted tuple of pairs.
        layout: one of LAYOUTS.
        values: one of VALUES.
        use: "verify" (small, adversarial), "bench" (shapes of real models, verified too where
            they run) or "big" (more than 2**31 elements; GPUs only).
        label: where a shape comes from ("llama3-8b logits"); not part of the id.
        seed: another seed gives other values of the same case; not part of the id.
        tail: if not 0, the seed of the last eighth of each random tensor's elements; not part
            of the id.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    params: tuple[tuple[str, Any], ...] = ()
    layout: str = "contiguous"
    values: str = "normal"
    use: str = "verify"
    label: str = field(default="", compare=False)
    seed: int = 0
    tail: int = 0

    def __post_init__(self):
        assert self.layout in LAYOUTS, self.layout
        assert self.values in VALUES, self.values

    @property
    def id(self) -> str:
        """The name of this case for --case, in records and in test ids."""
        parts = ["x".join(map(str, self.shape)) or "scalar", short(self.dtype)]
        parts += [f"{k}={_show(v)}" for k, v in self.params]
        parts += [p for p in (self.layout, self.values) if p not in ("contiguous", "normal")]
        return "-".join(parts)

    def param(self, name: str, default: Any = None) -> Any:
        return dict(self.params).get(name, default)

    @property
    def numel(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n


def case(shape, dtype, *, layout="contiguous", values="normal", use="verify", label="", **params):
    """A Case with its operator arguments given as keywords."""
    return Case(tuple(shape), dtype, tuple(sorted(params.items())), layout, values, use, label)


def short(dtype: torch.dtype) -> str:
    """The name of a dtype in ids; the less usual ones have PyTorch's name."""
    return SHORT.get(dtype) or str(dtype).removeprefix("torch.")


def _show(v: Any) -> str:
    return ",".join(map(str, v)) if isinstance(v, (tuple, list)) else str(v)
