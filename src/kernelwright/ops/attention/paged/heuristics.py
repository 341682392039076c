"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind as dtype_name
from kernelwright.contract.eligibility import off_boundary, unsupported_dtype

from .. import _split_keys, _stream_keys

BYTES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)
MOST_SPLITS = 64
CONFIGS = ({"cols": 64, "stages": 3, "waves": 2}, {"cols": 32, "stages": 4, "waves": 4})
SCATTER_CONFIGS = ({},)


def fits(gpu, q, k, v, table, lengths, scale, k_scale, v_scale):
    if why := unsupported_dtype(q.dtype, "q"):
        return why
    for name, t in (("k", k), ("v", v)):
        if t.dtype != q.dtype and t.dtype not in BYTES:
            return f"{name}: {t.dtype} is neither q's {q.dtype} nor of 8 bits"
        if t.dtype == torch.float8_e4m3fn and gpu.capability < (8, 9):
            return f"{name}: float8_e4m3fn needs compute capability 8.9"
        if t.shape[3] > 1 and t.stride(3) != 1:
            return f"{name}: its heads are not contiguous"
    if q.stride(2) != 1 and q.shape[2] > 1:
        return "q: its heads are not contiguous"
    if table.shape[1] > 1 and table.stride(1) != 1:
        return "table: its rows are not contiguous"
    if max(q.shape[2], v.shape[3]) > 256:
        return f"a head of {max(q.shape[2], v.shape[3])} elements is wider than 256"
    if table.shape[1] * k.shape[1] >= 2**31 - 512:
        return "the table's tokens do not fit an int32"
    return None


def fits_split(gpu, q, k, v, table, lengths, **scales):
    """As `fits`, of whole vectors in 16 bits or less, in pages of whole tiles."""
    if q.dtype == torch.float32:
        return "q: tensor cores have no float32"
    if why := fits(gpu, q, k, v, table, lengths, **scales):
        return why
    if k.shape[1] % 16:
        return f"k: pages of {k.shape[1]} tokens are not whole tiles of 16"
    if why := _split_keys.unfit((k, v), 1, table.shape[1] * k.shape[1]):
        return why
    tensors = {"q": q, "k": k, "v": v}
    for name, t in tensors.items():
        if any(n * t.itemsize % 16 for n in t.stride()[:-1]):
            return f"{name}: its heads are not apart by whole vectors of 16 bytes"
    if why := off_boundary(tensors):
        return why
    return "lengths: not contiguous" if not lengths.is_contiguous() else None


def fits_bulk(gpu, q, k, v, **others):
    """As `fits_split`, of caches in which the rows of a head, or the heads of a row, are
    contiguous."""
    if why := _stream_keys.no_bulk_copies(gpu) or fits_split(gpu, q=q, k=k, v=v, **others):
        return why
    if _stream_keys.layout(k, v, 1, 2) is None:
        return "k: neither the rows of a head nor the heads of a row are contiguous"
    return None


def fits_scatter(gpu, keys, values, k, v, slots, kind, k_scale, v_scale):
    for name, t in (("keys", keys), ("values", values)):
        if why := unsupported_dtype(t.dtype, name):
            return why
    if kind == "e4m3" and gpu.capability < (8, 9):
        return "kind: float8_e4m3fn needs compute capability 8.9"
    for name, t in (("k", k), ("v", v)):
        if t.shape[3] > 1 and t.stride(3) != 1:
            return f"{name}: its heads are not contiguous"
    if keys.shape[1] * max(keys.shape[2], values.shape[2]) > 2**16:
        return "keys: a token does not fit a program's registers"
    return "slots: not contiguous" if slots.shape[0] > 1 and slots.stride(0) != 1 else None


def splits_of(gpu, config, blocks: int, tokens: int) -> int:
    """The number of programs that share a sequence: enough to fill the GPU, with several tiles
    each."""
    wanted = cdiv(config["waves"] * gpu.sms, max(blocks, 1))
    return max(1, min(wanted, cdiv(tokens, 2 * config["cols"]), MOST_SPLITS))


def choose_split(gpu, q, k, table, **others):
    tokens = table.shape[1] * k.shape[1]
    return _split_keys.choose(gpu, q.shape[0] * k.shape[2], tokens, k, q.shape[2])


def choose_bulk(gpu, **others):
    return _stream_keys.CONFIGS[0]


def order(gpu, q, k, **others):
    """triton_split reads at nearly the memory's rate, but converts caches of 8 bits slowly."""
    rungs = "triton_split", "cuda_split_mma"
    return rungs[::-1] if k.dtype.itemsize == 1 else rungs


def order_update(gpu, **args):
    return ("triton_scatter",)


def bucket(q, k, table, **more):
    sizes = (q.shape[0], q.shape[1] // max(k.shape[2], 1), table.shape[1] * k.shape[1])
    powers = "/".join(str(next_power_of_2(n)) for n in sizes)
    return f"{dtype_name(q.dtype)}/{dtype_name(k.dtype)}/{q.shape[2]}/{k.shape[1]}/{powers}"


def bucket_update(keys, kind, **more):
    return f"{dtype_name(keys.dtype)}/{kind}/{next_power_of_2(keys.numel())}"
