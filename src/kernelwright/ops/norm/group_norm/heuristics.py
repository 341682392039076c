"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, log2, no_clusters, unsupported_dtype

from .registers import held_of, matrix_of, most_held
from .tiling import CLUSTER, STATIC, Call, channels_split_of, cluster_of, slab_of

# threads: per block; blocks: per cluster, more if these do not hold a group or a slab; slab:
# minimum number of bytes of a row of a slab
BLOCK_CONFIGS = ({"threads": 256},)
CLUSTER_CONFIGS = (
    {"threads": 256, "blocks": 1},
    {"threads": 256, "blocks": 4},
    {"threads": 512, "blocks": 16},
)
CHANNELS_CONFIGS = (
    {"threads": 256, "blocks": 1, "slab": 128},
    {"threads": 256, "blocks": 4, "slab": 128},
    {"threads": 512, "blocks": 16, "slab": 128},
    {"threads": 256, "blocks": 8, "slab": 32},
)
CHANNELS_REGISTERS_CONFIGS = (
    {"threads": 256, "blocks": 1, "slab": 128},
    {"threads": 256, "blocks": 4, "slab": 128},
    {"threads": 256, "blocks": 8, "slab": 128},
    {"threads": 256, "blocks": 8, "slab": 32},
    {"threads": 512, "blocks": 8, "slab": 128},
)
# blocks: per multiprocessor
SPLIT_CONFIGS = (
    {"threads": 256, "blocks": 8},
    {"threads": 512, "blocks": 4},
)
#: slab: bytes of a row of a slab, if there are as many. The last block of a slab merges the parts
#: of the others: many slabs share that work, but their rows are short.
CHANNELS_SPLIT_CONFIGS = (
    {"threads": 256, "blocks": 8, "slab": 128},
    {"threads": 512, "blocks": 4, "slab": 128},
)


def unsupported(c: Call, last: bool) -> str | None:
    """Requirements of every GPU rung. `last`: whether the rung is for channels last."""
    if why := unsupported_dtype(c.dtype, "x"):
        return why
    if any(t.dtype != c.dtype for t in c.streams):
        return f"gy is {c.args['gy'].dtype}, x is {c.dtype}"
    if any(p.dtype not in (c.dtype, torch.float32) for p in c.parameters):
        return f"a parameter is neither float32 nor {c.dtype}"
    if len({p.dtype for p in c.parameters}) > 1:
        return f"bias is {c.bias.dtype}, weight is {c.weight.dtype}"
    if 0 in (c.samples, c.channels, c.length):
        return "x has no elements"
    if c.last != last:
        return f"channels {'last' if c.last else 'first'} are not supported"
    if not last and any(step != c.length for step in c.steps):
        return "rows of a channel are not contiguous"
    if c.sets * CLUSTER >= 2**31 or (not last and c.pieces().items >= 2**31):
        return f"{c.sets} groups exceed a grid, or the elements of one exceed 32-bit indices"
    return None


def unsupported_split(c: Call) -> str | None:
    if why := unsupported(c, last=False):
        return why
    if c.pieces().items >= 2**28:
        return f"{c.pieces().items} pieces of a group exceed 32-bit indices of vectors"
    return None


def unsupported_channels_split(gpu, c: Call) -> str | None:
    if why := unsupported(c, last=True):
        return why
    if not all(channels_split_of(gpu, c, config) for config in CHANNELS_SPLIT_CONFIGS):
        return f"a group of {c.per} channels needs more threads than a block has"
    return None


def unsupported_cluster(gpu, c: Call) -> str | None:
    if why := unsupported(c, last=False):
        return why
    return _held(gpu, cluster_of(gpu, c, CLUSTER_CONFIGS[0]), "a group")


def unsupported_channels(gpu, c: Call) -> str | None:
    if why := unsupported(c, last=True):
        return why
    held = all(slab_of(gpu, c, config) for config in CHANNELS_CONFIGS)
    return no_clusters(gpu) if held else "no slab of groups fits a cluster's shared memory"


def _held(gpu, found, what):
    if found is None:
        return f"{what} does not fit a cluster's shared memory"
    return no_clusters(gpu)


