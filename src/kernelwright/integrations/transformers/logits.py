"""Logits that are not computed: the head's input and the operations on its result are recorded.

A model's own code calls its head and passes the result to a loss. Here it gets `Logits` instead,
which record the operations on them: a factor, a softcap, a dtype, another shape. Their cross
entropy is `kw.linear_cross_entropy` of the states. Any other use computes them as the model would
have, so the result is right whatever a model does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

import kernelwright as kw

ARGMAX_WORKSPACE = 64 << 20  # bytes of logits computed at a time to find the largest


@dataclass
class Call:
    """One call of a model.

    Attributes:
        keeps: whether to return the logits as well.
        counts: whether to compute the accuracy.
        accuracy: the share of the targets, without the ignored ones, that have the largest logit.
    """

    keeps: bool
    counts: bool
    accuracy: torch.Tensor | None = None


class Logits:
    """cap * tanh(head(states) * factor), or head(states) * factor without a cap; not computed."""

    forbidden = False

    def __init__(self, call, head, states, dtype, factor=1.0, cap=None, compute=None):
        """
        Args:
            head: a module; its forward is `head_and_loss`.
            dtype: the dtype that the model expects of the logits.
            compute: computes the tensor with the model's own operations.
        """
        self.call, self.head, self.states, self.dtype = call, head, states, dtype
        self.factor, self.cap = factor, cap
        # torch 2.11's compiler cannot evaluate `not function`
        self.compute = (lambda: head(states)) if compute is None else compute
        self.value = None

    def tensor(self) -> torch.Tensor:
        if Logits.forbidden:
            raise RuntimeError("its logits are used for more than their cross entropy")
        if self.value is None:
            self.value = self.compute()
        return self.value

    @classmethod
    @contextmanager
    def never_computed(cls) -> Iterator[None]:
        """Inside the block, computing logits is an error."""
        cls.forbidden = True
        try:
            yield
        finally:
            cls.forbidden = False

    def _then(self, operation: Callable[[torch.Tensor], torch.Tensor], **changes: Any) -> Logits:
        """The logits after an operation, with the recorded values that it changes."""
        now = {"states": self.states, "dtype": self.dtype, "factor": self.factor, "cap": self.cap}
        return Logits(
            self.call, self.head, **{**now, **changes}, compute=lambda: operation(self.tensor())
        )

    # recorded operations

    def float(self):
        return self._then(lambda z: z.float(), dtype=torch.float32)

    def to(self, *args, **kwargs):
        (to,) = args if len(args) == 1 and not kwargs else (None,)
        if isinstance(to, torch.dtype):
            return self._then(lambda z: z.to(to), dtype=to)
        if isinstance(to, torch.device) and to == self.device:
            return self
        return self.tensor().to(*args, **kwargs)

    def contiguous(self):
        return self

    def tanh(self):
        if self.cap is None:
            return self._then(torch.tanh, cap=1.0)
        return self.tensor().tanh()

    def __mul__(self, other):
        if not _positive(other):
            return self.tensor() * other
        if self.cap is None:
            return self._then(lambda z: z * other, factor=self.factor * other)
        return self._then(lambda z: z * other, cap=self.cap * other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        if not _positive(other) or self.cap is not None:
            return self.tensor() / other
        return self._then(lambda z: z / other, factor=self.factor / other)

    def view(self, *shape):
        shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if shape[-1] != self.shape[-1]:
            return self.tensor().view(shape)
        states = self.states.reshape(*shape[:-1], self.states.shape[-1])
        return self._then(lambda z: z.view(shape), states=states)

    def reshape(self, *shape):
        shape = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if shape[-1] != self.shape[-1]:
            return self.tensor().reshape(shape)
        states = self.states.reshape(*shape[:-1], self.states.shape[-1])
        return self._then(lambda z: z.reshape(shape), states=states)

    def __getitem__(self, index):
        if not _of_tokens(index, self.states.ndim):
            return self.tensor()[index]
        return self._then(lambda z: z[index], states=self.states[index])

    # properties that need no logits

    @property
    def shape(self):
        return torch.Size((*self.states.shape[:-1], self.head.weight.shape[0]))

    @property
    def device(self):
        return self.states.device

    @property
    def ndim(self):
        return self.states.ndim

    def dim(self):
        return self.states.ndim

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    # operations that compute the logits

    def __getattr__(self, name):
        if name.startswith("__"):  # copy, pickle and inspect look these up on any object
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    def __len__(self):
        return len(self.tensor())

    def __add__(self, other):
        return self.tensor() + other

    __radd__ = __add__

    def __sub__(self, other):
        return self.tensor() - other

    def __neg__(self):
        return -self.tensor()

    def __setitem__(self, index, value):
        self.tensor()[index] = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.cross_entropy:
            return _cross_entropy(*args, **kwargs)
        if func is torch.tanh and len(args) == 1 and not kwargs:
            return args[0].tanh()
        return func(*(_computed(a) for a in args), **{k: _computed(v) for k, v in kwargs.items()})


def _computed(value):
    """A function's argument, with any Logits in it computed."""
    if isinstance(value, Logits):
        return value.tensor()
    if isinstance(value, (list, tuple)):
        return type(value)(_computed(v) for v in value)
    return value


