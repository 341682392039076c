"""Fixes for errors of Triton's interpreter; never applied when kernels are compiled.

The interpreter stores a bfloat16 as the uint16 of its bits and computes with those as integers:
sums, products, reductions, scans and `tl.dot` are silently wrong, and a bfloat16 constant is an
error. It truncates where a GPU rounds to nearest even, propagates a NaN in `tl.maximum` where a GPU
does not, rounds
`tl.fma` twice, does not implement libdevice, and needs a driver's timings to autotune. It patches
the whole language at every call of a function, and builds a table of all dtypes for each lookup.
This applies to Triton 3.6 and 3.7; what a later version fixes is not patched (FIXED).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice as stubs
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from . import libdevice

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
#: For each fix: the first version of triton that does not need it.
FIXED = {"maximum": (3, 8), "fma": (3, 9), "bfloat16 constant": (3, 9)}

_ELEMENTWISE = ("binary_op", "unary_op", "ternary_op", "create_fabs", "create_rsqrt", "create_erf",
                "create_fma")  # fmt: skip
_FP8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}


def _right(name: str) -> bool:
    return FIXED[name] <= VERSION


@cache
def apply() -> None:
    """Apply the fixes to the interpreter of this process."""
    if not _right("maximum"):
        InterpreterBuilder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
        InterpreterBuilder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    if not _right("fma"):
        InterpreterBuilder.create_fma = _fma
    if not _right("bfloat16 constant"):
        InterpreterBuilder.get_bf16 = lambda self, value: TensorHandle(
            to_bfloat16(np.array([value])), tl.bfloat16
        )
    for name in _ELEMENTWISE:
        setattr(InterpreterBuilder, name, _in_float32(getattr(InterpreterBuilder, name)))
    InterpreterBuilder.cast_impl = _cast(InterpreterBuilder.cast_impl)
    InterpreterBuilder.create_fp_to_fp = _to_fp8(InterpreterBuilder.create_fp_to_fp)
    InterpreterBuilder.create_dot = _dot(InterpreterBuilder.create_dot)
    InterpreterBuilder.create_extern_elementwise = _extern
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _combined_in_float32(kind.apply_impl)
    interpreter._get_np_dtype = _known(interpreter._get_np_dtype)
    interpreter._patch_lang = _Language(interpreter._patch_lang).prepare
    _know_libdevice()
    triton.autotune = _first_config(triton.autotune)


def to_float32(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16, stored as uint16, to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Round float32 to nearest even bfloat16, stored as uint16, with the NaN bits of GPUs."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def _is_bfloat16(handle) -> bool:
    return isinstance(handle, TensorHandle) and handle.dtype.scalar == tl.bfloat16


def _decoded(handle):
    return TensorHandle(to_float32(handle.data), tl.float32) if _is_bfloat16(handle) else handle


def _in_float32(op):
    """An elementwise operation that computes bfloat16 in float32 and rounds its result."""

    @wraps(op)
    def repaired(self, *args):
        if not any(map(_is_bfloat16, args)):
            return op(self, *args)
        out = op(self, *map(_decoded, args)).data
        return TensorHandle(to_bfloat16(out) if out.dtype == np.float32 else out, tl.bfloat16)

    return repaired


def _fma(self, x, y, z):
    """A fused multiply-add. The product of two floats is exact in double, and the double sum
    rounded to float differs from the fused result in about one of 2**29 cases."""
    product = x.data.astype(np.float64) * y.data.astype(np.float64)
    return TensorHandle((product + z.data).astype(z.data.dtype), z.dtype.scalar)


def _cast(cast):
    @wraps(cast)
    def repaired(self, src, dst_type):
        if dst_type.scalar == tl.bfloat16 and src.dtype.scalar != tl.bfloat16:
            return TensorHandle(to_bfloat16(src.data.astype(np.float32)), tl.bfloat16)
        return cast(self, _decoded(src), dst_type)

    return repaired


def _to_fp8(convert):
    @wraps(convert)
    def repaired(self, src, dst_type, rounding_mode):
        storage = _FP8.get(dst_type.scalar)
        if storage is None or src.dtype.scalar.primitive_bitwidth == 8:
            return convert(self, _decoded(src), dst_type, rounding_mode)
        x = torch.from_numpy(np.ascontiguousarray(_decoded(src).data, dtype=np.float32))
        largest = torch.finfo(storage).max  # GPUs saturate
        data = x.clamp(-largest, largest).to(storage).view(torch.uint8).numpy()
        return TensorHandle(data, dst_type.scalar)

    return repaired


def _dot(dot):
    @wraps(dot)
    def repaired(self, a, b, d, *rest):
        return dot(self, _decoded(a), _decoded(b), d, *rest)

    return repaired


def _in_bfloat16(t):
    shape = list(t.type.shape) if t.type.is_block() else None
    kind = tl.bfloat16 if shape is None else tl.block_type(tl.bfloat16, shape)
    return tl.tensor(TensorHandle(to_bfloat16(t.handle.data), tl.bfloat16), kind)


def _combined_in_float32(apply_impl):
    """A reduction or scan that combines bfloat16 in float32 and rounds once, as it does float16."""

    @wraps(apply_impl)
    def repaired(self, input):
        narrow = [_is_bfloat16(t.handle) for t in input]
        if not any(narrow):
            return apply_impl(self, input)
        wide = tuple(
            self.to_tensor(to_float32(t.handle.data), tl.float32) if n else t
            for t, n in zip(input, narrow, strict=True)
        )
        out = apply_impl(self, wide)
        listed = out if isinstance(out, (list, tuple)) else (out,)
        return [_in_bfloat16(t) if n else t for t, n in zip(listed, narrow, strict=False)]

    return repaired


def _know_libdevice() -> None:
    """Make libdevice's functions callable in interpreted kernels. The function objects themselves
    are changed, because modules may already have imported them. The functions of `cuda.libdevice`
    need a compiler's semantic object; those of `extra.libdevice` are stubs that a compiler replaces
    by the former."""
    for name, fn in vars(cuda).items():
        if tl.core.is_builtin(fn):
            fn.__code__ = _calls_original(None).__code__
            fn.__kwdefaults__ = {"_call": _call_interpreted, "_semantic": None}
            stub = vars(stubs).get(name)
            if isinstance(stub, FunctionType):
                stub.__code__ = _stub.__code__
                stub.__kwdefaults__ = {"_call": fn}


def _stub(*args, _call: Callable):
    return _call(*args)


def _calls_original(fn):
    """Like a builtin's wrapper, the inner function has the original in a cell of its closure."""

    def builtin(*args, _call: Callable, _semantic=None):
        return _call(fn, args)

    return builtin


