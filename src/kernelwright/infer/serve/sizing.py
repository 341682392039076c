"""An engine for a model, with as large a cache as there is room for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.infer.engine import Engine
from kernelwright.support.errors import UsageError

PAGE = 16  # tokens
CACHE_DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
_CPU_MEMORY = 1 << 30  # bytes of a cache on a CPU at most
_GPU_SHARE = 0.8  # of the memory that is free beside the weights; steps need the rest


@dataclass(frozen=True)
class EngineSettings:
    """How an engine divides memory and work.

    Attributes:
        pages: of the cache, 16 tokens each; 0 for what `memory` gives.
        memory: bytes of the cache; 0 for as many as there is room for.
        step_tokens: tokens that a step computes at most.
        sequences: that a step has at most.
        deterministic: whether an answer has the same bits alone and in any batch.
        cache_dtype: "" for the model's, "fp8" or "int8".
    """

    pages: int = 0
    memory: int = 0
    step_tokens: int = 512
    sequences: int = 64
    deterministic: bool = False
    cache_dtype: str = ""

    def __post_init__(self):
        for name in ("pages", "memory"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name}: must not be negative, is {getattr(self, name)}")
        if self.pages and self.memory:
            raise UsageError("pages: not with memory, which decides them")
        if self.cache_dtype and self.cache_dtype not in CACHE_DTYPES:
            raise UsageError(f"cache_dtype: {self.cache_dtype!r} is neither fp8 nor int8")


def engine(model: Any, settings: EngineSettings, vocabulary: int | None = None) -> Engine:
    """The engine.

    Raises:
        UsageError: a setting is out of range, or there is no memory for a page.
    """
    return Engine(
        model,
        pages=settings.pages or _pages(model, settings),
        page_size=PAGE,
        step_tokens=settings.step_tokens,
        sequences=settings.sequences,
        deterministic=settings.deterministic,
        cache_dtype=CACHE_DTYPES.get(settings.cache_dtype),
        vocabulary=vocabulary,
    )


def token_bytes(model: Any, cache_dtype: str) -> int:
    """Bytes of a token's keys and values in every layer."""
    config = model.config
    dtype = CACHE_DTYPES[cache_dtype] if cache_dtype else model.head_VC.dtype
    return 2 * config.layers * config.kv_heads * config.head_width * dtype.itemsize


def _pages(model: Any, settings: EngineSettings) -> int:
    """As many pages as there is memory for, or as all sequences can fill."""
    device = model.head_VC.device
    memory = settings.memory
    if not memory and device.type == "cuda":
        memory = int(_GPU_SHARE * torch.cuda.mem_get_info(device)[0])
    memory = memory or _CPU_MEMORY
    pages = memory // (PAGE * token_bytes(model, settings.cache_dtype))
    if pages < 1:
        raise UsageError(f"memory: {memory} bytes have no room for a page of the cache")
    return min(pages, settings.sequences * -(-model.config.context // PAGE))
