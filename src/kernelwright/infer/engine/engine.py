"""The engine's loop: schedule, one forward, draw."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch

import kernelwright as kw
from kernelwright.models.quantized import QuantizedLinear, ScaledLinear
from kernelwright.support.errors import UsageError

from .decode_steps import DecodeSteps, can_be_captured
from .draws import NO_TOKEN, draw
from .paged_cache import EIGHT_BITS, PagedCache
from .pages import Pages
from .request import Output, Request, Score
from .rows import Rows, rows_of
from .scheduler import Piece, Scheduler
from .scores import scores
from .sequence import Sequence

#: Rungs by which a token's result does not depend on other tokens. Elsewhere the order of sums may
#: follow from the number of rows or, on a CPU, the rounding of an element from its place.
INVARIANT = {
    "cpu": {
        "linear": "fixed_rows",
        "matmul": "fixed_rows",  # a linear layer without bias
        "swiglu": "exp_tanh",
        "geglu": "exp_tanh",
        "rope": "manual",
    },
    "cuda": {
        "linear": "fixed_rows",
        "matmul": "fixed_rows",
        "layer_norm": "native",
        "add_layer_norm": "native",
        "rms_norm": "native",
        "add_rms_norm": "native",
    },
}
QUANTIZED = (QuantizedLinear, ScaledLinear)


@dataclass(frozen=True)
class Statistics:
    """Gauges and counters of an engine.

    Attributes:
        running, waiting: sequences.
        pages, pages_used, pages_cached: of the cache; those that sequences use; those that are not
            used, but have a content that can be used again.
        steps: forwards so far.
        preemptions: how often a sequence lost its pages to an older one.
        prefix_hit_tokens: tokens whose keys and values were in the cache when their sequence began.
        prompt_tokens: of prompts that have been computed, or found in the cache.
        generated_tokens: of all continuations.
    """

    running: int
    waiting: int
    pages: int
    pages_used: int
    pages_cached: int
    steps: int
    preemptions: int
    prefix_hit_tokens: int
    prompt_tokens: int
    generated_tokens: int


class Engine:
    """Continues many requests at once with one model. Not for use by several threads.

    Args:
        model: is set to evaluation mode.
        pages, page_size: of the cache, and tokens in each.
        step_tokens: how many tokens a step computes, at most.
        sequences: how many continuations are in progress at a time, at most.
        deterministic: whether a request's tokens and log-probabilities are, in bits, those that it
            has alone, whatever other requests run, however its prompt is divided among steps, and
            whether or not its first tokens are in the cache.
        cache_dtype: of keys and values, by default the model's; or float8_e4m3fn, float8_e5m2,
            int8.
        vocabulary: tokens are below it; by default the model's. An output layer may be padded.

    Raises:
        UsageError: a size is out of range.
    """

    def __init__(
        self,
        model: Any,
        *,
        pages: int,
        page_size: int = 16,
        step_tokens: int = 512,
        sequences: int = 64,
        deterministic: bool = False,
        cache_dtype: torch.dtype | None = None,
        vocabulary: int | None = None,
    ):
        for name, size in (("pages", pages), ("page_size", page_size), ("sequences", sequences)):
            if size < 1:
                raise UsageError(f"{name}: must be at least 1, is {size}")
        if step_tokens < sequences:
            raise UsageError(
                f"step_tokens: must be at least the number of sequences, {sequences}, because each "
                f"computes a token per step; is {step_tokens}"
            )
        known = model.config.vocabulary
        if vocabulary is not None and not 1 <= vocabulary <= known:
            raise UsageError(f"vocabulary: must be from 1 to the model's {known}, is {vocabulary}")
        own = model.head_VC.dtype
        if cache_dtype not in (None, own, *EIGHT_BITS):
            raise UsageError(
                f"cache_dtype: must be the model's {own}, float8 or int8, is {cache_dtype}"
            )
        if deterministic and any(isinstance(m, QUANTIZED) for m in model.modules()):
            raise UsageError(
                "deterministic: products with quantized weights choose the order of their sums by "
                "the number of rows"
            )
        self.model = model.eval()
        self.context, self.vocabulary = model.config.context, vocabulary or known
        self._pages = Pages(pages, page_size)
        self._scheduler = Scheduler(self._pages, sequences, step_tokens, self.context)
        self._cache = PagedCache(
            model, pages, page_size, self.vocabulary, cache_dtype, deterministic
        )
        graphs = model.head_VC.is_cuda and can_be_captured()
        self._decode_steps = DecodeSteps(model, self._cache) if graphs else None
        self._deterministic = deterministic
        self._ids = count()
        self._sequences: dict[int, list[Sequence]] = {}  # of each request, those in progress
        self._cancelled: list[Output] = []
        self._steps = self._prompt_tokens = self._generated = 0

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._sequences or self._cancelled)

    def add(self, request: Request) -> int:
        """Queue a request.

        Returns:
            Its id.

        Raises:
            UsageError: a token of the prompt is not in the vocabulary, or the request can never fit
                in the model's context or in the cache.
        """
        length = len(request.prompt)
        if not 0 <= min(request.prompt) <= max(request.prompt) < self.vocabulary:
            raise UsageError(f"prompt: has tokens outside the vocabulary of {self.vocabulary}")
        if length > self.context:
            raise UsageError(f"prompt: {length} tokens, the model's context is {self.context}")
        stored = min(length + max(request.max_tokens - 1, 0), self.context)
        if stored > self._pages.count * self._pages.size:
            raise UsageError(
                f"max_tokens: prompt and continuation need a cache of {stored} tokens, there are "
                f"{self._pages.count} pages of {self._pages.size}"
            )
        sequence = Sequence(next(self._ids), 0, request, list(request.prompt))
        self._sequences[sequence.id] = [sequence]
        self._scheduler.add(sequence)
        return sequence.id

    def cancel(self, id: int) -> None:
        """End a request; the next step returns outputs that say so. An id whose request has ended
        is ignored."""
        for sequence in self._sequences.pop(id, ()):
            self._scheduler.remove(sequence)
            self._cancelled += [
                Output(id, index, None, finish="cancelled") for index in sequence.indices
            ]

    @torch.inference_mode()
    def step(self) -> list[Output]:
        """Compute the next tokens of the schedule.

        Returns:
            Those drawn, and the ends of cancelled requests.
        """
        outputs, self._cancelled = self._cancelled, []
        pieces = self._scheduler.pieces()
        if not pieces:
            return outputs
        rows = rows_of(pieces)
        with self._invariant():
            hidden_1TC = self._hidden(pieces)
            # a step that only computes parts of prompts needs no logits
            logits = self.model.logits(hidden_1TC[:, rows.at]) if rows.at else None
        for piece in pieces:
            self._scheduler.computed(piece)
        self._steps += 1
        if logits is not None:
            logits_RV = logits[0, :, : self.vocabulary]
            _score_prompts(rows, logits_RV[: len(rows.scored)])
            outputs += self._draw(rows, logits_RV[len(rows.scored) :])
        return outputs

    def statistics(self) -> Statistics:
        scheduler, pages = self._scheduler, self._pages
        return Statistics(
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            pages=pages.count,
            pages_used=pages.count - pages.available,
            pages_cached=pages.cached,
            steps=self._steps,
            preemptions=scheduler.preemptions,
            prefix_hit_tokens=scheduler.reused,
            prompt_tokens=self._prompt_tokens,
            generated_tokens=self._generated,
        )

    def _hidden(self, pieces: list[Piece]) -> torch.Tensor:
        """The last layer's result for all tokens of the step: (1, T, C)."""
        tokens = [t for s, n in pieces for t in s.tokens[s.computed : s.computed + n]]
        table_SP = self._scheduler.table[[s.row for s, _ in pieces]]
        first_S = np.array([s.computed for s, _ in pieces])
        if self._decode_steps is not None and len(tokens) == len(pieces):
            return self._decode_steps.hidden(tokens, table_SP, first_S)
        self._cache.place(table_SP, first_S, np.array([n for _, n in pieces]))
        tokens_1T = torch.tensor([tokens], device=self._cache.kv_L2NPGD.device)
        return self.model.hidden(tokens_1T, self._cache)

    def _invariant(self) -> AbstractContextManager[None]:
        """Selects rungs for a deterministic step."""
        if not self._deterministic:
            return nullcontext()
        return kw.use(INVARIANT[self.model.head_VC.device.type])

    def _draw(self, rows: Rows, logits_RV: torch.Tensor) -> list[Output]:
        """Draw the next tokens, and let sequences end and begin."""
        new = [sequence for _, sequence in rows.drawn]
        how = [s.request.sampling for s in new]
        numbers = [s.uniform() if h.temperature else 0.0 for s, h in zip(new, how, strict=True)]
        tokens = draw(logits_RV, how, numbers).tolist()
        asked = [
            r for r, s in enumerate(new) if s.request.logprobs is not None and tokens[r] != NO_TOKEN
        ]
        counts = [new[r].request.logprobs or 0 for r in asked]
        known = scores(logits_RV[asked], [tokens[r] for r in asked], counts) if asked else []
        score_of = dict(zip(asked, known, strict=True))
        outputs = [
            self._append(sequence, token, score_of.get(r))
            for r, (sequence, token) in enumerate(zip(new, tokens, strict=True))
        ]
        ends = [output.finish != "" for output in outputs]
        for (parent, sequence), end in zip(rows.drawn, ends, strict=True):
            if not end and sequence is not parent:
                self._fork(parent, sequence)
        for (parent, sequence), end in zip(rows.drawn, ends, strict=True):
            if end and sequence is parent:
                self._end(sequence)
        return outputs

    def _append(self, sequence: Sequence, token: int, score: Score | None) -> Output:
        """Add a drawn token to a sequence that has computed all others."""
        request, scored = sequence.request, None
        if sequence.begins and sequence.index == 0:
            self._prompt_tokens += len(request.prompt)
            if request.prompt_logprobs is not None:
                scored = (None, *sequence.scores)
        name = sequence.id, sequence.index
        if request.max_tokens == 0:
            return Output(*name, None, finish="length", prompt_logprobs=scored)
        if token == NO_TOKEN:
            return Output(*name, None, finish="error", prompt_logprobs=scored)
        sequence.tokens.append(token)
        self._generated += 1
        finish = self._finish(sequence, token)
        if score is None:
            return Output(*name, token, finish=finish, prompt_logprobs=scored)
        return Output(*name, token, *score, finish=finish, prompt_logprobs=scored)

    def _finish(self, sequence: Sequence, token: int) -> str:
        request, length = sequence.request, len(sequence.tokens)
        if token in request.end_tokens:
            return "stop"
        complete = length - len(request.prompt) == request.max_tokens or length > self.context
        return "length" if complete else ""

    def _fork(self, parent: Sequence, sequence: Sequence) -> None:
        self._sequences[parent.id].append(sequence)
        pages = self._scheduler.fork(parent, sequence)
        if pages is not None:
            self._cache.copy(*pages)

    def _end(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        others = self._sequences[sequence.id]
        others.remove(sequence)
        if not others:
            del self._sequences[sequence.id]


def _score_prompts(rows: Rows, logits_RV: torch.Tensor) -> None:
    tokens = [sequence.tokens[position] for sequence, position in rows.scored]
    counts = [sequence.request.prompt_logprobs or 0 for sequence, _ in rows.scored]
    known = scores(logits_RV, tokens, counts)
    for (sequence, _), score in zip(rows.scored, known, strict=True):
        sequence.scores.append(score)
