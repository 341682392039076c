"""A server for the model of a folder: loads it, sizes its cache, and listens."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette

from kernelwright.infer import folder as folders
from kernelwright.models import pretrained
from kernelwright.support.errors import UsageError

from . import chat_template, sizing
from .app import Server
from .bridge import Bridge
from .served_model import ServedModel
from .sizing import EngineSettings


@dataclass(frozen=True)
class Settings:
    """How a model is served.

    Attributes:
        precision: see `infer.folder.load`.
        max_queue: requests that may wait for their first token.
        timeout: seconds that an answer may take.
        api_key: what requests must present; "" for none.
    """

    engine: EngineSettings
    precision: str = ""
    max_queue: int = 1024
    timeout: float = 600.0
    api_key: str = ""

    def __post_init__(self):
        if self.max_queue < 1:
            raise UsageError(f"max_queue: must be at least 1, is {self.max_queue}")
        if not 0 < self.timeout < math.inf:
            raise UsageError(f"timeout: must be above 0 seconds, is {self.timeout}")


@dataclass(frozen=True)
class Loaded:
    """A server that can begin.

    Attributes:
        pages, cache: of the engine's cache, and their bytes.
    """

    app: Starlette
    model: ServedModel
    pages: int
    cache: int


def load(folder: Path, device: torch.device, settings: Settings) -> Loaded:
    """The server of a folder's model.

    Raises:
        UsageError: there is no model or tokenizer, or a setting is out of range.
    """
    where = folders.checkpoint(folder)
    template = chat_template.load(where)
    model, tokenizer = folders.load(folder, device, settings.precision)
    vocabulary = min(tokenizer.size, model.config.vocabulary)
    engine = sizing.engine(model, settings.engine, vocabulary)
    end = set() if tokenizer.end is None else {tokenizer.end}
    served = ServedModel(
        name=str(folder),
        tokenizer=tokenizer,
        context=model.config.context,
        vocabulary=vocabulary,
        ends=pretrained.end_tokens(where) | end,
        template=template,
    )
    bridge = Bridge(engine, settings.max_queue)
    server = Server(served, bridge, api_key=settings.api_key, timeout=settings.timeout)
    pages = engine.statistics().pages
    cache = pages * sizing.PAGE * sizing.token_bytes(model, settings.engine.cache_dtype)
    return Loaded(server.app(), served, pages, cache)


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
