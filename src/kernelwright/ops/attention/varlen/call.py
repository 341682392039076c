"""A call of attention over packed sequences in the form that Triton kernels take."""

from __future__ import annotations

from kernelwright.contract import Scalar, i32, i64
from kernelwright.contract.arithmetic import next_power_of_2

from .spec import backward_outputs, outputs

FLOAT_ROWS = 16  # float32 products are chains of multiply-adds: only small tiles compile


class Call:
    """Sizes of a call, forward or backward, and its tensors' strides.

    Attributes:
        tokens, h, d: sizes of q. hk: heads of k and v. dv: head size of v.
        group: heads of q per head of k and v. sequences: number of sequences.
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
            results = zip(("gq", "gk", "gv", "gsinks"), backward_outputs(**args), strict=True)
        else:
            results = zip(("y", "lse"), outputs(**args), strict=True)
        self.specs = {**args, **dict(results)}

    def has(self, name: str) -> bool:
        return self.args[name] is not None

    def pointer(self, name: str) -> str:
        """An argument or, if it is absent, another tensor, which the kernel does not read."""
        return name if self.has(name) else "q"

    def strides(self, *names: str) -> tuple[Scalar, ...]:
        """Elements between rows and heads. The stride of rows is an int32 if offsets within a tile
        of rows fit in one."""
        scalars = []
        for name in names:
            row, h, _ = self.specs[name].stride()
            scalars += [i32(row) if abs(row) < 2**22 else i64(row), i64(h)]
        return tuple(scalars)

    def columns(self, *names: str) -> dict[str, int]:
        """Elements between columns, on which kernels are specialized."""
        specs = {name: self.specs[name] for name in names}
        return {
            f"{name.upper()}_COL": t.stride(2) if t.shape[2] > 1 else 1 for name, t in specs.items()
        }

    @property
    def options(self) -> dict[str, int | bool]:
        """The constants on which kernels are specialized."""
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
        """One block of `many` rows is kept in a program, which iterates over blocks of `few`
        rows."""
        if self.dtype.itemsize == 4:
            return {"many": FLOAT_ROWS, "few": FLOAT_ROWS, "warps": 4, "stages": 1}
        shape = dict(config)
        if self._wide > 256 or max(self.max_q, self.max_k) <= 64:
            shape |= {"many": 64, "few": 32, "warps": 4, "stages": 1}
        return shape

    @property
    def _wide(self) -> int:
        return int(self.options["D2"]) + int(self.options["DV2"])
