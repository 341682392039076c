"""The process that Nsight Compute profiles: python -m ... WHAT MODEL BATCH CONTEXT."""

from __future__ import annotations

import sys

import torch

from .workload import make


def main() -> None:
    what, model, batch, context = sys.argv[1:]
    work = make(what, model, int(batch), int(context), torch.device("cuda"))
    for _ in range(3):
        work.step()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    work.step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
