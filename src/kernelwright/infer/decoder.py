"""Decoding of several rows: all prompts at once, then one token of each row per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelwright.models.cache import Cache

from .sampling import Sampling, choose

_LEAST_VISIBLE = 128  # minimum number of positions that attention reads


class Decoder:
    """A model, its cache, and the newest token of each row.

    On a GPU a step is captured in a CUDA graph, one for each power of two of visible positions, so
    that attention reads at most twice as many positions as the rows have.

    Args:
        model: in evaluation mode.
        batch: the number of rows.
        how: how tokens are drawn.
        seed: the seed of the draws.
        vocabulary: tokens are below it; the output layer may be padded.
        graphed: whether to capture steps on a GPU.

    Attributes:
        token_B: the newest token of each row, on the device.
        longest: the number of tokens in the longest row.
    """

    def __init__(
        self,
        model: Any,
        batch: int,
        how: Sampling,
        seed: int,
        vocabulary: int,
        graphed: bool = True,
    ):
        config, weight = model.config, model.head_VC
        self.model, self.how, self.vocabulary = model, how, vocabulary
        self.cache = Cache(
            config.layers, batch, config.kv_heads, config.context, config.head_width,
            weight.device, weight.dtype,
        )  # fmt: skip
        self.token_B = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        self.longest = 0
        self._generator = torch.Generator(weight.device).manual_seed(seed)
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._graphed = graphed and weight.is_cuda

    @torch.inference_mode()
    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Read the prompts, from empty rows, and draw the next token of each.

        Args:
            prompts: each of one token or more, at most the context. Shorter ones are padded at
                their end; the padding is never read.
        """
        device, self.longest = self.token_B.device, max(map(len, prompts))
        padded = [[*p, *[0] * (self.longest - len(p))] for p in prompts]
        tokens_BT = torch.tensor(padded, device=device)
        lengths_B = torch.tensor([len(p) for p in prompts], device=device)
        self.cache.length_B.zero_()
        self.cache.visible = self.cache.capacity
        hidden_BTC = self.model.hidden(tokens_BT, self.cache)
        last_BC = hidden_BTC[torch.arange(len(prompts), device=device), lengths_B - 1]
        self.cache.length_B.copy_(lengths_B)
        self.token_B.copy_(self._choose(last_BC))

    @torch.inference_mode()
    def step(self) -> None:
        """Process the newest token of each row, and draw the next."""
        self.longest += 1
        self.cache.visible = self._visible()
        if not self._graphed:
            self._step()
            return
        if self.cache.visible not in self._graphs:
            self._graphs[self.cache.visible] = self._captured()
        self._graphs[self.cache.visible].replay()

    def _step(self) -> None:
        hidden_B1C = self.model.hidden(self.token_B[:, None], self.cache)
        self.cache.length_B += 1
        self.token_B.copy_(self._choose(hidden_B1C[:, 0]))

    def _choose(self, hidden_BC: torch.Tensor) -> torch.Tensor:
        logits_BV = self.model.logits(hidden_BC)[:, : self.vocabulary]
        return choose(logits_BV, self.how, self._generator)

    def _visible(self) -> int:
        visible = _LEAST_VISIBLE
        while visible < self.longest:
            visible *= 2
        return min(visible, self.cache.capacity)

    def _captured(self) -> torch.cuda.CUDAGraph:
        """A step as a graph. One step runs first, so that kernels are compiled, and is then
        undone."""
        kept = self.token_B.clone(), self.cache.length_B.clone(), self._generator.get_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.token_B.copy_(kept[0])
        self.cache.length_B.copy_(kept[1])
        self._generator.set_state(kept[2])
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            self._step()
        return graph
