"""A model as an exported program of PyTorch's own operators, with named dynamic dimensions."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import UserError
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from kernelwright import toolchain
from kernelwright.support.errors import ToolchainError, UsageError
from kernelwright.toolchain import modes

from . import decompositions

#: A size that differs between calls: its name, its name with its largest value, or None for a size
#: that is dynamic, and named by PyTorch, if the model allows it.
Size = str | tuple[str, int] | None
#: For each input, the sizes of some of its dimensions.
Sizes = Sequence[Mapping[int, Size]]


@dataclass(frozen=True)
class Program:
    """An exported model.

    Attributes:
        module: the model.
        args: the inputs that it was traced with.
        sizes: their dynamic dimensions, by input.
        exported: the program with our operators, as they were called.
        decomposed: the program without them.
        kept: what became of each call of our operators, if Triton rungs were to be kept.
        inputs, results: their names; results are named by PyTorch if there are no names.
    """

    module: nn.Module
    args: tuple[torch.Tensor, ...]
    sizes: Sizes
    exported: ExportedProgram
    decomposed: ExportedProgram
    inputs: tuple[str, ...]
    results: tuple[str, ...] = ()
    kept: tuple[Any, ...] = ()

    def dimensions(self) -> dict[str, int]:
        """The dynamic dimensions by name, with the sizes that the program was traced with."""
        return {
            _name(size): arg.shape[dim]
            for arg, by_dim in zip(self.args, self.sizes, strict=True)
            for dim, size in by_dim.items()
        }

    def most(self) -> dict[str, int | None]:
        """The largest size of each dynamic dimension; None if there is no limit."""
        return {
            _name(size): size[1] if isinstance(size, tuple) else None
            for by_dim in self.sizes
            for size in by_dim.values()
        }

    def inputs_of(self, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        """Inputs of other sizes, made of the elements of those that the program was traced with."""
        return tuple(
            _resized(arg, {dim: sizes[_name(size)] for dim, size in by_dim.items()})
            for arg, by_dim in zip(self.args, self.sizes, strict=True)
        )

    def calls(self) -> list[str]:
        """The names of our operators that the model called, in order."""
        prefix = f"{decompositions.NAMESPACE}."
        targets = (str(n.target) for n in self.exported.graph.nodes if n.op == "call_function")
        return [t.removeprefix(prefix).split(".")[0] for t in targets if t.startswith(prefix)]


def trace(
    module: nn.Module,
    args: Sequence[torch.Tensor],
    sizes: Sizes = (),
    *,
    results: Sequence[str] = (),
    onnx: bool = True,
    with_kernels: bool = False,
) -> Program:
    """Export a model for inference.

    Args:
        module: in eval mode; its forward takes tensors and returns a tensor or a tuple of tensors.
        args: inputs by position. Sizes of 0 and 1 may be treated differently from others: use at
            least 2 in dynamic dimensions.
        sizes: which dimensions are dynamic, `({0: "batch", 1: ("length", 1024)},)`: one mapping
            from dimensions to names for each input. Dimensions of one name have one size.
        results: names of the results.
        onnx: refuse operators that ONNX cannot express.
        with_kernels: keep Triton rungs, where one plan serves all sizes; for a package on a GPU.

    Raises:
        UsageError: the model calls an operator that cannot be exported, or decides by the value of
            a dynamic size.
    """
    args = tuple(args)
    sizes = tuple(sizes) or tuple({} for _ in args)
    if len(sizes) != len(args):
        raise UsageError(f"sizes: has {len(sizes)} entries, must have one for each input")
    what = type(module).__name__
    if module.training:
        raise UsageError(f"module: {what} is in training mode; call eval() first")
    named = {_name(s): _symbol(s) for by_dim in sizes for s in by_dim.values() if s is not None}
    dynamic = tuple(
        {d: Dim.AUTO if s is None else named[_name(s)] for d, s in by_dim.items()}
        for by_dim in sizes
    )
    with torch.no_grad(), _warnings_off():
        try:
            exported = torch.export.export(module, args, dynamic_shapes=dynamic, strict=False)
            targets = [n.target for n in exported.graph.nodes if n.op == "call_function"]
            decompositions.refuse(targets, of=what, onnx=onnx)
            kept: list[Any] = []
            decomposed = exported.run_decompositions(_table(with_kernels, kept))
        except (UserError, DataDependentOutputException, GuardOnDataDependentSymNode) as e:
            first = str(e).strip().splitlines()[0]
            raise UsageError(f"module: torch.export cannot trace {what}: {first}") from e
    names = tuple(n for n, _ in zip(exported.graph_signature.user_inputs, args, strict=True))
    resolved = _resolved(sizes, decomposed)
    return Program(module, args, resolved, exported, decomposed, names, tuple(results), tuple(kept))


def _table(with_kernels: bool, kept: list[Any]) -> dict[Any, Any]:
    if not with_kernels:
        return decompositions.table()
    try:
        toolchain.prepare("triton")
    except ToolchainError:  # without a GPU, after PyTorch has imported it: nothing is run here
        modes.compile_only()
    from . import kernels

    return kernels.table(kept)


def _resolved(sizes: Sizes, exported: ExportedProgram) -> Sizes:
    """The sizes with PyTorch's names in place of None, without those that the model fixes.

    Raises:
        UsageError: it fixes a size that has a name. The formula of an operator may do so, which
            torch.export does not report.
    """
    inputs = {n.name: n.meta["val"] for n in exported.graph.nodes if n.op == "placeholder"}
    resolved: list[dict[int, Size]] = []
    for name, by_dim in zip(exported.graph_signature.user_inputs, sizes, strict=True):
        shape = [n if isinstance(n, int) else n.node.expr for n in inputs[name].shape]
        for dim, size in by_dim.items():
            if size is not None and not getattr(shape[dim], "free_symbols", None):
                raise UsageError(f"sizes: the model fixes {_name(size)} to {shape[dim]}")
        dynamic = {d: s for d, s in by_dim.items() if getattr(shape[d], "free_symbols", None)}
        resolved.append({d: str(shape[d]) if s is None else s for d, s in dynamic.items()})
    return resolved


@contextmanager
def _warnings_off() -> Generator[None]:
    """Without warnings about deprecated functions that torch.export itself calls, and about sizes
    that it fixes."""
    logger = logging.getLogger("torch._export")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(before)


def _name(size: Size) -> str:
    assert size is not None
    return size if isinstance(size, str) else size[0]


def _symbol(size: Size) -> Any:
    return Dim(size[0], max=size[1]) if isinstance(size, tuple) else Dim(str(size))


def _resized(t: torch.Tensor, sizes: Mapping[int, int]) -> torch.Tensor:
    for dim, size in sizes.items():
        t = t.index_select(dim, torch.arange(size, device=t.device) % t.shape[dim])
    return t
