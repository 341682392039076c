"""The requests of OpenAI's completions and chat, as clients send them.

A field that is not known is refused. A known field that is not supported is accepted at the values
that ask for nothing, and refused by name at others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.infer.sampling import Sampling
from kernelwright.support.errors import UsageError

from .errors import RequestError, refused
from .fields import Fields, is_integer, valid_text, wrong

COMPLETION_TOKENS = 16  # OpenAI's default for completions
STOPS, TOP, CHOICES = 16, 20, 128  # at most; OpenAI allows 4 stop strings, evaluations send more
_ROLES = ("system", "developer", "user", "assistant")
_ZERO, _ONE = (0, 0.0), (1, 1.0)
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": _ZERO,
    "presence_penalty": _ZERO,
    "repetition_penalty": _ONE,
    "length_penalty": _ONE,
    "logit_bias": ({},),
    "min_tokens": (0,),
    "use_beam_search": (False,),
    "skip_special_tokens": (False,),
    "spaces_between_special_tokens": (True,),
    "service_tier": ("auto", "default"),
    "metadata": ({},),
    "store": (False,),
    "best_of": (1,),
}
_NEUTRAL_COMPLETION = {**_NEUTRAL, "suffix": ("",)}
_NEUTRAL_CHAT: dict[str, tuple[Any, ...]] = {
    **_NEUTRAL,
    "echo": (False,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "reasoning_effort": (),
    "chat_template": (),
    "chat_template_kwargs": ({},),
}


@dataclass(frozen=True)
class Generation:
    """What completions and chat have in common.

    Attributes:
        max_tokens: None for as many as the context has room for.
        seed: None for a random one.
        stop: strings that end the text.
        stop_tokens: tokens that end it, beside the model's own.
        ignore_end: whether the model's own end tokens end nothing.
        logprobs: the number of most likely tokens whose log-probabilities are wanted beside that
            of each token; None for no log-probabilities.
        usage_chunk: whether a stream ends with a chunk that counts the tokens.
    """

    model: str | None
    max_tokens: int | None
    sampling: Sampling
    seed: int | None
    n: int
    stop: tuple[str, ...]
    stop_tokens: frozenset[int]
    ignore_end: bool
    logprobs: int | None
    stream: bool
    usage_chunk: bool


@dataclass(frozen=True)
class Completion:
    """A request of /v1/completions.

    Attributes:
        prompts: texts, or lists of tokens.
        echo: whether each text begins with its prompt.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    echo: bool
    generation: Generation


@dataclass(frozen=True)
class Chat:
    """A request of /v1/chat/completions."""

    messages: tuple[dict[str, str], ...]
    generation: Generation


def completion(document: object) -> Completion:
    """Raises RequestError, which names the field at fault."""
    fields = Fields(document)
    prompts = _prompts(fields.take("prompt"))
    echo = fields.boolean("echo")
    most = fields.integer("max_tokens", 0 if echo else 1, 1 << 31)
    most = COMPLETION_TOKENS if most is None else most
    logprobs = fields.integer("logprobs", 0, TOP)
    generation = _generation(fields, most, logprobs)
    fields.end(_NEUTRAL_COMPLETION)
    return Completion(prompts, echo, generation)


def chat(document: object) -> Chat:
    """Raises RequestError, which names the field at fault."""
    fields = Fields(document)
    messages = _messages(fields.take("messages"))
    old = fields.integer("max_tokens", 1, 1 << 31)
    most = fields.integer("max_completion_tokens", 1, 1 << 31)
    if old is not None and most is not None and old != most:
        raise RequestError(400, "max_tokens: differs from max_completion_tokens", "max_tokens")
    most = old if most is None else most
    wanted, top = fields.boolean("logprobs"), fields.integer("top_logprobs", 0, TOP)
    if top is not None and not wanted:
        raise RequestError(400, "top_logprobs: needs logprobs to be true", "top_logprobs")
    generation = _generation(fields, most, (top or 0) if wanted else None)
    fields.end(_NEUTRAL_CHAT)
    return Chat(messages, generation)


