"""A call as kernels see it, and how its rows are laid over threads: what plans and `choose` share.

A config says what to aim at; the functions here turn it into a launch that holds the row, so that
every config takes every call that fits.
"""

from __future__ import annotations

from functools import cached_property

import torch

from kernelwright.contract import Scratch, TensorSpec, f32, i64, rows_view


class Call:
    """A forward of any of the norms, from its arguments' specs.

    Kernels take one list of pointers and numbers; where an argument is absent, another of the
    call's tensors stands in its place, and a flag says that nobody reads it.
    """

    def __init__(self, args):
        self.args = args
        self.inputs = [args[n] for n in self.read if args.get(n) is not None]
        main = args["h"] if "h" in args else args["x"]
        self.dtype, self.itemsize = main.dtype, main.itemsize
        self.rows, self.cols, _ = rows_view(main.shape, main.strides)
        self.weight, self.bias = args["weight"] is not None, args.get("bias") is not None
        self.center = "bias" in args  # a layer_norm: rms_norm takes none
        self.offset = f32("offset" if "offset" in args else 0.0)

    read = ("x", "residual")

    @property
    def add(self) -> bool:
        """A residual is added first."""
        return "residual" in self.args

    @property
    def pointers(self) -> tuple[str, ...]:
        return (
            "x",
            self._or("residual", "x"),
            self._or("weight", "x"),
            self._or("bias", "x"),
            "y",
            "h" if self.add else "y",
            "mean" if self.center else "rstd",
            "rstd",
        )

    @property
    def numbers(self) -> tuple:
        """Rows, columns, and the step between rows of each tensor in `read`."""
        return tuple(map(i64, (self.rows, self.cols, *self.strides)))

    @property
    def strides(self) -> tuple[int, ...]:
        views = [self.args.get(n) and rows_view(self.args[n].shape, self.args[n].strides)
                 for n in self.read]  # fmt: skip
        return tuple(v[2] if v else 0 for v in views)

    def _or(self, name, other) -> str:
        return name if self.args.get(name) is not None else other

    @property
    def parameter_dtype(self):
        """Of weight and bias; the rows' own where there are none."""
        found = [p.dtype for p in (self.args["weight"], self.args.get("bias")) if p is not None]
        return found[0] if found else self.dtype

    @cached_property
    def width(self) -> int:
        """Elements of a row that every access may move at once."""
        width = 16 // self.itemsize
        steps = (self.cols, *self.strides)
        parameters = [p for p in (self.args["weight"], self.args.get("bias")) if p is not None]
        while (
            any(s % width for s in steps)
            or any(t.align < width * t.itemsize for t in self.inputs)
            or any(t.align < min(16, width * t.itemsize) for t in parameters)
        ):
            width //= 2
        return width

    @property
    def vectors(self) -> int:
        return self.cols // self.width


class BackwardCall(Call):
    """A backward of any of the norms."""

    read = ("gy", "gh", "x")

    def __init__(self, args):
        super().__init__({**args, "x": args["h"]} if "h" in args else args)

    @property
    def add(self) -> bool:
        """What was normalised receives a gradient of its own, to be added."""
        return self.args.get("gh") is not None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Those that have a gradient."""
        return ("weight",) * self.weight + ("bias",) * self.bias

    @property
    def pointers(self) -> tuple[str, ...]:
        x = "h" if "h" in self.args else "x"
        return (
            "gy",
            self._or("gh", "gy"),
            x,
            self._or("weight", x),
            "mean" if self.center else "rstd",
            "rstd",
            "gx",
            "weight_parts" if self.weight else "gx",
            "bias_parts" if self.bias else "gx",
        )

    @property
    def parts_and_sums(self) -> tuple[str, ...]:
        """Of the first parameter and of the last, which may be the same."""
        first, last = self.parameters[0], self.parameters[-1]
        return f"{first}_parts", f"{last}_parts", f"g{first}", f"g{last}"

    def scratch(self, parts: int) -> dict[str, Scratch]:
        """A row of float32 for each part of each parameter's gradient."""
        spec = TensorSpec.contiguous((parts, self.cols), torch.float32)
        return {f"{p}_parts": Scratch(spec) for p in self.parameters}
