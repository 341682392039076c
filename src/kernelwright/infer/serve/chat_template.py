"""Chat templates: messages as the text that a model was trained on (jinja2, as in transformers).

A rendered template contains its special tokens, so its text is tokenized without adding any.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernelwright.support.errors import UsageError

from .errors import RequestError

FILE, CONFIG = "chat_template.jinja", "tokenizer_config.json"
_SPECIAL = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class ChatTemplate:
    """A template and the special tokens that it may name.

    Args:
        source: jinja2.
        special: the texts of special tokens, by name (bos_token).

    Raises:
        UsageError: the template is not valid.
    """

    def __init__(self, source: str, special: Mapping[str, str]):
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_raise, strftime_now=_now)
        self._special = dict(special)
        try:
            self._template = environment.from_string(source)
        except TemplateError as e:
            raise UsageError(f"the chat template is not valid: {e}") from None

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The text of a conversation, up to where the assistant's next answer begins.

        Raises:
            RequestError: the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **self._special,
            )
        except TemplateError as e:
            message = f"messages: the model's chat template refuses them: {e}"
            raise RequestError(400, message, "messages") from None


def load(folder: Path) -> ChatTemplate | None:
    """The chat template of a Hugging Face folder, or None if it has none.

    Raises:
        UsageError: a file is damaged, or the template is not valid.
    """
    config = _config(folder / CONFIG)
    source = config.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {t["name"]: t["template"] for t in source}
        source = named.get("default")
    if (folder / FILE).exists():
        source = (folder / FILE).read_text(encoding="utf-8")
    if source is None:
        return None
    special = {
        f"{name}_token": token if isinstance(token, str) else token["content"]
        for name in _SPECIAL
        if (token := config.get(f"{name}_token")) is not None
    }
    return ChatTemplate(source, special)


def _config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} is damaged ({e})") from None


class _Generation(Extension):
    """The block {% generation %}, which marks the assistant's words for training."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _to_json(
    value: Any, ensure_ascii=False, indent=None, separators=None, sort_keys=False
) -> str:  # jinja2's own escapes what is special in HTML
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
