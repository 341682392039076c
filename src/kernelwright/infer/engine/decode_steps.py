"""Steps in which each sequence computes one token: on a GPU, CUDA graphs.

A model's hundreds of kernels take less time than their launches if the batch is small, so a step is
captured once and then replayed. A graph holds everything that its grids depend on: the number of
rows and the width of the table of pages. Both are rounded up to powers of two; rows that are added
have no keys, and a negative slot, so that nothing of theirs is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelwright.dispatch import ladder, proven_on

from .paged_cache import PagedCache, Tokens

_LEAST_COLUMNS = 8
# columns of a step's input, before those of the table
_TOKEN, _POSITION, _SLOT, _LENGTH, _TABLE = range(5)


class DecodeSteps:
    """Computes the last layer's result of one token per sequence.

    Args:
        model, cache: which keep their addresses.
    """

    def __init__(self, model: Any, cache: PagedCache):
        self._model, self._cache = model, cache
        self._steps: dict[tuple[int, int], _Step] = {}
        self._pool: Any = None  # memory that the graphs share: no two run at a time

    def hidden(
        self, tokens: Sequence[int], table_SP: np.ndarray, first_S: np.ndarray
    ) -> torch.Tensor:
        """(1, S, C); valid until the next call.

        Args:
            tokens: one of each sequence.
            table_SP: int32, the pages of each sequence.
            first_S: the positions of the tokens.
        """
        rows, size = len(tokens), self._cache.page_size
        pages = int(first_S.max()) // size + 1
        key = _power_of_two(rows), max(_LEAST_COLUMNS, _power_of_two(pages))
        if key not in self._steps:
            self._steps[key] = self._step(*key)
        step = self._steps[key]
        inputs_SI = step.host_SI.numpy()
        inputs_SI[rows:] = 0
        inputs_SI[rows:, _SLOT] = -1
        used = inputs_SI[:rows]
        used[:, _TOKEN], used[:, _POSITION], used[:, _LENGTH] = tokens, first_S, first_S + 1
        used[:, _SLOT] = table_SP[np.arange(rows), first_S // size] * size + first_S % size
        columns = min(key[1], table_SP.shape[1])
        used[:, _TABLE : _TABLE + columns] = table_SP[:, :columns]
        return step.run()[:, :rows]

    def _step(self, rows: int, columns: int) -> _Step:
        step = _Step(self._model, self._cache, rows, columns)
        if step.inputs_SI.is_cuda:
            step.capture(self._pool)
            self._pool = self._pool or step.graph.pool()
        return step


class _Step:
    """A step with a fixed number of rows and columns of the table."""

    graph: torch.cuda.CUDAGraph
    result: torch.Tensor

    def __init__(self, model: Any, cache: PagedCache, rows: int, columns: int):
        device = cache.kv_L2NPGD.device
        self._model, self._cache, self._longest = model, cache, columns * cache.page_size
        self.host_SI = torch.zeros(
            rows, _TABLE + columns, dtype=torch.int32, pin_memory=device.type == "cuda"
        )
        self.host_SI[:, _SLOT] = -1
        self.inputs_SI = self.host_SI.to(device)
        self._starts_S = torch.arange(rows + 1, dtype=torch.int32, device=device)

    def run(self) -> torch.Tensor:
        # the host may write its inputs again when a token has been drawn, which waits for the copy
        self.inputs_SI.copy_(self.host_SI, non_blocking=True)
        if not self.inputs_SI.is_cuda:
            return self._compute()
        self.graph.replay()
        return self.result

    def capture(self, pool: Any) -> None:
        """Capture the step. It runs before, so that kernels are compiled; nothing is stored,
        because all slots are negative."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._compute()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.result = self._compute()

    def _compute(self) -> torch.Tensor:
        inputs_SI = self.inputs_SI
        self._cache.tokens = Tokens(
            positions_1T=inputs_SI[None, :, _POSITION].long(),
            slots_T=inputs_SI[:, _SLOT].long(),
            starts_S=self._starts_S,
            lengths_S=inputs_SI[:, _LENGTH].contiguous(),
            table_SP=inputs_SI[:, _TABLE:].contiguous(),
            longest_new=1,
            longest=self._longest,
        )
        return self._model.hidden(inputs_SI[None, :, _TOKEN].long(), self._cache)


def can_be_captured() -> bool:
    """Whether attention over pages is proven in a kernel. PyTorch's rung reads lengths on the host,
    which no graph can hold."""
    paged = ladder("attention_varlen_paged")
    return any(r.is_gpu and r.dispatchable and proven_on(paged, r) for r in paged.rungs)


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
