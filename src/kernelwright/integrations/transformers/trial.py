"""What replaces a forward computes what it did: tried on a small input before it is accepted.

That a function is known by its code says what it should compute; here it is seen. A stand-in of the
module, its class's forward over a few random weights and children, runs as it was and as replaced,
on the CPU in float32; results and gradients must be the same but for rounding. Nothing of the model
is run or changed, so models on other devices, on none, or in shards are tried alike. Functions of
one code are tried once in a process.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import kernelwright as kw
from kernelwright.dispatch import ladders

from .code import essence

if TYPE_CHECKING:
    from .known import Replacement

WIDE, DEEP = 16, 24  # of a layer and of its MLP; DEEP classes for a loss
RTOL, ATOL = 1e-4, 1e-5  # for sums of so few in float32; what is wrong is off by far more

Call = Callable[..., Any]
# the tensors that gradients are taken of, and two calls that should give the same
Trial = tuple[list[torch.Tensor], Call, Call]

_seen: dict[Any, str] = {}


def refusal(module: nn.Module, new: Replacement) -> str:
    """Why a replacement is not accepted, or ""."""
    by = {} if new.rotates else {name: f.__code__ for name, f in new.forwards.items()}
    among = (type(child) for child in module._modules.values())
    was = essence(new.rotates or type(module).forward, type(module))
    key = new.what, was, *by.items(), *among
    if key not in _seen:
        with (
            torch.random.fork_rng(devices=()),
            torch.device("cpu"),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            kw.use({x.name: "native" for x in ladders()}),  # whatever the user asks for just now
        ):
            torch.manual_seed(0)
            _seen[key] = _tried(module, new)
    return _seen[key]


def _tried(module: nn.Module, new: Replacement) -> str:
    trials = {"norm": _norm, "rope": _rope, "MLP": _mlp, "residual": _layer, "loss": _loss}
    try:
        for inputs, own, ours in trials[new.what](module, new):
            want, found = _results(inputs, own), _results(inputs, ours)
            for a, b in zip(want, found, strict=True):
                if not torch.allclose(a, b, RTOL, ATOL):
                    return f"on a small input {new.by} is off by {(a - b).abs().max():.1g}"
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        return f"on a small input {new.by} fails: {type(e).__name__}: {e}"
    return ""


def _results(inputs: list[torch.Tensor], call: Call) -> list[torch.Tensor]:
    """A call's results, and the gradients of what they sum up to, each weighted."""
    out = call()
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    weighted = (t * torch.linspace(0.5, 1.5, t.numel()).view(t.shape) for t in results)
    total = torch.stack([t.sum() for t in weighted]).sum()
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [*(t.detach() for t in results), *gradients]


# one for each part of a model


