"""Training runs in processes forked from one that has imported everything, so that a test can kill
or limit them, or let them share a run."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import torch
import torch._dynamo  # so that forked processes have it

from kernelwright.train import log, results, run
from kernelwright.train.settings import Settings
from support import ranks

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["support.training_runs"])
CPU = torch.device("cpu")
results.SAMPLE_TOKENS = 24
# not needed by these runs, and slower than they are
MEASURED = run.roof.products
run.roof.products = lambda *_: 1e11


def _start() -> None:
    """Start the process from which others are forked. Before Python 3.14 it imports modules only
    from PYTHONPATH. It has no GPU, because CUDA cannot be used in a process forked after its
    devices have been queried."""
    path = os.pathsep.join(p for p in sys.path if p)
    with mock.patch.dict(os.environ, {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}):
        forkserver.ensure_running()


def _process(target, args):
    _start()
    return CONTEXT.Process(target=target, args=args)


def text(folder: Path) -> Path:
    """A text from which a tiny model learns something."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(40)]
    path = folder / "words.txt"
    path.write_text(" ".join(draw.choices(words, k=2000)))
    return path


def tiny(folder: Path, **changes) -> Settings:
    """The settings of a run of about a second."""
    usual = {
        "data": str(text(folder)), "model": "gpt2-tiny", "context": 16, "steps": 10, "batch": 4,
        "save_every": 2, "eval_every": 5, "eval_batches": 1, "dropout": 0.1, "warm_up": 4,
        "deterministic": True,
    }  # fmt: skip
    return Settings(**{**usual, **changes})


def losses(folder: Path) -> list[float]:
    """The loss of each step."""
    return [e["loss"] for e in log.read(folder) if e["event"] == "step"]


def train(settings: Settings, folder: Path, started=None) -> None:
    """Begin a run, or continue it if it has a checkpoint."""
    torch.set_num_threads(1)
    if started is not None:
        started.set()
    if run.checkpoint.committed(folder):
        run.resume(folder, {}, CPU)
        return
    for p in folder.rglob("*"):
        if p.is_file():
            p.unlink()
    begin_in(folder, settings)


def begin_in(folder: Path, settings: Settings) -> None:
    for p in sorted(folder.rglob("*"), reverse=True):
        p.rmdir()
    run.begin(settings, folder, CPU)


def killed(settings: Settings, folder: Path, after: float) -> bool:
    """Kill a run by SIGKILL `after` seconds; returns whether it was still running."""
    started = CONTEXT.Event()
    process = _process(train, (settings, folder, started))
    process.start()
    started.wait()
    process.join(after)
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


def finished(settings: Settings, folder: Path) -> float:
    """Wait for the end of a run; returns its seconds."""
    begun = time.monotonic()
    process = _process(train, (settings, folder))
    process.start()
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - begun


def _limited(settings: Settings, folder: Path, most: int, answer) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    torch.set_num_threads(1)
    try:
        run.resume(folder, {"steps": settings.steps + 4, "save_every": 1}, CPU)
    except run.UserError as e:
        answer.put(str(e))
    else:
        answer.put("no error")


def limited(settings: Settings, folder: Path, most: int) -> str:
    """Continue a run whose files may have `most` bytes; returns the error that it raised."""
    answer = CONTEXT.SimpleQueue()
    process = _process(_limited, (settings, folder, most, answer))
    process.start()
    process.join()
    assert not answer.empty(), "the process ended without an answer"
    return answer.get()


def _rank(rank: int, variables: dict[str, str], work, args) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), **variables}
    torch.set_num_threads(1)
    work(*args)


def together(count: int, work, *args) -> None:
    """Run a function in several processes, started like those of torchrun."""
    with ranks.store(count) as variables:
        processes = [_process(_rank, (rank, variables, work, args)) for rank in range(count)]
        for p in processes:
            p.start()
        for p in processes:
            p.join()
    assert [p.exitcode for p in processes] == [0] * count


def begin(settings: Settings, folder: Path) -> None:
    torch.set_num_threads(1)
    run.begin(settings, folder, CPU)


def resume(folder: Path, changes: dict) -> None:
    torch.set_num_threads(1)
    run.resume(folder, changes, CPU)


def alone(work, *args) -> None:
    """Run a function in one process."""
    process = _process(work, args)
    process.start()
    process.join()
    assert process.exitcode == 0
