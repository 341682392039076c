"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, no_clusters, off_boundary, other_dtype

from .. import _split_keys, _stream_keys

BLOCK = ({"warps": 4, "unroll": 4}, {"warps": 8, "unroll": 4})
CLUSTER = (
    {"warps": 4, "unroll": 4, "waves": 2},
    {"warps": 4, "unroll": 2, "waves": 4},
    {"warps": 8, "unroll": 2, "waves": 1},
)
MOST_BLOCKS = 8  # of a cluster
_ROOM = 512  # elements of queries that a warp holds


def fits(gpu, q, k, v, k_cache, v_cache, lengths, scale):
    tensors = {"q": q, "k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache}
    if why := other_dtype(tensors, "q") or off_boundary(tensors):
        return why
    width = 16 // q.itemsize
    for name, t in tensors.items():
        if t.shape[-1] > 1 and t.stride(t.ndim - 1) != 1:
            return f"{name}: its heads are not contiguous"
        if any(s % width for s in (*t.stride()[:-1], t.shape[-1])):
            return f"{name}: its heads are not apart by whole vectors of 16 bytes"
    if q.shape[-1] > 32 * width:
        return f"a head of {q.shape[-1]} elements is wider than a warp's {32 * width}"
    if lengths.dtype != torch.int64:
        return "lengths: not int64"
    return "lengths: not contiguous" if not lengths.is_contiguous() else None


def fits_cluster(gpu, **args):
    return no_clusters(gpu) or fits(gpu, **args)


def fits_split(gpu, q, k_cache, v_cache, **others):
    """As `fits`, of 16-bit elements."""
    if q.dtype == torch.float32:
        return "q: tensor cores have no float32"
    why = _split_keys.unfit((k_cache, v_cache), 2, k_cache.shape[2])
    return why or fits(gpu, q=q, k_cache=k_cache, v_cache=v_cache, **others)


def fits_bulk(gpu, k, v, k_cache, v_cache, **others):
    """As `fits_split`, of caches in which the positions of a head, or the heads of a position, are
    contiguous."""
    tensors = {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache}
    if why := _stream_keys.no_bulk_copies(gpu) or fits_split(gpu, **tensors, **others):
        return why
    of = _stream_keys.layout(k_cache, v_cache, 2, 1)
    if of is None:
        return "k_cache: neither the positions of a head nor the heads of a position are contiguous"
    for name, t in (("k", k), ("v", v)):
        if of == "heads" and t.shape[1] > 1 and t.stride(1) != t.shape[2]:
            return f"{name}: its heads are not contiguous, those of the cache are"
    return None


def lanes(q) -> int:
    """Lanes that hold a key, a power of two."""
    return next_power_of_2(cdiv(q.shape[2], 16 // q.itemsize))


def queries(q, k) -> int:
    """Query heads of a block: those of a head of the cache, up to what registers hold."""
    wide = lanes(q) * (16 // q.itemsize)
    return max(1, min(q.shape[1] // k.shape[1], _ROOM // wide, 8))


def blocks(gpu, config, q, k, k_cache) -> int:
    """Of a cluster: enough to fill the GPU, each with keys for all its warps."""
    work = q.shape[0] * k.shape[1] * cdiv(q.shape[1] // k.shape[1], queries(q, k))
    keys = config["warps"] * config["unroll"] * (32 // lanes(q))
    wanted = min(cdiv(config["waves"] * gpu.sms, max(work, 1)), cdiv(k_cache.shape[2], keys))
    return min(next_power_of_2(wanted), MOST_BLOCKS)


def choose_cluster(gpu, q, k, **others):
    """More warps for a head of the cache that several of q share: they have more to compute."""
    return CLUSTER[2] if q.shape[1] > k.shape[1] else CLUSTER[0]


def choose_split(gpu, q, k, k_cache, **others):
    return _split_keys.choose(gpu, q.shape[0] * k.shape[1], k_cache.shape[2], k_cache, q.shape[2])


def choose_bulk(gpu, **others):
    return _stream_keys.CONFIGS[0]


def order(gpu, q, k, k_cache, **others):
    """Queries of one head of the cache go through tensor cores together; one alone is faster in a
    cluster, unless there are too few heads to fill the GPU."""
    split = "cuda_split_mma", "cuda_cluster", "cuda_block"
    if q.shape[1] != k.shape[1] or (q.shape[0] * k.shape[1] < 16 and k_cache.shape[2] > 2048):
        return split
    return "cuda_cluster", "cuda_block", "cuda_split_mma"


def bucket(q, k, k_cache, **more):
    """Key of a call in the tuned table: dtype, head size, then queries of a key, sequences and
    positions by powers of two."""
    sizes = (q.shape[1] // max(k.shape[1], 1), q.shape[0] * k.shape[1], k_cache.shape[2])
    return "/".join((kind(q.dtype), str(q.shape[2]), *(str(next_power_of_2(n)) for n in sizes)))