def _norm(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """By itself, and of a sum; some rows are as small as the square root of an eps."""
    own, ours = type(module).forward, new.forwards[""]
    stand_in = _stand_in(module, {})
    for name, parameter in module._parameters.items():
        stand_in._parameters[name] = None if parameter is None else nn.Parameter(_random(WIDE))
    if hasattr(stand_in, "normalized_shape"):
        stand_in.normalized_shape = (WIDE,)
    size = torch.tensor([[1e-3], [1.0], [30.0]])
    x, residual = (_input(3, WIDE, times=size) for _ in range(2))
    given = [x, *stand_in.parameters()]
    yield given, lambda: own(stand_in, x), lambda: ours(stand_in, x)

    def summed():
        h = x + residual
        return own(stand_in, h), h

    yield [residual, *given], summed, lambda: ours(stand_in, x, residual)


def _rope(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """Heads before tokens and behind them; a table has each value twice."""
    q, k = _input(2, 4, 3, WIDE), _input(2, 2, 3, WIDE)
    cos, sin = (_random(2, 3, WIDE // 2).repeat(1, 1, 2) for _ in range(2))
    for dim in (1, 2):
        a, b = (q, k) if dim == 1 else (q.transpose(1, 2), k.transpose(1, 2))

        def call(f: Call, a=a, b=b, dim=dim) -> Any:
            return f(a, b, cos, sin, unsqueeze_dim=dim)

        yield [q, k], lambda call=call: call(new.rotates), lambda call=call: call(kw.rope)


def _mlp(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """Over small layers, and with the module's own activation."""
    from transformers.pytorch_utils import Conv1D

    sizes = {"gate_proj": (WIDE, DEEP), "up_proj": (WIDE, DEEP), "down_proj": (DEEP, WIDE)}
    children = {name: nn.Linear(*size, dtype=torch.float32) for name, size in sizes.items()}
    children |= {"c_fc": Conv1D(DEEP, WIDE).float(), "c_proj": Conv1D(WIDE, DEEP).float()}
    children |= {"dropout": nn.Identity()}
    present = {name: children.get(name, child) for name, child in module._modules.items()}
    stand_in, replaced = _stand_in(module, present), _stand_in(module, present)
    x = _input(2, 3, WIDE)
    given = [x, *(p for c in children.values() for p in c.parameters())]
    ours = _bound(replaced, new)
    yield given, lambda: type(module).forward(stand_in, x), lambda: ours(x)


def _layer(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """Over children that are each another function, attentions of all that they are given."""
    children = {
        name: _Child(i, attends=type(child).__name__.endswith("Attention"))
        for i, (name, child) in enumerate(module._modules.items())
    }
    stand_in = _stand_in(module, children)
    x = _input(2, 3, WIDE)
    given = {"attention_mask": _random(2, 3, WIDE)}
    if "position_embeddings" in inspect.signature(type(module).forward).parameters:
        given["position_embeddings"] = (_random(2, 3, WIDE), _random(2, 3, WIDE))
    if "crossattention" in children:
        given["encoder_hidden_states"] = _random(2, 3, WIDE)
    own, ours = (f.__get__(stand_in) for f in (type(module).forward, new.forwards[""]))
    yield [x], lambda: own(x, **given), lambda: ours(x, **given)


def _loss(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """In training: the loss of random hidden states under a small head."""
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions as Output

    states = _input(2, 5, WIDE)

    class Base(nn.Module):
        def forward(self, *_, **more):
            return Output(last_hidden_state=states)

    head = nn.Linear(WIDE, DEEP, bias=False, dtype=torch.float32)
    config = copy.copy(module.config)
    config.vocab_size = DEEP
    children = {module.base_model_prefix: Base(), "lm_head": head}
    stand_in, replaced = _stand_in(module, children), _stand_in(module, children)
    for x in (stand_in, replaced):
        x.config, x.vocab_size = config, DEEP
    labels = torch.randint(DEEP, (2, 5))
    labels[0, :2] = -100
    own, ours = type(module).forward.__get__(stand_in), _bound(replaced, new)
    yield (
        [states, head.weight],
        lambda: own(input_ids=labels, labels=labels).loss,
        lambda: ours(input_ids=labels, labels=labels).loss,
    )


# what stands in


class _Child(nn.Module):
    """A function of its own; with `attends`, of every tensor that it is given, by its name."""

    def __init__(self, number: int, attends: bool):
        super().__init__()
        self.number, self.attends = number, attends

    def forward(self, hidden_states, **others):
        y = torch.tanh(hidden_states * (1 + 0.3 * self.number)) + 0.1 * self.number
        if not self.attends:
            return y
        for name, value in sorted(others.items()):
            tensors = value if isinstance(value, tuple) else (value,)
            for place, t in enumerate(t for t in tensors if isinstance(t, torch.Tensor)):
                y = y + (0.1 * len(name) + 0.01 * place) * t
        return y, None


def _stand_in(module: nn.Module, children: dict[str, nn.Module]) -> nn.Module:
    """A module of the same class and attributes, with other children and no parameters."""
    made = object.__new__(type(module))  # FSDP's classes would make one of their own
    nn.Module.__init__(made)
    made.__dict__ |= {k: v for k, v in vars(module).items() if k not in vars(made) | {"forward": 0}}
    # each its own, so that what is bound to one is not bound to another's
    made._modules.update({name: copy.copy(child) for name, child in children.items()})
    return made


def _bound(stand_in: nn.Module, new: Replacement) -> Call:
    """The stand-in's forward once the replacement is bound to it."""
    for name, forward in new.forwards.items():
        child = stand_in.get_submodule(name)
        child.forward = MethodType(forward, child)
    return stand_in.forward


def _input(*shape: int, times: torch.Tensor | float = 1.0) -> torch.Tensor:
    return (_random(*shape) * times).requires_grad_()


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32)
