"""Writes exported programs as ONNX files and AOTInductor packages. A file gets its name only after
all of it is written."""

from __future__ import annotations

import importlib
import logging
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from kernelwright.support import durable
from kernelwright.support.errors import CompileError, UsageError
from kernelwright.support.extras import need

from .program import Program

#: The first opset with Attention, RMSNormalization and RotaryEmbedding.
ONNX_OPSET = 23
OLDEST_OPSET = 18  # the oldest that PyTorch's exporter writes
ONE_FILE = 1 << 30  # bytes; the weights of larger models are in a second file, FILE.data


@dataclass(frozen=True)
class Onnx:
    """A written ONNX file.

    Attributes:
        operators: how often it has each operator, the most frequent first.
        inputs, outputs: their names and shapes; a dynamic dimension is its name.
        bytes: its size, with that of its second file.
    """

    path: Path
    opset: int
    operators: dict[str, int]
    inputs: dict[str, tuple[int | str, ...]]
    outputs: dict[str, tuple[int | str, ...]]
    bytes: int


def write_onnx(program: Program, path: Path, *, opset: int = ONNX_OPSET) -> Onnx:
    """Write a program as an ONNX file of standard operators.

    Args:
        path: if the weights exceed 1 GiB, they are written to `path` with ".data" appended.
        opset: 18 or newer. Before 23, norms and attentions consist of simpler operators.

    Raises:
        UsageError: packages are missing, or an operator has no translation.
        WriteError: the file cannot be written.
    """
    for module in ("onnx", "onnxscript"):
        need(module, "export", "writing ONNX files")
    if opset < OLDEST_OPSET:
        raise UsageError(f"opset: {opset} is older than {OLDEST_OPSET}")
    with torch.no_grad(), _quiet():
        try:
            exported: Any = torch.onnx.export(
                program.decomposed, (), dynamo=True, verbose=False, opset_version=opset,
                input_names=list(program.inputs),
                output_names=list(program.results) or None,
                custom_translation_table={torch.ops.aten.sort.stable: _stable_sort(opset)},
            )  # fmt: skip
        except torch.onnx.errors.OnnxExporterError as e:
            raise UsageError(f"the model has no ONNX form: {_reason(e)}") from e
    foreign = {node.domain for node in exported.model.graph} - {"", "ai.onnx"}
    assert not foreign and not exported.model.functions, foreign
    _name_dimensions(exported.model, program)
    with _written(path) as folder:
        exported.save(folder / path.name, external_data=_bytes(program) > ONE_FILE)
        size = sum(file.stat().st_size for file in folder.iterdir())
    graph = exported.model.graph
    return Onnx(
        path,
        opset,
        dict(Counter(node.op_type for node in graph).most_common()),
        {v.name: _shape(v) for v in graph.inputs},
        {v.name: _shape(v) for v in graph.outputs},
        size,
    )


def write_aoti(program: Program, path: Path) -> Path:
    """Compile a program and write it as an AOTInductor package, for the device of its inputs.

    Raises:
        UsageError: the name does not end in ".pt2".
        CompileError: Inductor or the C++ compiler failed.
        WriteError: the file cannot be written.
    """
    if path.suffix != ".pt2":
        raise UsageError(f"{path} must end in .pt2, as PyTorch's loader requires")
    with _written(path) as folder, torch.no_grad(), _quiet():
        try:
            torch._inductor.aoti_compile_and_package(
                program.decomposed, package_path=str(folder / path.name)
            )
        except Exception as e:
            raise CompileError(f"AOTInductor: {type(e).__name__}: {_reason(e)}") from e
    return path


@contextmanager
def _written(path: Path) -> Generator[Path]:
    """A temporary folder beside a file, whose files are moved to the file's folder at the end."""
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder; name a file")
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as e:
        raise durable.refused(path, e) from e
    try:
        yield folder
        # the file itself last: it names the others
        for file in sorted(folder.iterdir(), key=lambda f: f.name == path.name):
            file.replace(path.with_name(file.name))
    except OSError as e:
        raise durable.refused(path, e) from e
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _quiet() -> Generator[None]:
    """Without the exporter's progress, and its warnings about packages that it could use."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _stable_sort(opset: int) -> Any:
    """The translation of PyTorch's stable sort: TopK puts the smaller of two equal elements'
    indices first."""
    op: Any = importlib.import_module("onnxscript").values.Opset("", opset)

    def sort(self: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
        count = op.Reshape(op.Gather(op.Shape(self), op.Constant(value_int=dim)), [1])
        return op.TopK(self, count, axis=dim, largest=descending, sorted=True)

    return sort


def _name_dimensions(model: Any, program: Program) -> None:
    """Give the dynamic dimensions the names that the caller gave them."""
    names: dict[str, str] = {}
    for value, by_dim in zip(model.graph.inputs, program.sizes, strict=True):
        for dim, size in by_dim.items():
            names[str(value.shape[dim])] = size[0] if isinstance(size, tuple) else str(size)
    values = {id(v): v for n in model.graph for v in (*n.inputs, *n.outputs) if v is not None}
    for value in (*values.values(), *model.graph.inputs, *model.graph.outputs):
        if value.shape is not None:
            sizes = (s if isinstance(s, int) else names.get(str(s), str(s)) for s in value.shape)
            value.shape = type(value.shape)(sizes)


def _shape(value: Any) -> tuple[int | str, ...]:
    return tuple(s if isinstance(s, int) else str(s) for s in value.shape)


def _bytes(program: Program) -> int:
    return sum(t.nbytes for t in program.decomposed.state_dict.values())


def _reason(error: BaseException) -> str:
    """The message of the innermost error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next((x.strip() for x in str(error).splitlines() if x.strip()), type(error).__name__)
