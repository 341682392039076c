"""The log of a run: one line of JSON per event, and TensorBoard's files if it is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from kernelwright.support import durable

FILE = "log.jsonl"


class Log:
    """RUN/log.jsonl, and RUN/tensorboard if the package tensorboard is installed.

    Args:
        run: the run's folder.
        begin: bytes of the existing file to keep when a run continues.
    """

    def __init__(self, run: Path, begin: int = 0):
        self._path = run / FILE
        try:
            self._file = open(self._path, "ab")  # noqa: SIM115 - open until `close`
            self._file.truncate(begin)
        except OSError as e:
            raise durable.refused(self._path, e) from None
        self._board = _tensorboard(run)

    def write(self, event: str, **facts: Any) -> None:
        """Append a line: {"event": ..., facts}; events with a step also go to TensorBoard."""
        try:
            self._file.write((json.dumps({"event": event, **facts}) + "\n").encode())
        except OSError as e:
            raise durable.refused(self._path, e) from e
        if self._board is not None and "step" in facts:
            for name, value in facts.items():
                if name != "step" and isinstance(value, int | float):
                    self._board.add_scalar(f"{event}/{name}", value, facts["step"])

    def position(self) -> int:
        """Bytes written so far, after flushing them."""
        try:
            self._file.flush()
        except OSError as e:
            raise durable.refused(self._path, e) from e
        return self._file.tell()

    def close(self) -> None:
        self.position()
        self._file.close()
        if self._board is not None:
            self._board.close()


def read(run: Path) -> list[dict[str, Any]]:
    """The events of a run; an incomplete last line is omitted."""
    path = run / FILE
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def _tensorboard(run: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(run / "tensorboard")
