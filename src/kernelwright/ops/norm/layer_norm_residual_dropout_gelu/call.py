"""The arguments of a kernel: shared by plans and `choose`.

Kernels take one list of pointers. For an absent argument x is passed, and a flag tells the kernel
not to read it.
"""

from __future__ import annotations

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.template_args import boolean


class Call:
    """A forward or a backward, from its arguments' specs."""

    def __init__(self, args):
        self.args = args
        self.backward = "gy" in args
        self.read = ("gy", "x", "residual") if self.backward else ("x", "residual")
        self.dtype = args["x"].dtype
        self.rows, self.cols, _ = rows_view(args["x"].shape, args["x"].strides)
        self.strides = [rows_view(args[n].shape, args[n].strides)[2] for n in self.read]
        self.weight, self.bias, self.drop = (self.has(n) for n in ("weight", "bias", "seed"))
        self.tanh = args["approximate"] == "tanh"
        self.width = 16 // self.dtype.itemsize  # elements per piece of 16 bytes

    def has(self, name) -> bool:
        return self.args[name] is not None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of those that have a gradient."""
        return ("weight",) * self.weight + ("bias",) * self.bias

    @property
    def parameter_dtype(self):
        """Dtype of weight and bias; that of the rows if there are none."""
        return self.args[self.parameters[0]].dtype if self.parameters else self.dtype

    @property
    def pointers(self) -> tuple[str, ...]:
        given = {n: n if self.has(n) else "x" for n in ("weight", "bias", "seed")}
        if not self.backward:
            return ("x", "residual", *given.values(), "y", "mean", "rstd")
        parts = (f"{n}_parts" if n in self.parameters else "gx" for n in ("weight", "bias"))
        return (*self.read, given["weight"], given["bias"], "mean", "rstd", given["seed"],
                "gx", "gresidual", *parts)  # fmt: skip

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows, columns, and the step between rows of each tensor in `read`."""
        return self.rows, self.cols, *self.strides


OCTET = 8  # adjacent elements that share a Philox counter
MOST = {
    False: (4, 1024),
    True: (2, 512),
}  # octets per thread, threads per block; by backward


def shape(c: Call, config) -> tuple[int, int] | None:
    """(pieces per thread, threads) of a block that holds a row: the config's number of octets or,
    if the row needs it, more."""
    most, top = MOST[c.backward]
    octets = cdiv(c.cols, OCTET)
    threads = min(top, max(32, next_power_of_2(cdiv(octets, config["octets"]))))
    pieces = cdiv(c.cols, c.width * threads)
    return (pieces, threads) if pieces * c.width <= most * OCTET else None


def whole(c: Call, pieces: int, threads: int) -> str:
    """Whether a row fills the pieces of its threads, in C++."""
    return boolean(pieces * threads * c.width == c.cols)


STATIC = 256  # maximum bytes of static shared memory, in which a block's warps exchange sums


def rows_of(threads: int) -> int:
    """Rows per block in `cuda_walk`: several if a warp has one row and needs no barrier."""
    return 4 if threads == 32 else 1


def walk_bytes(c: Call, config) -> int:
    """Shared memory of a block of `cuda_walk`: weight and bias as floats, rows of x and
    residual."""
    pieces, threads = shape(c, config)
    return 2 * c.width * pieces * threads * (4 + rows_of(threads) * c.dtype.itemsize)