def _positive(factor) -> bool:
    return isinstance(factor, (int, float)) and 0 < factor < math.inf


def _of_tokens(index, dims: int) -> bool:
    """Whether an index into `dims` dimensions leaves the last one unchanged."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(p is None or isinstance(p, (list, torch.Tensor)) for p in parts):
        return False
    if any(p is Ellipsis for p in parts) or len(parts) == dims:
        return isinstance(parts[-1], slice) and parts[-1] == slice(None)
    return len(parts) < dims


def _cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None,
    reduction="mean", label_smoothing=0.0,
):  # fmt: skip
    """torch.nn.functional.cross_entropy for Logits."""
    options = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction,
               "label_smoothing": label_smoothing}  # fmt: skip
    noted = isinstance(input, Logits) and input.states.ndim == 2 and size_average is reduce is None
    if not noted or isinstance(target, Logits) or target.is_floating_point():
        return F.cross_entropy(_computed(input), _computed(target), **options)
    call, rows = input.call, input.states.shape[0]
    if target.shape != (rows,):
        raise ValueError(f"labels: there are {target.numel()} for {rows} tokens")
    if call.keeps:
        z = input.tensor()
        if call.counts:
            call.accuracy = _share(z.argmax(-1), target, ignore_index)
        return F.cross_entropy(z, target, **options)
    # cap tanh(factor z) = cap tanh(z' / cap) with z' = factor cap z; cap / cap is not always 1
    factor = input.factor * (input.cap or 1.0)
    states = input.states if math.isclose(factor, 1.0) else input.states * factor
    loss, call.accuracy = input.head(
        states, target, call.counts, softcap=input.cap, dtype=input.dtype, **options
    )
    return loss


def head_and_loss(self, input, target=None, counts=False, **options):
    """A Linear's forward; with targets, (loss, accuracy) of its result instead of the result."""
    if target is None:
        return F.linear(input, self.weight, self.bias)
    target = target.to(input.device)
    loss = kw.linear_cross_entropy(input, self.weight, target, linear_bias=self.bias, **options)
    if not counts:
        return loss, None
    return loss, _share(_largest(input, self.weight, self.bias), target, options["ignore_index"])


@torch.no_grad()
def _largest(states, weight, bias):
    """The class of each token's largest logit, computed for some tokens at a time."""
    rows = max(1, ARGMAX_WORKSPACE // (weight.shape[0] * states.itemsize))
    return torch.cat([F.linear(some, weight, bias).argmax(-1) for some in states.split(rows)])


def _share(predicted, target, ignore_index):
    counts = target != ignore_index
    return ((predicted == target) & counts).sum() / counts.sum()
