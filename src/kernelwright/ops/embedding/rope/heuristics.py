"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import gcd, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

TILE = 16384  # elements of all heads of a token that a Triton program can rotate

TRITON_CONFIGS = ({"num_warps": 4}, {"num_warps": 8})
# heads: of one token that a thread rotates by the angles that it has loaded
VEC16_CONFIGS = (
    {"block": 256, "heads": 4},
    {"block": 256, "heads": 2},
    {"block": 128, "heads": 1},
)


def fits(gpu, **args):
    """Requirements of both kernels on dtypes."""
    x, y = heads(args)
    for name, t in args.items():
        if name in ("q", "k", "gyq", "gyk") and (why := unsupported_dtype(t.dtype, name)):
            return why
    if x.dtype != y.dtype:
        return f"heads of different dtypes: {x.dtype} and {y.dtype}"
    cos, sin = args["cos"], args["sin"]
    for name in ("cos", "sin"):
        if args[name] is not None and (why := unsupported_dtype(args[name].dtype, name)):
            return why
    if cos is not None and (cos.dtype != sin.dtype or cos.stride() != sin.stride()):
        return "cos and sin differ in dtype or strides"
    return None


def fits_triton(gpu, **args):
    x, _ = heads(args)
    pairs = next_power_of_2(x.shape[-1] // 2 + 1)
    if next_power_of_2(x.shape[1]) * pairs > TILE:
        return f"{x.shape[1]} heads of {x.shape[-1]} do not fit a program's registers"
    return fits(gpu, **args)


def fits_vec16(gpu, **args):
    x, y = heads(args)
    if x.shape[-1] % 2:
        return f"a head has an odd number of dimensions ({x.shape[-1]})"
    for t in (x, y):
        if t.stride(-1) != 1:
            return "the dimensions of a head are not contiguous"
    if x.shape[0] * x.shape[2] >= 2**31:
        return "2^31 tokens or more"
    return fits(gpu, **args)


def heads(args):
    """q and k, or their gradients."""
    names = ("q", "k") if "q" in args else ("gyq", "gyk")
    return tuple(args[n] for n in names)


def vector(x, y, rotary_dim: int, interleaved: bool) -> int:
    """Elements of x and y that one instruction moves: at most 16 bytes, such that no vector
    straddles the middle of the rotated or of the copied dimensions. Interleaved pairs stay in one
    vector."""
    widest = 16 // x.itemsize
    parts = [widest, rotary_dim // 2, (x.shape[-1] - rotary_dim) // 2]
    if interleaved:
        parts = [widest, rotary_dim, x.shape[-1] - rotary_dim]
    for t in (x, y):
        between = zip(t.shape[:-1], t.stride()[:-1], strict=True)
        parts += [t.align // t.itemsize, *(s for n, s in between if n > 1)]
    return gcd(*parts)


def choose_vec16(gpu, **args):
    """Several heads per thread share angles; with few tokens it is more important to use all
    SMs."""
    x, y = heads(args)
    threads = (x.numel() + y.numel()) * x.itemsize // 32  # two vectors each
    if threads < 4 * 1024 * gpu.sms:
        return VEC16_CONFIGS[2]
    return VEC16_CONFIGS[0]


def order(gpu, **args):
    return ("cuda_vec16", "triton_token")


def bucket(**args):
    """Key of a call in the tuned table: dtype, kinds of pairs and angles, log2 of the elements."""
    x, y = heads(args)
    pairs = "interleaved" if args["interleaved"] else "halves"
    angles = "given" if args["positions"] is None else "computed"
    return f"{kind(x.dtype)}/{pairs}/{angles}/{(x.numel() + y.numel()).bit_length() - 1}"