def _generation(fields: Fields, max_tokens: int | None, logprobs: int | None) -> Generation:
    fields.text("user")  # names the person who asks; nothing depends on it
    stream, options = fields.boolean("stream"), fields.take("stream_options")
    if options is not None and not stream:
        raise RequestError(400, "stream_options: needs stream to be true", "stream_options")
    return Generation(
        model=fields.text("model"),
        max_tokens=max_tokens,
        sampling=_sampling(fields),
        seed=fields.integer("seed", -(1 << 63), (1 << 63) - 1),
        n=fields.integer("n", 1, CHOICES) or 1,
        stop=_stop(fields.take("stop")),
        stop_tokens=_stop_tokens(fields.take("stop_token_ids")),
        ignore_end=fields.boolean("ignore_eos"),
        logprobs=logprobs,
        stream=stream,
        usage_chunk=_usage_chunk(options),
    )


def _sampling(fields: Fields) -> Sampling:
    temperature = fields.number("temperature", 1.0)
    top_k = fields.integer("top_k", -1, 1 << 31) or 0
    top_p, min_p = fields.number("top_p", 1.0), fields.number("min_p", 0.0)
    try:
        return Sampling(temperature, max(top_k, 0), top_p, min_p)  # -1 stands for all, too
    except UsageError as e:
        raise refused(e) from None


def _usage_chunk(options: object) -> bool:
    if options is None:
        return False
    fields = Fields(options, "stream_options")
    wanted = fields.boolean("include_usage")
    fields.end({"continuous_usage_stats": (False,), "include_obfuscation": (False,)})
    return wanted


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    if value is None:
        raise RequestError(400, "prompt: is missing", "prompt")
    if isinstance(value, str):
        return (valid_text("prompt", value),)
    kind = "a string, a list of strings, a list of tokens, or a list of lists of tokens"
    if not isinstance(value, list) or not value:
        raise wrong("prompt", kind, value)
    if all(is_integer(t) for t in value):
        return (tuple(value),)
    if all(isinstance(p, str) for p in value):
        return tuple(valid_text("prompt", p) for p in value)
    if all(isinstance(p, list) and p and all(is_integer(t) for t in p) for p in value):
        return tuple(tuple(p) for p in value)
    raise wrong("prompt", kind, value)


def _messages(value: object) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise wrong("messages", "a list of messages", value)
    return tuple(_message(m, f"messages[{i}]") for i, m in enumerate(value))


def _message(value: object, at: str) -> dict[str, str]:
    fields = Fields(value, at)
    role, content, name = fields.text("role"), fields.take("content"), fields.text("name")
    if role not in _ROLES:
        raise wrong(f"{at}.role", f"one of {', '.join(_ROLES)}", role)
    fields.end({"tool_calls": ([],), "refusal": (), "function_call": (), "annotations": ([],)})
    message = {"role": role, "content": _content(content, f"{at}.content")}
    return message if name is None else {**message, "name": name}


def _content(value: object, at: str) -> str:
    if not isinstance(value, list):
        return valid_text(at, value)
    parts: list[str] = []
    for i, part in enumerate(value):
        fields = Fields(part, f"{at}[{i}]")
        if (kind := fields.text("type")) != "text":
            raise RequestError(400, f"{at}[{i}].type: only 'text' is supported, is {kind!r}", at)
        parts.append(valid_text(f"{at}[{i}].text", fields.take("text")))
        fields.end({})
    return "\n".join(parts)


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or len(listed) > STOPS:
        raise wrong("stop", f"a string, or a list of at most {STOPS}", value)
    stops = tuple(valid_text("stop", s) for s in listed)
    if "" in stops:
        raise RequestError(400, "stop: a string is empty", "stop")
    return stops


def _stop_tokens(value: object) -> frozenset[int]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(is_integer(t) and t >= 0 for t in value):
        raise wrong("stop_token_ids", "a list of tokens", value)
    return frozenset(value)
