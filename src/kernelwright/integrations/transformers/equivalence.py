"""Verifies on a small input that a replacement computes what the original forward does.

Replacements are chosen by the code of the original; here their results are compared. A small copy
of the module (its class's forward with a few random weights and children) runs with the original
and with the replaced forward, on the CPU in float32. Results and gradients must be equal up to
rounding. The model itself is neither run nor changed, so its device and sharding do not matter.
Functions with the same code are tested once per process.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import kernelwright as kw
from kernelwright.dispatch import ladders
from kernelwright.machine import random_state

from .binding import bind, original
from .code import essence
from .logits import Logits

if TYPE_CHECKING:
    from .recognize import Replacement
    from .ropes import Rope

WIDE, DEEP = 16, 24  # widths of a layer and of its MLP; a loss has DEEP classes
RTOL, ATOL = 1e-4, 1e-5  # for short sums in float32; a wrong formula differs far more

Call = Callable[..., Any]
# the tensors to differentiate by, and two calls that should give the same results
Trial = tuple[list[torch.Tensor], Call, Call]

_seen: dict[Any, str] = {}


def refusal(module: nn.Module, new: Replacement) -> str:
    """Why a replacement is not accepted, or ""."""
    if new.rotates:
        key: Any = tuple((essence(own), kind) for own, _, kind in new.rotates)
    else:
        among = (type(None) if c is None else original(c) for c in module._modules.values())
        own = essence(original(module).forward, original(module))
        key = new.what, own, tuple(new.forwards.items()), *among
    if key not in _seen:
        with (
            random_state.cpu_seed(0),
            torch.device("cpu"),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            kw.use({x.name: "native" for x in ladders()}),  # independent of the user's overrides
        ):
            _seen[key] = _tried(module, new)
    return _seen[key]


def _tried(module: nn.Module, new: Replacement) -> str:
    trials = {
        "norm": _norm, "rope": _rope, "MLP": _mlp, "experts": _experts, "residual": _layer,
        "loss": _loss,
    }  # fmt: skip
    try:
        for inputs, own, ours in trials[new.what](module, new):
            want, results = _results(inputs, own), _results(inputs, ours)
            for a, b in zip(want, results, strict=True):
                if not torch.allclose(a, b, RTOL, ATOL):
                    return f"on a small input {new.by} is off by {(a - b).abs().max():.1g}"
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        return f"on a small input {new.by} fails: {type(e).__name__}: {e}"
    return ""


def _results(inputs: list[torch.Tensor], call: Call) -> list[torch.Tensor]:
    """A call's results, and the gradients of their weighted sum."""
    out = call()
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    weighted = (t * torch.linspace(0.5, 1.5, t.numel()).view(t.shape) for t in results)
    total = torch.stack([t.sum() for t in weighted]).sum()
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [*(t.detach() for t in results), *gradients]


# a test for each part of a model


