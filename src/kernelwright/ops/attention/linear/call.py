"""A call of linear attention in the form that Triton kernels take: sizes, strides, blocks,
workspace."""

from __future__ import annotations

import torch

from kernelwright.contract import Scalar, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

from .spec import backward_outputs, outputs

FLOAT_BLOCK = 32  # for float32, whose products are chains of multiply-adds
LEAST_BLOCK = 32
RESERVE = 4096  # bytes of shared memory that Triton uses in addition to tiles


class Call:
    """The specs of a call, forward or backward.

    Attributes:
        heads: B H. length, d, dv: L, K, V.
        chunk: tokens per chunk. chunks: number of chunks.
        wide, wide_v: columns of a block of K and of V. carried: rows and columns of the block of a
            state that a program carries from chunk to chunk.
        operand: dtype of the operands of products. float16 uses TF32, which has as many significant
            digits, because states and weights may exceed the largest float16 number.
        specs: of every tensor, results included, by name.
    """

    def __init__(self, gpu, config, args):
        self.args = args
        q, v = args["q"], args["v"]
        self.heads, (self.length, self.d), self.dv = (
            q.shape[0] * q.shape[1],
            q.shape[2:],
            v.shape[3],
        )
        self.decays, self.dtype = args["g"] is not None, q.dtype
        self.operand = torch.bfloat16 if q.dtype == torch.bfloat16 else torch.float32
        sizes = _fitting(gpu, config, q.dtype, self.operand)
        self.warps, self.stages, self.chunk = (sizes[n] for n in ("warps", "stages", "chunk"))
        self.chunks = cdiv(self.length, self.chunk)
        self.wide, self.wide_v = (
            min(sizes[name], max(16, next_power_of_2(n)))
            for name, n in (("k", self.d), ("v", self.dv))
        )
        self.carried = tuple(min(sizes["state"], n) for n in (self.wide, self.wide_v))
        names = ("gq", "gk", "gv", "gg", "gstate") if "gy" in args else ("y", "final")
        results = backward_outputs(**args) if "gy" in args else outputs(**args)
        self.specs = {**args, **dict(zip(names, results, strict=True))}

    def strides(self, *names: str) -> tuple[Scalar, ...]:
        """Elements between batches, heads and tokens; 0 for an absent argument."""
        return tuple(x for name in names for x in self._strides(self.specs[name]))

    def _strides(self, t) -> tuple[Scalar, ...]:
        b, h, row = t.stride()[:3] if t is not None and t.ndim > 2 else (0, 0, 0)
        return i64(b), i64(h), i32(row) if abs(row) < 2**22 else i64(row)

    def state_strides(self, name: str) -> tuple[Scalar, ...]:
        t = self.args[name]
        return tuple(map(i64, (0,) * 4 if t is None else t.stride()))

    def columns(self, **names: str) -> dict[str, int]:
        """Elements between columns, on which kernels are specialized."""
        specs = {of: self.specs[name] for of, name in names.items()}
        return {f"{of}_COL": t.stride(3) if t.shape[3] > 1 else 1 for of, t in specs.items()}

    def pointer(self, name: str) -> str:
        """An argument or, if it is absent, another one, which the kernel then does not read."""
        return "q" if self.args[name] is None else name

    @property
    def sums(self) -> tuple[str, str]:
        return ("high", "low") if self.decays else ("q", "q")

    @property
    def blocks(self) -> dict[str, int | bool | str]:
        """The constants on which the kernels are specialized."""
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
        """Sums of log decay as two floats, and the states before each chunk in the dtype of
        operands."""
        shape = (self.heads, self.chunks, self.d, self.dv)
        scratch = {name: Scratch(TensorSpec.contiguous(shape, self.operand)) for name in states}
        if self.decays:
            rows = (self.heads, self.chunks * self.chunk)
            spec = TensorSpec.contiguous(rows, torch.float32)
            scratch |= {name: Scratch(spec) for name in ("high", "low")}
        return scratch


def _fitting(gpu, config, dtype, operand) -> dict[str, int]:
    """The config, with smaller blocks if they would not fit in shared memory."""
    sizes = dict(config)
    if dtype == torch.float32:
        sizes |= {n: min(sizes[n], FLOAT_BLOCK) for n in ("chunk", "k", "v")} | {"stages": 1}
    while _bytes(sizes, operand) > gpu.shared_per_block - RESERVE:
        if sizes["stages"] > 1:
            sizes["stages"] -= 1
            continue
        name = next(n for n in ("v", "k", "chunk") if sizes[n] > LEAST_BLOCK)
        sizes[name] //= 2
    return sizes


def _bytes(sizes, operand) -> int:
    """Shared memory of the gradient kernel: rings of two operands and two states, q, k, two
    squares."""
    chunk, k, v = sizes["chunk"], sizes["k"], sizes["v"]
    ring = sizes["stages"] * 2 * (chunk + k) * v
    return operand.itemsize * (ring + 2 * chunk * (k + chunk))
