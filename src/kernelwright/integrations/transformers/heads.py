"""A language model's forward that computes the loss without the logits.

In training, logits are used only for the loss, and they are the largest tensor of all. With labels
in training mode, `output.logits` is therefore None; in evaluation, and without labels, logits are
returned as before. `skip_logits=False` or `True` overrides this for one call, and
`return_token_accuracy=True` adds `output.token_accuracy`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import make_dataclass
from functools import cache
from typing import Any

import torch

from . import masks
from .binding import untouched
from .logits import Call, Logits, head_and_loss

Forward = Callable[..., Any]


class _WithoutHead:
    """A model whose head records its input."""

    def __init__(self, model, head, loss, call):
        vars(self)["_of"] = model, head, loss, call  # one name, which no model uses

    def __getattr__(self, name):
        model, head, loss, call = vars(self)["_of"]
        if name == "loss_function":  # in some models this property logs, which cannot be traced
            return loss
        attribute = getattr(model, name)
        if name != head:
            return attribute
        return _Head(attribute, call)

    def __setattr__(self, name, value):
        setattr(vars(self)["_of"][0], name, value)


class _Head:
    """A head that records its input; every other attribute is the module's."""

    def __init__(self, module, call):
        self._module, self._call = module, call

    def __call__(self, states):
        return Logits(self._call, self._module, states, _dtype(states))

    def __getattr__(self, name):
        return getattr(self._module, name)


def _dtype(states):
    """The dtype of a linear layer's result."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


@cache
def language_model(own: Forward, head: str, causal: bool, loss: Any, given_loss: Any) -> Forward:
    """The replacement of `own`, a language model's forward.

    Args:
        head: the name of the child that computes logits.
        causal: whether its decoder makes causal masks, with or without a window.
        loss: the model's loss function.
        given_loss: its attribute `_loss_function`, or None; if a user has set another since, the
            logits are computed.
    """
    signature = inspect.signature(own)
    names = tuple(signature.parameters)[1:]
    counting = {output: _with_accuracy(output) for output in _outputs(own)}

    def forward(self, *args, skip_logits=None, return_token_accuracy=False, **kwargs):
        given = dict(zip(names, args, strict=False)) | kwargs
        if causal and masks.only_causal(self, given):
            kwargs["only_causal"] = True  # for the layers
        skips = self.training if skip_logits is None else skip_logits
        labels = given.get("labels")
        notes = getattr(self, "_loss_function", None) is given_loss and untouched(
            getattr(self, head), (head_and_loss,)
        )
        if return_token_accuracy and (labels is None or not notes):
            why = "there are no labels" if notes else "the head or the loss is not the model's own"
            raise ValueError(f"return_token_accuracy: {why}")
        if not notes or labels is None or not (skips or return_token_accuracy):
            return own(self, *args, **kwargs)
        call = Call(keeps=not skips, counts=return_token_accuracy)
        return _output(own(_WithoutHead(self, head, loss, call), *args, **kwargs), call, counting)

    # Trainer reads from it which columns of a dataset the model takes
    forward.__signature__ = signature
    return forward


def _output(output, call: Call, counting: dict[type, type]):
    """A model's output with the logits, or None instead of them, and the accuracy."""
    if isinstance(output, tuple):
        outputs = tuple(_logits(value, call) for value in output)
        return outputs if call.accuracy is None else (*outputs, call.accuracy)
    fields = {name: _logits(value, call) for name, value in output.items()}
    if call.accuracy is None:
        return type(output)(**fields)
    with_accuracy = counting.get(type(output)) or _with_accuracy(type(output))
    return with_accuracy(**fields, token_accuracy=call.accuracy)


def _logits(value, call: Call):
    if not isinstance(value, Logits):
        return value
    return value.tensor() if call.keeps else None


def _outputs(own: Forward) -> Iterator[type]:
    """The output classes that a forward's code refers to."""
    own = inspect.unwrap(own)
    for name in own.__code__.co_names:
        value = own.__globals__.get(name)
        if inspect.isclass(value) and issubclass(value, dict):
            yield value


@cache
def _with_accuracy(output: type) -> type:
    """An output class with the further field `token_accuracy`."""
    field = ("token_accuracy", torch.Tensor | None, None)
    return make_dataclass(output.__name__, [field], bases=(output,))