def _norm(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """The norm alone, and of a sum; some rows are as small as the square root of an eps."""
    own, ours = original(module).forward, new.forwards[""]
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
    """Each function alone, with each kind of arguments that it takes."""
    for own, ours, kind in new.rotates:
        for inputs, args, more in _rotated(kind):

            def call(f: Call, args=args, more=more) -> Any:
                return f(*args, **more)

            yield inputs, lambda f=own, call=call: call(f), lambda f=ours, call=call: call(f)


def _rotated(kind: Rope) -> Iterator[tuple[list[torch.Tensor], tuple[torch.Tensor, ...], dict]]:
    """(differentiated tensors, arguments, keyword arguments): heads before and after tokens."""
    q, k = _input(2, 4, 3, WIDE), _input(2, 2, 3, WIDE)
    tokens_first = q.transpose(1, 2), k.transpose(1, 2)
    pairs = WIDE // (4 if kind.part else 2)
    angle = _random(2, 3, pairs)
    if kind.arguments.startswith("complex"):
        a, b = tokens_first if kind.arguments.endswith("tokens first") else (q, k)
        yield [q, k], (a, b, torch.polar(torch.ones_like(angle), angle)), {}
        return
    twice = {
        "halves": lambda t: t.repeat(1, 1, 2),
        "neighbours": lambda t: t.repeat_interleave(2, -1),
        "once": lambda t: t,
    }[kind.tables]
    cos, sin = twice(angle.cos()), twice(angle.sin())
    if kind.arguments == "vision":
        yield [q, k], (*tokens_first, cos, sin), {}
        yield [q, k], (*(t[0] for t in tokens_first), cos[0], sin[0]), {}
        return
    for dim in (1, 2):
        a, b = (q, k) if dim == 1 else tokens_first
        if kind.arguments == "x":
            yield [q], (a, cos, sin), {"unsqueeze_dim": dim}
        else:
            yield [q, k], (a, b, cos, sin), {"unsqueeze_dim": dim}


def _mlp(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """The MLP with small layers and the module's own activation."""
    from transformers.pytorch_utils import Conv1D

    mlp = new.order
    wide = DEEP * (2 if mlp.gated and len(mlp.up) == 1 else 1)
    sizes = {**dict.fromkeys(mlp.up, (WIDE, wide)), mlp.down: (DEEP, WIDE)}
    children = {}
    for name, child in module._modules.items():
        if name not in sizes:
            children[name] = nn.Identity() if name == "dropout" else child
        elif isinstance(child, Conv1D):
            children[name] = Conv1D(*sizes[name][::-1]).float()
        else:
            children[name] = nn.Linear(*sizes[name], dtype=torch.float32)
    stand_in, replaced = _stand_in(module, children), _stand_in(module, children)
    x = _input(2, 3, WIDE)
    given = [x, *(p for c in children.values() for p in c.parameters())]
    ours = _bound(replaced, new)
    yield given, lambda: original(module).forward(stand_in, x), lambda: ours(x)


def _experts(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """Four small experts, one of which gets no token; some gates exceed a limit of 7."""
    form, stand_in = new.order, _stand_in(module, dict(module._modules))
    stand_in.num_experts = 4
    sizes = {"gate_up_proj": (4, 2 * DEEP, WIDE), "down_proj": (4, WIDE, DEEP)}
    for name, size in sizes.items():
        weight, bias = _random(*size) / size[2] ** 0.5, _random(*size[:2])
        weight = weight.mT if form.transposed else weight
        stand_in._parameters[name] = nn.Parameter(weight.contiguous())
        if form.bias:
            stand_in._parameters[f"{name}_bias"] = nn.Parameter(bias)
    x, weights = _input(5, WIDE, times=5.0), _input(5, 2)
    indices = torch.tensor([[0, 3], [1, 0], [3, 1], [0, 1], [1, 3]])
    given = [x, weights, *stand_in.parameters()]
    own = inspect.unwrap(original(module).forward)  # in transformers, a choice of implementations
    ours = new.forwards[""]
    yield (
        given,
        lambda: own(stand_in, x, indices, weights),
        lambda: ours(stand_in, x, indices, weights),
    )


def _layer(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """The layer with children that are different functions; attentions depend on all arguments."""
    children = {
        name: _Child(i, "Attention" in type(child).__name__, name in new.pairs)
        for i, (name, child) in enumerate(module._modules.items())
    }
    stand_in = _stand_in(module, children)
    for name, value in module._buffers.items():
        stand_in._buffers[name] = None if value is None else torch.tensor(0.7)
    x = _input(2, 3, WIDE)
    names = inspect.signature(original(module).forward).parameters
    tables = (_random(2, 3, WIDE), _random(2, 3, WIDE))
    given = {"attention_mask": _random(2, 3, WIDE), "position_embeddings": tables}
    given |= {"cu_seqlens": _random(2, 3, WIDE), "per_layer_input": _random(2, 3, WIDE)}
    given = {name: value for name, value in given.items() if name in names}
    if "crossattention" in children:
        given["encoder_hidden_states"] = _random(2, 3, WIDE)
    own, ours = (f.__get__(stand_in) for f in (original(module).forward, new.forwards[""]))
    yield [x], lambda: own(x, **given), lambda: ours(x, **given)


def _loss(module: nn.Module, new: Replacement) -> Iterator[Trial]:
    """The loss in training: of random hidden states with a small head, without logits."""
    states = _input(2, 5, WIDE)
    name = next(n for n in new.forwards if n)
    bias = module.get_submodule(name).bias is not None
    head = nn.Linear(WIDE, DEEP, bias=bias, dtype=torch.float32)
    config = copy.deepcopy(module.config)
    config.vocab_size = config.get_text_config().vocab_size = DEEP
    children = {other: _Base(states) for other in module._modules} | {name: head}
    stand_in, replaced = _stand_in(module, children), _stand_in(module, children)
    for x in (stand_in, replaced):
        x.config, x.vocab_size, x.training = config, DEEP, True
    labels = torch.randint(DEEP, (2, 5))
    labels[0, :2] = -100
    own, ours = original(module).forward.__get__(stand_in), _bound(replaced, new)

    def without_logits():
        with Logits.never_computed():
            return ours(input_ids=labels, labels=labels).loss

    yield (
        [states, *head.parameters()],
        lambda: own(input_ids=labels, labels=labels).loss,
        without_logits,
    )


# small copies of modules


class _Base(nn.Module):
    """A model, or any part of it, that returns given states."""

    def __init__(self, states: torch.Tensor):
        super().__init__()
        self.states = (states,)

    def forward(self, *_, **more):
        return _Output(self.states[0])

    def __getattr__(self, name: str) -> Any:
        return self  # any part of a model that is called


class _Output(tuple):
    """A model's output: the states; every other field is None."""

    def __new__(cls, states: torch.Tensor):
        return super().__new__(cls, (states,))

    def __getattr__(self, name: str) -> Any:
        return self[0] if name == "last_hidden_state" else None


class _Child(nn.Module):
    """A function that differs per child; with `attends`, of all given tensors and their names."""

    def __init__(self, number: int, attends: bool, pair: bool):
        super().__init__()
        self.number, self.attends, self.pair = number, attends, pair

    def forward(self, hidden_states, **others):
        y = torch.tanh(hidden_states * (1 + 0.3 * self.number)) + 0.1 * self.number
        if not self.attends:
            return (y, None) if self.pair else y
        for name, value in sorted(others.items()):
            tensors = value if isinstance(value, tuple) else (value,)
            for place, t in enumerate(t for t in tensors if isinstance(t, torch.Tensor)):
                y = y + (0.1 * len(name) + 0.01 * place) * t
        return (y, None) if self.pair else y


def _stand_in(module: nn.Module, children: dict[str, nn.Module]) -> nn.Module:
    """A module of the same class and attributes, with other children and no parameters."""
    stand_in = object.__new__(original(module))  # FSDP's classes would create the original class
    nn.Module.__init__(stand_in)
    stand_in.__dict__ |= {
        k: v for k, v in vars(module).items() if k not in vars(stand_in) | {"forward": 0}
    }
    # separate copies, so that a forward bound to one is not bound to another
    stand_in._modules.update({name: copy.copy(child) for name, child in children.items()})
    return stand_in


def _bound(stand_in: nn.Module, new: Replacement) -> Call:
    """The stand-in's forward once the replacement is bound to it."""
    for name, forward in new.forwards.items():
        bind(stand_in.get_submodule(name), forward)
    return stand_in.forward


def _input(*shape: int, times: torch.Tensor | float = 1.0) -> torch.Tensor:
    return (_random(*shape) * times).requires_grad_()


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32)
