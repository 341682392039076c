"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind, off_boundary, unsupported_dtype

from .call import OCTET, Call

# octets: Philox counters per program, eight elements each
CONFIGS = (
    {"octets": 256, "num_warps": 4},
    {"octets": 128, "num_warps": 4},
    {"octets": 512, "num_warps": 4},
)
# octets: the same; rows, cols: its tile if a bias has a gradient
OCTETS_CONFIGS = (
    {"octets": 256, "num_warps": 4, "rows": 4, "cols": 512, "programs": 8},
    {"octets": 128, "num_warps": 4, "rows": 2, "cols": 1024, "programs": 16},
)
# unroll: pieces per thread, in float32 twice as many, all of them in flight
VEC16_CONFIGS = (
    {"block": 256, "unroll": 2, "stream": True},
    {"block": 256, "unroll": 1, "stream": True},
    {"block": 128, "unroll": 1, "stream": False},
)
# down * 32 threads per block, in a strip of 32 vectors
STRIPS_CONFIGS = tuple(
    {**config, "down": 8, "blocks_per_sm": n}
    for config, n in zip(VEC16_CONFIGS, (16, 8, 4), strict=True)
)

# steps: of a thread, one after another: one piece each, in float32 two; resident: blocks that fit
# in the registers of an SM
OCTET_CONFIGS = (
    {"block": 256, "steps": 4, "resident": 8, "stream": False},
    {"block": 256, "steps": 4, "resident": 8, "stream": True},
    {"block": 256, "steps": 1, "resident": 6, "stream": True},
    {"block": 256, "steps": 1, "resident": 4, "stream": False},
)
# stages: pieces per thread in flight; waves: how many times the blocks fill the GPU. Few bytes in
# flight were faster than many.
OCTET_STRIPS_CONFIGS = tuple(
    {**OCTET_CONFIGS[k], "down": down, "resident": resident, "stages": stages, "waves": waves}
    for k, down, resident, stages, waves in (
        (0, 16, 1, 4, 1),
        (0, 16, 1, 3, 1),
        (0, 8, 2, 3, 1),
        (2, 16, 2, 2, 1),
    )
)


def main(tensors):
    return tensors.get("x") or tensors["gy"]


def fits(gpu, **args):
    return unsupported_dtype(main(args).dtype)


def fits_octets(gpu, **args):
    """Requirements of the kernels of the fused operators."""
    for name in ("bias", "residual"):
        t = args.get(name)
        if t is not None and t.dtype != main(args).dtype:
            return f"{name}: {t.dtype} is not {main(args).dtype}"
    return fits(gpu, **args)


def fits_vec16(gpu, **args):
    c = Call(args)
    cols = c.n if c.flat else c.cols
    if cols % OCTET:
        return f"a row of {cols} elements is not a multiple of {OCTET}"
    if cols // c.width >= 2**31:
        return f"a row of {cols} elements is 2**31 vectors or more"
    if c.bias and c.main == "gy" and (c.cols % OCTET or c.cols >= 2**31):
        return f"a row of {c.cols} elements is not a multiple of {OCTET}, or 2**31 or longer"
    for stride in () if c.flat else c.strides:
        if stride % c.width:
            return f"a row stride of {stride} elements is not a multiple of 16 bytes"
    vectors = {name: args.get(name) for name in ("x", "gy", "bias", "residual")}
    return off_boundary(vectors) or fits_octets(gpu, **args)


def fits_cuda_octets(gpu, **args):
    """Requirements of kernels that count vectors in 32 bits, up to one block past the last."""
    c = Call(args)
    if c.n // c.width >= 2**31:
        return f"{c.n} elements are 2**31 vectors or more"
    return fits_vec16(gpu, **args)


def choose_vec16(gpu, **args):
    """Tensors that do not fit in L2 are streamed, with two octets in flight; smaller ones need all
    SMs."""
    return VEC16_CONFIGS[_size(gpu, args)]


def choose_octets(gpu, **args):
    """One step: many threads have more loads in flight than fewer threads with several steps. In 16
    bits, tensors that do not fit in L2 are streamed."""
    return OCTET_CONFIGS[3 if _size(gpu, args) else 2]


def choose_octet_strips(gpu, **args):
    """Fewer stages in float32, where a piece has half as many elements: the fastest that was timed.
    Fewer also with a mask, because static shared memory is limited to 48 KiB."""
    limited = args.get("mask") is not None and gpu.capability < (9, 0)
    return OCTET_STRIPS_CONFIGS[1 if limited or main(args).dtype.itemsize == 4 else 0]


def choose_strips(gpu, **args):
    return STRIPS_CONFIGS[_size(gpu, args)]


def _size(gpu, args):
    t = main(args)
    if 2 * t.nbytes <= gpu.l2_bytes:
        return 2
    return 0 if t.itemsize == 2 else 1  # an octet of float32 is two vectors


def order(gpu, **args):
    return ("cuda_octets", "triton_philox", "cuda_vec16")


def order_octets(gpu, **args):
    return ("cuda_octets", "cuda_vec16", "triton_octets")


def bucket(**args):
    """Key of a call in the tuned table: dtype and number of elements by powers of two."""
    t = main(args)
    return f"{kind(t.dtype)}/{next_power_of_2(t.numel())}"
