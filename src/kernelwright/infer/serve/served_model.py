"""What a server knows of its model: text to the engine's requests."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.infer.engine import Request
from kernelwright.models.tokenizer import Tokenizer
from kernelwright.support.errors import UsageError

from .chat_template import ChatTemplate
from .errors import RequestError, refused
from .schema import Generation


@dataclass(frozen=True)
class ServedModel:
    """A model's tokenizer and limits.

    Attributes:
        name: what requests call it.
        context: the largest number of tokens in a prompt and its answer.
        vocabulary: tokens are below it.
        ends: the tokens that end an answer.
    """

    name: str
    tokenizer: Tokenizer
    context: int
    vocabulary: int
    ends: frozenset[int]
    template: ChatTemplate | None

    def check_name(self, name: str | None) -> None:
        """Raise RequestError if a request is for another model."""
        if name not in (None, self.name):
            message = f"model: there is no model {name!r} here, only {self.name!r}"
            raise RequestError(404, message, "model", "model_not_found")

    def prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a completion's prompt; a text's begin as the model's texts begin.

        Raises:
            RequestError: it has no tokens, or one that is not in the vocabulary.
        """
        if isinstance(prompt, str):
            tokens = [*self.tokenizer.begin, *self._encoded("prompt", prompt)]
            if not tokens and self.tokenizer.end is not None:
                tokens = [self.tokenizer.end]
        else:
            tokens = list(prompt)
        if not tokens:
            raise RequestError(400, "prompt: has no tokens", "prompt")
        if not 0 <= min(tokens) <= max(tokens) < self.vocabulary:
            message = f"prompt: has tokens outside the vocabulary of {self.vocabulary}"
            raise RequestError(400, message, "prompt")
        return tokens

    def conversation(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The tokens of messages, up to where the assistant's answer begins.

        Raises:
            RequestError: the model has no chat template, or that refuses the messages.
        """
        if self.template is None:
            message = f"messages: the model {self.name!r} has no chat template; use /v1/completions"
            raise RequestError(400, message, "messages", "no_chat_template")
        tokens = self._encoded("messages", self.template.render(messages))
        if not tokens:
            raise RequestError(400, "messages: have no tokens", "messages")
        return tokens

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def request(self, prompt: Sequence[int], asked: Generation, echo: bool, param: str) -> Request:
        """The engine's request for a prompt.

        Raises:
            RequestError: the prompt leaves no room for an answer in the context.
        """
        room = self.context - len(prompt)
        if room < (0 if asked.max_tokens == 0 else 1):
            message = (
                f"{param}: has {len(prompt)} tokens; the model's context is {self.context}, "
                "with the answer"
            )
            raise RequestError(400, message, param, "context_length_exceeded")
        most = room if asked.max_tokens is None else min(asked.max_tokens, max(room, 1))
        seed = secrets.randbits(63) if asked.seed is None else asked.seed % (1 << 64)
        return Request(
            prompt=tuple(prompt),
            max_tokens=max(most, 1),
            sampling=asked.sampling,
            seed=seed,
            n=asked.n,
            end_tokens=asked.stop_tokens | (frozenset() if asked.ignore_end else self.ends),
            logprobs=asked.logprobs,
            prompt_logprobs=asked.logprobs if echo else None,
        )

    def _encoded(self, param: str, text: str) -> list[int]:
        try:
            return self.tokenizer.encode(text).tolist()
        except UsageError as e:
            error = refused(e)
            raise RequestError(400, error.message, param) from None
