"""A server for the model of a folder: loads it, sizes its cache, and listens."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette

from kernelwright.infer import folder as folders
from kernelwright.infer.engine import Engine
from kernelwright.models import pretrained
from kernelwright.support.errors import UsageError

from . import chat_template
from .app import Server
from .bridge import Bridge
from .served_model import ServedModel

PAGE = 16  # tokens
CACHE_TYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
_CPU_MEMORY = 1 << 30  # bytes of a cache on a CPU at most
_GPU_SHARE = 0.8  # of the memory that is free beside the weights; steps need the rest


@dataclass(frozen=True)
class Settings:
    """How a model is served.

    Attributes:
        precision: see `infer.folder.load`.
        pages: of the cache, 16 tokens each; 0 for what `memory` gives.
        memory: bytes of the cache; 0 for as many as there is room for.
        step_tokens: tokens that a step computes at most.
        sequences: that a step has at most.
        deterministic: whether an answer has the same bits alone and in any batch.
        cache_dtype: "" for the model's dtype, "fp8" or "int8".
        max_queue: requests that may wait for their first token.
        timeout: seconds that an answer may take.
    """

    precision: str = ""
    pages: int = 0
    memory: int = 0
    step_tokens: int = 512
    sequences: int = 64
    deterministic: bool = False
    cache_dtype: str = ""
    max_queue: int = 1024
    timeout: float = 600.0
    api_key: str = ""

    def __post_init__(self):
        if self.pages < 0 or self.memory < 0:
            name = "pages" if self.pages < 0 else "memory"
            raise UsageError(f"{name}: must not be negative, is {getattr(self, name)}")
        if self.pages and self.memory:
            raise UsageError("pages: not with memory, which decides them")
        if self.cache_dtype and self.cache_dtype not in CACHE_TYPES:
            raise UsageError(f"cache_dtype: {self.cache_dtype!r} is neither fp8 nor int8")
        for name in ("step_tokens", "sequences", "max_queue"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}: must be at least 1, is {getattr(self, name)}")
        if not 0 < self.timeout < float("inf"):
            raise UsageError(f"timeout: must be above 0 seconds, is {self.timeout}")


@dataclass(frozen=True)
class Loaded:
    """A server that can begin.

    Attributes:
        cache: bytes of the cache.
    """

    app: Starlette
    model: ServedModel
    pages: int
    cache: int


def load(folder: Path, device: torch.device, settings: Settings) -> Loaded:
    """The server of a folder's model.

    Raises:
        UsageError: there is no model or tokenizer, or the cache has no room for one sequence.
    """
    where = folders.checkpoint(folder)
    template = chat_template.load(where)
    model, tokenizer = folders.load(folder, device, settings.precision)
    config = model.eval().config
    pages = settings.pages or _pages(model, settings)
    vocabulary = min(tokenizer.size, config.vocabulary)
    engine = Engine(
        model,
        pages=pages,
        page_size=PAGE,
        step_tokens=settings.step_tokens,
        sequences=settings.sequences,
        deterministic=settings.deterministic,
        cache_dtype=CACHE_TYPES.get(settings.cache_dtype),
        vocabulary=vocabulary,
    )
    end = set() if tokenizer.end is None else {tokenizer.end}
    served = ServedModel(
        name=str(folder),
        tokenizer=tokenizer,
        context=config.context,
        vocabulary=vocabulary,
        ends=pretrained.end_tokens(where) | end,
        template=template,
    )
    bridge = Bridge(engine, settings.max_queue)
    server = Server(served, bridge, api_key=settings.api_key, timeout=settings.timeout)
    return Loaded(server.app(), served, pages, pages * page_bytes(model, settings.cache_dtype))


def page_bytes(model: Any, cache_dtype: str) -> int:
    """Bytes of a page: keys and values of 16 tokens in every layer."""
    config = model.config
    dtype = CACHE_TYPES.get(cache_dtype, model.head_VC.dtype)
    return 2 * config.layers * config.kv_heads * config.head_width * PAGE * dtype.itemsize


def _pages(model: Any, settings: Settings) -> int:
    """As many pages as there is memory for, or as all sequences can fill."""
    device = model.head_VC.device
    memory = settings.memory
    if not memory and device.type == "cuda":
        memory = int(_GPU_SHARE * torch.cuda.mem_get_info(device)[0])
    memory = memory or _CPU_MEMORY
    pages = memory // page_bytes(model, settings.cache_dtype)
    if pages < 1:
        raise UsageError(f"memory: {memory} bytes have no room for a page of the cache")
    return min(pages, settings.sequences * -(-model.config.context // PAGE))


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections.

    Raises:
        UsageError: the port is in use, or the address is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as e:
        raise UsageError(f"port: cannot listen on {host}:{port}: {e}") from None


def run(app: Starlette, listening: socket.socket, begun: Callable[[], None]) -> None:
    """Serve until the process is interrupted.

    Args:
        begun: called before the first request is accepted.
    """
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=5
    )
    begun()
    uvicorn.Server(config).run(sockets=[listening])
