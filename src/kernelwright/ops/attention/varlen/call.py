"""A call of attention over packed sequences as Triton kernels see it."""

from __future__ import annotations

from kernelwright.contract import Scalar, i32, i64
from kernelwright.contract.arithmetic import next_power_of_2

from .spec import backward_outputs, outputs

FLOAT_ROWS = 16  # float32 products are chains of multiply-adds: small tiles compile


class Call:
    """Sizes of a call, forward or backward, and its tensors' strides.

    Attributes:
        tokens, h, d: sizes of q. hk, dv: heads of k and v, head size of v.
        group: heads of q for each head of k and v. sequences: how many.
        specs: of every tensor, results included, by name.
    """

    def __init__(self, args):
        self.args = args
        q, k, v = args["q"], args["k"], args["v"]
        self.tokens, self.h, self.d = q.shape
        self.hk, self.dv = k.shape[1], v.shape[2]
        self.group, self.dtype = self.h // self.hk, q.dtype
        self.sequences = args["cu_q"].shape[0] - 1
        self.max_q, self.max_k = args["max_q"], args["max_k"]
        if "gy" in args:
            made = zip(("gq", "gk", "gv", "gsinks"), backward_outputs(**args), strict=True)
        else:
            made = zip(("y", "lse"), outputs(**args), strict=True)
        self.specs = {**args, **dict(made)}

    def has(self, name: str) -> bool:
        return self.args[name] is not None

    def pointer(self, name: str) -> str:
        """An argument or, if it is absent, another tensor, which the kernel does not read."""
        return name if self.has(name) else "q"

    def strides(self, *names: str) -> tuple[Scalar, ...]:
        """Elements from one row and head to the next. A row's is an int32 where a tile of rows
        does not reach beyond one."""
        found = []
        for name in names:
            row, h, _ = self.specs[name].stride()
            found += [i32(row) if abs(row) < 2**22 else i64(row), i64(h)]
        return tuple(found)

    def columns(self, *names: str) -> dict[str, int]:
        """Elements from one column to the next, which kernels are specialised on."""
        specs = {name: self.specs[name] for name in names}
        return {
            f"{name.upper()}_COL": t.stride(2) if t.shape[2] > 1 else 1 for name, t in specs.items()
        }

    @property
    def options(self) -> dict[str, int | bool]:
        """What kernels are specialised on."""
        return {
            "LEFT": self.args["left"],
            "RIGHT": self.args["right"],
            "CAPPED": self.args["capped"],
            "SLOPES": self.has("slopes"),
            "D": self.d,
            "DV": self.dv,
            "D2": max(16, next_power_of_2(self.d)),
            "DV2": max(16, next_power_of_2(self.dv)),
        }

    def forward_shape(self, gpu, config) -> dict[str, int]:
        if self.dtype.itemsize == 4:
            return {"rows": FLOAT_ROWS, "cols": FLOAT_ROWS, "warps": 4, "stages": 1}
        shape = dict(config)
        if self.max_q <= 64:
            shape |= {"rows": 64, "warps": 4}
        if self._wide > 256:
            shape |= {"cols": 64, "stages": 2}
        return shape

    def backward_shape(self, gpu, config) -> dict[str, int]:
        """A block of `many` is kept, blocks of `few` pass by."""
        if self.dtype.itemsize == 4:
            return {"many": FLOAT_ROWS, "few": FLOAT_ROWS, "warps": 4, "stages": 1}
        shape = dict(config)
        if self._wide > 256 or max(self.max_q, self.max_k) <= 64:
            shape |= {"many": 64, "few": 32, "warps": 4, "stages": 1}
        return shape

    @property
    def _wide(self) -> int:
        return int(self.options["D2"]) + int(self.options["DV2"])