def _call_interpreted(fn, args):
    interpreter.interpreter_builder.libdevice = fn.__name__
    return fn(*args, _semantic=interpreter.interpreter_semantic)


def _extern(self, library, path, symbol, args, type_, pure):
    """The function passed to `_call_interpreted`, with its arguments already converted."""
    dtype = interpreter._get_np_dtype(type_.scalar)
    out = libdevice.computed(self.libdevice, [a.data for a in args], dtype)
    return TensorHandle(out, type_.scalar)


def _known(dtype_of):
    of_scalar = cache(dtype_of)

    @wraps(dtype_of)
    def repaired(tt_dtype):
        # blocks and pointers have no hash
        pointer = isinstance(tt_dtype.scalar, tl.pointer_type)
        return dtype_of(tt_dtype) if pointer else of_scalar(tt_dtype.scalar)

    return repaired


class _Language:
    """The changes that a launch has made to triton.language, under each of the names by which
    modules refer to it.

    `patch` changes what the given function refers to, and returns how to undo it. It is called for
    every kernel and every function that a kernel calls; after the first call of a launch, nothing
    remains to be changed.
    """

    def __init__(self, patch):
        self._patch, self._known = patch, cache(_languages)
        self._prepared: set[str] = set()
        self._scopes = []

    def prepare(self, fn):
        languages = self._known(fn)
        if not languages <= self._prepared:
            self._scopes.append(self._patch(fn))
            self._prepared |= languages
        return self

    def restore(self) -> None:
        """Undo the changes at the end of a launch."""
        self._prepared.clear()
        while self._scopes:
            self._scopes.pop().restore()


def _languages(fn) -> set[str]:
    modules = (v for v in fn.__globals__.values() if v is tl or v is tl.core)
    return {module.__name__ for module in modules}


def _first_config(autotune):
    """Interpreted times are meaningless, so the first config is used."""

    @wraps(autotune)
    def repaired(configs, key, **options):
        return autotune(configs[:1], key, **options)

    return repaired
