"""A call of attention in the form that kernels take: sizes, strides, and optional arguments."""

from __future__ import annotations

from kernelwright.contract import Scalar, i32, i64
from kernelwright.contract.arithmetic import next_power_of_2

from .spec import backward_outputs, outputs


class Call:
    """The specs of a call, forward or backward.

    Attributes:
        b, h, length, d: sizes of q. s: number of keys. hk: heads of k and v. dv: head size of v.
        group: heads of q per head of k and v.
        specs: of every tensor, results included, by name.
    """

    def __init__(self, args):
        self.args = args
        q, k, v = args["q"], args["k"], args["v"]
        self.b, self.h, self.length, self.d = q.shape
        self.hk, self.s, self.dv = k.shape[1], k.shape[2], v.shape[3]
        self.group = self.h // self.hk
        self.dtype = q.dtype
        self.causal, self.mask_grad = args["causal"], args["mask_grad"]
        if "gy" in args:
            names = ("gq", "gk", "gv", "gmask")
            results = dict(zip(names, backward_outputs(**args), strict=True))
        else:
            results = dict(zip(("y", "lse"), outputs(**args), strict=True))
        self.specs = {**args, **results}

    def strides(self, *names: str) -> tuple[Scalar, ...]:
        """Elements between batches, heads and rows, as Triton kernels take them. The stride of rows
        is an int32 if offsets within a tile of rows fit in one."""
        return tuple(x for name in names for x in self._strides(self.specs[name]))

    def _strides(self, t) -> tuple[Scalar, ...]:
        b, h, row, _ = t.stride()
        return i64(b), i64(h), i32(row) if abs(row) < 2**22 else i64(row)

    def columns(self, *names: str) -> dict[str, int]:
        """Elements between columns, on which Triton kernels are specialized."""
        specs = {name: self.specs[name] for name in names}
        return {
            f"{name.upper()}_COL": t.stride(3) if t.shape[3] > 1 else 1 for name, t in specs.items()
        }

    @property
    def mask(self):
        return self.args["mask"]

    @property
    def mask_strides(self) -> tuple[Scalar, ...]:
        """All four strides of the mask; 0 along dimensions that it does not have."""
        if self.mask is None:
            return (i64(0),) * 4
        shape, strides = self.mask.shape, self.mask.stride()
        return tuple(i64(0 if n == 1 else s) for n, s in zip(shape, strides, strict=True))

    def pointer(self, name: str, otherwise: str = "q") -> str:
        """An argument or, if it is absent, another tensor, which the kernel does not read."""
        return otherwise if self.args[name] is None else name

    @property
    def options(self) -> dict[str, int | bool]:
        """The constants on which Triton kernels are specialized."""
        mask = self.mask
        kind = 0 if mask is None else 1 if str(mask.dtype) == "torch.bool" else 2
        return {
            "CAUSAL": self.causal,
            "MASK": kind,
            "DROP": self.args["seed"] is not None,
            "WHOLE": self.s % 8 == 0,
            "D": self.d,
            "DV": self.dv,
            "D2": max(16, next_power_of_2(self.d)),
            "DV2": max(16, next_power_of_2(self.dv)),
        }