def unsupported_channels_registers(gpu, c: Call) -> str | None:
    return unsupported(c, last=True) or unsupported_registers(gpu, c)


def unsupported_registers(gpu, c: Call) -> str | None:
    """Why no cluster holds a slab, of a call whose layout is supported."""
    m = matrix_of(c)
    if m.channels >= 2**31:
        return f"{c.channels} channels of {c.length} elements exceed 32-bit indices"
    if all(held_of(c, config) for config in CHANNELS_REGISTERS_CONFIGS):
        return no_clusters(gpu)
    return (
        f"{m.rows} rows of groups of {m.per} elements do not fit in the registers of 8 blocks, "
        f"which hold {most_held(c)} vectors of {m.width} elements each"
    )


def fits_block(gpu, **args):
    c = Call(args)
    if why := unsupported(c, last=False):
        return why
    if c.per * c.length > 2**24:
        return f"a group has {c.per * c.length} elements, more than {2**24}"
    return None


def fits_split(gpu, **args):
    return unsupported_split(Call(args))


def fits_channels_split(gpu, **args):
    return unsupported_channels_split(gpu, Call(args))


def fits_cluster(gpu, **args):
    return unsupported_cluster(gpu, Call(args))


def fits_channels(gpu, **args):
    return unsupported_channels(gpu, Call(args))


def fits_channels_registers(gpu, **args):
    return unsupported_channels_registers(gpu, Call(args))


def choose_cluster(gpu, **args):
    return spread_cluster(gpu, Call(args))


def choose_channels(gpu, **args):
    return spread_channels(gpu, Call(args))


def choose_channels_registers(gpu, **args):
    return spread_registers(gpu, Call(args))


def spread_registers(gpu, c: Call):
    """The smallest clusters that give each multiprocessor a block, with so few vectors per thread
    that 512 threads are resident; otherwise the smallest slabs in the largest clusters."""
    most = 21 if len(c.streams) == 1 else 7
    for config in CHANNELS_REGISTERS_CONFIGS[:3]:
        of = held_of(c, config)
        if of.slabs * of.blocks >= gpu.sms and of.vectors * of.threads <= most * 256:
            return config
    return CHANNELS_REGISTERS_CONFIGS[3]


def spread_cluster(gpu, c: Call):
    return _spread(gpu, CLUSTER_CONFIGS, lambda config: _grid(c.sets, cluster_of(gpu, c, config)))


def spread_channels(gpu, c: Call):
    def grid(config):
        of = slab_of(gpu, c, config)
        return _grid(c.samples * (c.channels // of.channels), of)

    return _spread(gpu, CHANNELS_CONFIGS[:3], grid)


def _grid(sets, of):
    """(blocks, bytes of each block)."""
    return sets * of.blocks, of.shared


def _spread(gpu, configs, grid):
    """The smallest clusters that give each multiprocessor a block, with blocks small enough that
    two are resident, so that one loads while the other computes; otherwise the largest clusters."""
    for config in configs[:-1]:
        blocks, shared = grid(config)
        if blocks >= gpu.sms and 2 * (shared + STATIC) <= gpu.shared_per_block:
            return config
    return configs[-1]


def order(gpu, **args):
    """Slabs in registers are read once; short groups fit in the shared memory of a cluster; others
    are split."""
    c = Call(args)
    n = c.per * c.length
    if c.last:
        few = n <= (2**16 if "gy" in args else 2**15)
        rungs = "cuda_channels", "cuda_channels_split"
        return "cuda_channels_registers", *(rungs if few else rungs[::-1])
    return ("cuda_cluster", "cuda_split") if n <= 2**17 else ("cuda_split", "cuda_cluster")


def bucket(**args):
    """Key of a call in the tuned table: dtype, layout, elements of a group, groups."""
    c = Call(args)
    layout = "last" if c.last else "first"
    silu = "/silu" if args["silu"] else ""
    return f"{kind(c.dtype)}/{layout}{silu}/{log2(c.per * c.length)}/{log2(c.sets)}"
