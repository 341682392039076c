"""Processes of a group, on CPUs. Their store is in the process that starts them, as with torchrun:
a port that was free when it was chosen may be another's when rank 0 binds it."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed as dist

from support.paths import TESTS


@contextmanager
def store(count: int) -> Iterator[dict[str, str]]:
    """The environment variables by which the ranks of a group reach their store."""
    kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(kept.port), "WORLD_SIZE": str(count),
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip


def run(work: Callable[[int], None], count: int = 2) -> None:
    """Call `work(rank)` for each rank of a group: 0 in this process, which then ends, the others in
    processes of their own."""
    spawn = multiprocessing.get_context("spawn")
    with store(count) as variables:
        others = [
            spawn.Process(target=_rank, args=(rank, count, variables, work, _end), daemon=True)
            for rank in range(1, count)
        ]
        for process in others:
            process.start()
        _rank(0, count, variables, work, lambda: None)
        for process in others:
            process.join()
        assert not any(process.exitcode for process in others)
        _end()


def _rank(
    rank: int,
    count: int,
    variables: dict[str, str],
    work: Callable[[int], None],
    end: Callable[[], None],
) -> None:
    os.environ.update(variables)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=count)
    work(rank)
    dist.barrier()
    dist.destroy_process_group()
    end()


def _end() -> None:
    sys.stdout.flush()
    os._exit(0)  # a normal exit sometimes aborts because of a thread of gloo


def output(script: str) -> str:
    """What a file of this folder prints, which runs ranks in a process of its own."""
    path = os.pathsep.join([str(TESTS), *sys.path])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(script))],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
