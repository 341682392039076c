"""The arguments of a dropout kernel: shared by plans and `choose`.

Kernels take one list of pointers. For an absent argument the main tensor is passed, and a flag
tells the kernel not to read it.
"""

from __future__ import annotations

from kernelwright.contract import rows_view

OCTET = 8  # adjacent elements that share a Philox counter and a byte of mask


class Call:
    """dropout(x + bias) + residual, or its backward for gy, from the arguments' specs."""

    def __init__(self, args):
        self.args = args
        self.main = "x" if "x" in args else "gy"
        main = args[self.main]
        self.dtype, self.n = main.dtype, main.numel()
        self.rows, self.cols, _ = rows_view(main.shape, main.strides)
        self.bias, self.add = self.has("bias"), self.has("residual")
        self.draw = 1 if self.has("seed") else 2 if self.has("mask") else 0  # values of kw::Draw
        streams = [main, *([args["residual"]] if self.add else [])]
        self.strides = [rows_view(t.shape, t.strides)[2] for t in streams]
        self.dense = all(s == self.cols for s in self.strides)

    def has(self, name) -> bool:
        return self.args.get(name) is not None

    @property
    def width(self) -> int:
        """Elements per piece of 16 bytes."""
        return 16 // self.dtype.itemsize

    @property
    def flat(self) -> bool:
        """Whether the tensors can be treated as one row: nothing repeats from row to row."""
        return self.dense and (not self.bias or self.main == "gy")

    def pointer(self, name) -> str:
        return name if self.has(name) else self.main

    @property
    def residual_stride(self) -> int:
        return self.strides[-1]
