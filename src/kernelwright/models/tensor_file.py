"""Named tensors in one safetensors file, written tensor by tensor and read through a memory map."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from kernelwright.support import durable
from kernelwright.support.errors import UsageError
from kernelwright.support.extras import need

_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write(path: Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write tensors durably; see `durable.write`. The library's own writer keeps a second copy of
    all tensors and does not flush the file.

    Returns:
        The SHA-256 of the file.
    """
    return durable.write(path, _chunks(tensors))


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a file, on the CPU; their pages are read when they are used.

    Raises:
        UsageError: it is missing or damaged, or the package safetensors is not installed.
    """
    library = need("safetensors", "train", f"reading {path}")
    loading = need("safetensors.torch", "train", f"reading {path}")
    try:
        return loading.load_file(path)
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except library.SafetensorError as e:
        raise UsageError(f"{path} is damaged or is not a safetensors file ({e})") from None


def _chunks(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, t in tensors.items():
        begin, end = end, end + t.numel() * t.element_size()
        header[name] = {
            "dtype": _NAMES[t.dtype],
            "shape": list(t.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of 8 bytes
    yield len(text).to_bytes(8, "little") + text
    for t in tensors.values():
        if t.numel():
            flat = t.detach().cpu().contiguous().view(-1).view(torch.uint8)
            yield memoryview(flat.numpy())
