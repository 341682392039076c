"""Along which dimensions an operator's tensors may be split: over processes, or into samples of
different lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .signature import TensorSpec

#: Marks a result of which each process holds a partial sum.
SUM = "sum"

#: For each tensor, argument or result: the split dimension, counted from the front; None if the
#: tensor is not split; or SUM.
Split = dict[str, int | str | None]


@dataclass(frozen=True)
class Rows:
    """The rule of operators whose rows do not depend on each other; dimensions are counted from
    the back.

    If dimension d is split, dimension d of every tensor that has it is split. A tensor without
    dimension d, or with size 1 there, is whole on every process; if it is a result, each process
    holds a partial sum of it.

    Attributes:
        reduced: returns the dimensions that may not be split, from the arguments by name.
        main: the argument whose shape is split; by default the arguments' broadcast shape.
        dims: for tensors whose dimensions are shifted against the others', by name: the number of
            places that they are further back; -1 for a class index, which has no class dimension.
        whole: tensors that are whole on every process, whatever their shape.
        summed: results that are sums over the split dimension, whatever their shape.
    """

    reduced: Callable[[Mapping[str, Any]], tuple[int, ...]] = lambda args: ()
    main: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    summed: tuple[str, ...] = ()

    def __call__(
        self, args: Mapping[str, Any], results: Mapping[str, TensorSpec]
    ) -> Iterator[Split]:
        """Every way to split one dimension.

        Args:
            args: the operator's arguments by name, tensors as specs.
            results: specs of its results.
        """
        given = {k: v for k, v in args.items() if isinstance(v, TensorSpec)}
        shape = given[self.main].shape if self.main else self._broadcast(given)
        reduced = self.reduced(args)
        for d in range(-len(shape), 0):
            if d not in reduced and shape[d] != 1:
                split: Split = {k: self._own(k, t, d) for k, t in given.items()}
                for k, t in results.items():
                    own = None if k in self.summed else self._own(k, t, d)
                    part = own is None and k not in self.whole and t.numel() > 0
                    split[k] = SUM if part else own
                yield split

    def allows(self, args: Mapping[str, Any], dims: tuple[int, ...]) -> bool:
        """Whether these dimensions may be split."""
        return not set(dims) & set(self.reduced(args))

    def _own(self, name: str, t: TensorSpec, d: int) -> int | None:
        own = d - self.dims.get(name, 0)
        there = name not in self.whole and -t.ndim <= own < 0 and t.shape[own] != 1
        return t.ndim + own if there else None

    def _broadcast(self, given: Mapping[str, TensorSpec]) -> tuple[int, ...]:
        tensors = [t for k, t in given.items() if k not in self.whole and k not in self.dims]
        ndim = max(t.ndim for t in tensors)
        return tuple(
            max((t.shape[d] for t in tensors if t.ndim >= -d), default=1) for d in range(-ndim, 0)
        )


def last_dimension(args: Mapping[str, Any]) -> tuple[int, ...]:
    """`Rows.reduced` where rows are the last dimension."""
    return (-1,)
