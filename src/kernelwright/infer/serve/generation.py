"""From the engine's tokens to the texts of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.infer.engine import Output, Request, Score
from kernelwright.models.tokenizer import Tokenizer

from .bridge import Item
from .detokenizer import Detokenizer
from .errors import RequestError
from .schema import Generation
from .stop_strings import StopStrings


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log-probability and those of the most likely tokens in its place.

    Attributes:
        logprob: None for the first token of a prompt.
        top: texts and log-probabilities, the most likely first.
    """

    text: str
    logprob: float | None
    top: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Piece:
    """What an output adds to a text.

    Attributes:
        choice: the number of the text among all of the answer.
        tokens: the log-probabilities, if they are wanted.
        finish: "stop" or "length" if this is the text's last piece, else "".
    """

    choice: int
    text: str
    tokens: tuple[TokenLogprob, ...]
    finish: str


class Answer:
    """The texts of one HTTP request: n of each prompt.

    Args:
        requests: the engine's, one for each prompt.
        echoes: for each prompt what its texts begin with; "" for nothing.

    Attributes:
        unfinished: the numbers of texts without a last piece.
        generated: the number of tokens in all texts so far.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        requests: Sequence[Request],
        asked: Generation,
        echoes: Sequence[str],
    ):
        self._tokenizer, self._requests, self._asked = tokenizer, requests, asked
        self._echoes = echoes
        self.unfinished = set(range(len(requests) * asked.n))
        self.generated = 0
        self._texts = {
            number * asked.n + index: _Text(tokenizer, request, asked.stop)
            for number, request in enumerate(requests)
            for index in range(asked.n)
        }
        self._begun: set[int] = set()
        self._prompt_logprobs: dict[int, tuple[TokenLogprob, ...]] = {}

    def add(self, items: Sequence[Item]) -> list[Piece]:
        """The pieces of some outputs.

        Raises:
            RequestError: the model has failed.
        """
        pieces = [self._piece(number, output) for number, output in items]
        return [p for p in pieces if p is not None]

    def done(self, number: int) -> bool:
        """Whether all texts of a prompt are finished."""
        first = number * self._asked.n
        return self.unfinished.isdisjoint(range(first, first + self._asked.n))

    def _piece(self, number: int, output: Output) -> Piece | None:
        if output.finish == "error":
            raise RequestError(500, "the model's logits are not finite", code="model_failed")
        choice = number * self._asked.n + output.index
        if output.prompt_logprobs is not None:
            self._prompt_logprobs[number] = self._of_prompt(number, output.prompt_logprobs)
        if choice not in self.unfinished:
            return None
        only_prompt = self._asked.max_tokens == 0  # the engine has drawn one token all the same
        text, tokens = "", ()
        if choice not in self._begun:
            self._begun.add(choice)
            text, tokens = self._echoes[number], self._prompt_logprobs.get(number, ())
        finish = "length" if only_prompt else output.finish
        if not only_prompt:
            added, stopped = self._texts[choice].add(output.token, finish)
            text, finish = text + added, "stop" if stopped else finish
        if output.token is not None and not only_prompt:
            self.generated += 1
            if self._asked.logprobs is not None:
                tokens = (*tokens, self._logprob(output.token, output.logprob, output.top))
        if finish:
            self.unfinished.discard(choice)
        return Piece(choice, text, tokens, finish)

    def _of_prompt(self, number: int, scores: Sequence[Score | None]) -> tuple[TokenLogprob, ...]:
        prompt = self._requests[number].prompt
        return tuple(
            self._logprob(token, *(score or (None, ())))
            for token, score in zip(prompt, scores, strict=True)
        )

    def _logprob(
        self, token: int, logprob: float | None, top: Sequence[tuple[int, float]]
    ) -> TokenLogprob:
        named = tuple((self._written(t), p) for t, p in top)
        return TokenLogprob(self._written(token), logprob, named)

    def _written(self, token: int) -> str:
        return self._tokenizer.decode([token])


class _Text:
    """One text, which tokens are added to until it ends."""

    def __init__(self, tokenizer: Tokenizer, request: Request, stop: Sequence[str]):
        self._detokenizer = Detokenizer(tokenizer.decode, request.prompt)
        self._stops = StopStrings(stop)

    def add(self, token: int | None, finish: str) -> tuple[str, bool]:
        """The text that is certain now, and whether a stop string has ended it.

        Args:
            finish: "stop" if the token ends the text, of which it is no part; "length" if it is
                the last one.
        """
        text = "" if token is None or finish == "stop" else self._detokenizer.add(token)
        if finish:
            text += self._detokenizer.rest()
        text = self._stops.add(text)
        if finish and not self._stops.stopped:
            text += self._stops.rest()
        return text, self._stops.stopped
