"""Checkpoints: folders that are either complete or absent.

    RUN/checkpoints/step-00000100/
        model.safetensors       weights, as `models.from_pretrained` reads them, next to
                                config.json and the tokenizer's files
        optimizer.safetensors   states by parameter
        shards/                 with FSDP, instead of both: torch.distributed.checkpoint
        state.json              step, settings, random states, rungs, versions
        COMMITTED               sizes and SHA-256 of all these files; written last

Files are written and flushed in a folder with a temporary name; the folder is renamed, then the
marker is written. A folder without a marker is not a checkpoint; the next run removes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.models import tensor_file
from kernelwright.support import durable
from kernelwright.support.errors import INCONCLUSIVE, UserError

FOLDER, MARKER, STATE = "checkpoints", "COMMITTED", "state.json"
MODEL, OPTIMIZER, SHARDS = "model.safetensors", "optimizer.safetensors", "shards"
_NAME = re.compile(r"step-(\d{8,})")


class Damaged(UserError, RuntimeError):
    """A checkpoint's files differ from those that were written."""

    exit_code = INCONCLUSIVE


@dataclass(frozen=True)
class Snapshot:
    """The contents of a checkpoint, as copies on the CPU that training does not change.

    Attributes:
        tensors: named tensors by file.
        files: the contents of other files.
    """

    step: int
    tensors: Mapping[str, Mapping[str, torch.Tensor]]
    files: Mapping[str, bytes]


class Saver:
    """Writes checkpoints of a run in a separate thread.

    Args:
        run: the run's folder.
        keep: how many checkpoints are kept.
    """

    def __init__(self, run: Path, keep: int):
        self.folder, self.keep = run / FOLDER, keep
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise durable.refused(self.folder, e) from None
        _sweep(self.folder)

    def save(self, snapshot: Snapshot, *, background: bool = True) -> None:
        """Begin to write a checkpoint, after the previous one has been written.

        Raises:
            WriteError: this or the previous one could not be written; older ones are intact.
        """
        self.finish()
        if not background:
            self._write(snapshot)
            return
        self._thread = threading.Thread(target=self._guarded, args=(snapshot,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the checkpoint that is being written.

        Raises:
            WriteError: it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def begin(self, step: int) -> Path:
        """An empty folder with a temporary name."""
        aside = self.folder / f".{_name(step)}.tmp"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        return aside

    def commit(self, step: int, aside: Path, sums: Mapping[str, str]) -> Path:
        """Give a written folder its name and its marker, and remove older ones beyond `keep`."""
        final = self.folder / _name(step)
        shutil.rmtree(final, ignore_errors=True)  # left by a run that was killed
        durable.sync_folder(aside)
        os.rename(aside, final)
        durable.sync_folder(self.folder)
        files = {n: {"bytes": (final / n).stat().st_size, "sha256": s} for n, s in sums.items()}
        durable.write(final / MARKER, [json.dumps({"files": files}, indent=1).encode()])
        for old in committed(self.folder.parent)[: -self.keep]:
            (old / MARKER).unlink()
            shutil.rmtree(old)
        return final

    def _guarded(self, snapshot: Snapshot) -> None:
        try:
            self._write(snapshot)
        except BaseException as e:  # noqa: BLE001 - raised by `finish`
            self._error = e

    def _write(self, snapshot: Snapshot) -> None:
        aside = self.folder / f".{_name(snapshot.step)}.tmp"
        try:
            aside = self.begin(snapshot.step)
            sums = {n: tensor_file.write(aside / n, t) for n, t in snapshot.tensors.items()}
            sums |= {n: durable.write(aside / n, [c]) for n, c in snapshot.files.items()}
            self.commit(snapshot.step, aside, sums)
        except OSError as e:
            shutil.rmtree(aside, ignore_errors=True)
            raise self._explained(durable.refused(aside, e)) from e
        except durable.WriteError as e:
            shutil.rmtree(aside, ignore_errors=True)
            raise self._explained(e) from e

    def _explained(self, error: durable.WriteError) -> durable.WriteError:
        whole = committed(self.folder.parent)
        rest = (
            f"the last whole checkpoint is {whole[-1]}" if whole else "there is no checkpoint yet"
        )
        return durable.WriteError(f"the checkpoint could not be saved: {error}; {rest}")


def committed(run: Path) -> list[Path]:
    """The checkpoints of a run that have a marker, oldest first."""
    folder = run / FOLDER
    if not folder.is_dir():
        return []
    checkpoints = [
        p for p in folder.iterdir() if _NAME.fullmatch(p.name) and (p / MARKER).is_file()
    ]
    return sorted(checkpoints, key=lambda p: int(p.name[5:]))


def find(path: Path) -> Path:
    """A checkpoint: `path` itself, or the newest one of the run in that folder.

    Raises:
        UserError: there is none.
    """
    if (path / MARKER).is_file():
        return path
    checkpoints = committed(path)
    if not checkpoints:
        raise UserError(f"{path} holds no checkpoint of a training run")
    return checkpoints[-1]


def check(path: Path) -> dict[str, Any]:
    """The state.json of a checkpoint, after comparing the hash of every file with its marker.

    Raises:
        Damaged: a file is missing or has changed; the message names an older checkpoint, if any.
    """
    try:
        marker = json.loads((path / MARKER).read_text(encoding="utf-8"))["files"]
        for name, facts in marker.items():
            if not (path / name).is_file() or durable.sha256(path / name) != facts["sha256"]:
                raise _damaged(path, f"{name} is missing or has changed since it was written")
        return json.loads((path / STATE).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise _damaged(path, f"{MARKER} cannot be read") from None


def _damaged(path: Path, what: str) -> Damaged:
    older = [p for p in committed(path.parent.parent) if p.name < path.name]
    rest = f"; continue from {older[-1]}" if older else ""
    return Damaged(f"the checkpoint {path} is damaged: {what}{rest}")


def _sweep(folder: Path) -> None:
    """Remove incomplete folders left by runs that were killed."""
    for p in folder.iterdir():
        unmarked = _NAME.fullmatch(p.name) and not (p / MARKER).is_file()
        if unmarked or (p.name.startswith(".step-") and p.name.endswith(".tmp")):
            shutil.rmtree(p)


def _name(step: int) -> str:
    return f"step-{step:08}"
