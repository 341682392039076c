"""A call of linear attention as Triton kernels see it: sizes, strides, blocks, workspace."""

from __future__ import annotations

import torch

from kernelwright.contract import Scalar, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

from .spec import backward_outputs, outputs

FLOAT_BLOCK = 32  # of float32, whose products are chains of multiply-adds


class Call:
    """The specs of a call, forward or backward.

    Attributes:
        heads: B H. length, d, dv: L, K, V.
        chunk, chunks: tokens of one, and how many there are.
        wide, wide_v: columns of a block of K and of V.
        specs: of every tensor, results included, by name.
    """

    def __init__(self, config, args):
        self.args, self.config = args, config
        q, v = args["q"], args["v"]
        self.heads, (self.length, self.d), self.dv = (
            q.shape[0] * q.shape[1],
            q.shape[2:],
            v.shape[3],
        )
        self.decays, self.dtype = args["g"] is not None, q.dtype
        most = FLOAT_BLOCK if q.dtype == torch.float32 else 2**31
        self.chunk = min(config["chunk"], most)
        self.chunks = cdiv(self.length, self.chunk)
        self.wide, self.wide_v = (
            min(config[name], most, max(16, next_power_of_2(n)))
            for name, n in (("k", self.d), ("v", self.dv))
        )
        names = ("gq", "gk", "gv", "gg", "gstate") if "gy" in args else ("y", "final")
        made = backward_outputs(**args) if "gy" in args else outputs(**args)
        self.specs = {**args, **dict(zip(names, made, strict=True))}

    def strides(self, *names: str) -> tuple[Scalar, ...]:
        """Elements from one batch, head and token to the next; 0s of an argument that is absent."""
        return tuple(x for name in names for x in self._strides(self.specs[name]))

    def _strides(self, t) -> tuple[Scalar, ...]:
        b, h, row = t.stride()[:3] if t is not None and t.ndim > 2 else (0, 0, 0)
        return i64(b), i64(h), i32(row) if abs(row) < 2**22 else i64(row)

    def state_strides(self, name: str) -> tuple[Scalar, ...]:
        t = self.args[name]
        return tuple(map(i64, (0,) * 4 if t is None else t.stride()))

    def columns(self, **names: str) -> dict[str, int]:
        """Elements from one column to the next, which kernels are specialised on."""
        specs = {of: self.specs[name] for of, name in names.items()}
        return {f"{of}_COL": t.stride(3) if t.shape[3] > 1 else 1 for of, t in specs.items()}

    def pointer(self, name: str) -> str:
        """An argument, or where it is absent one that the kernel does not read in its place."""
        return "q" if self.args[name] is None else name

    @property
    def sums(self) -> tuple[str, str]:
        return ("high", "low") if self.decays else ("q", "q")

    @property
    def blocks(self) -> dict[str, int | bool | str]:
        """What the kernels are specialised on. float16 has tensor cores' TF32, of as many digits:
        states and weights may be larger than float16's largest number."""
        return {
            "DECAY": self.decays,
            "K": self.d,
            "V": self.dv,
            "CHUNK": self.chunk,
            "BK": self.wide,
            "BV": self.wide_v,
            "PRECISION": "tf32" if self.dtype == torch.float16 else "ieee",
        }

    def workspace(self, *states: str) -> dict[str, Scratch]:
        """Sums of log decay as two floats, and states before each chunk as products take them."""
        dtype = torch.bfloat16 if self.dtype == torch.bfloat16 else torch.float32
        rows = (self.heads, self.chunks * self.chunk)
        shape = (self.heads, self.chunks, self.d, self.dv)
        found = {name: Scratch(TensorSpec.contiguous(shape, dtype)) for name in states}
        if self.decays:
            spec = TensorSpec.contiguous(rows, torch.float32)
            found |= {name: Scratch(spec) for name in ("high", "low")}
        return found
