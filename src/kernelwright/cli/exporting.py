"""A command that writes models and operators in other runtimes' formats."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelwright.support.errors import GOOD, WRONG, ToolchainError, UsageError

from . import names
from .options import Json, printing, waiting

if TYPE_CHECKING:
    from kernelwright.integrations.export.subjects import Subject

DTYPES = ("float32", "float16", "bfloat16")


def export(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|OP",
            help="A preset (gpt2-tiny, llama-124m, ...), the folder of a Hugging Face checkpoint, "
            "or an operator.",
        ),
    ],
    onnx: Annotated[Path | None, typer.Option(help="Write this ONNX file.")] = None,
    aoti: Annotated[
        Path | None, typer.Option(help="Write this AOTInductor package (.pt2).")
    ] = None,
    with_kernels: Annotated[
        bool,
        typer.Option(
            "--with-kernels",
            help="Keep Triton rungs as kernels of the AOTInductor package; needs a GPU.",
        ),
    ] = False,
    opset: Annotated[
        int | None,
        typer.Option(
            help="Opset of the ONNX file, 18 or newer (default: 23, the first with "
            "Attention and RMSNormalization)."
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help=f"Of a model's weights: {', '.join(DTYPES)} (default: float32, or the "
            "checkpoint's)."
        ),
    ] = None,
    case: Annotated[
        str | None, typer.Option(help="Id of an operator's case, whose arguments are used.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Device of the AOTInductor package: cuda or cpu (default: cuda if there is a GPU)."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(help="Compare the file's results with the model's, at several sizes."),
    ] = True,
    as_json: Json = False,
) -> int:
    """Write a model or an operator as an ONNX file or an AOTInductor package.

    Every operator of Kernelwright becomes PyTorch's, and so a standard operator of the format: no
    custom operators are needed to run the file. With --with-kernels a package keeps the Triton
    rungs whose plan serves all sizes. A model's batch and length stay dynamic. The
    results are compared with the model's, those of an ONNX file by ONNX Runtime on the CPU; the
    exit code is 1 if they leave the error budget.

    \b
    Examples:
      kernelwright export gpt2-tiny --onnx gpt2.onnx
      kernelwright export path/to/checkpoint --onnx model.onnx --dtype float16
      kernelwright export rms_norm --onnx norm.onnx --opset 20
      kernelwright export llama-tiny --aoti llama.pt2 --with-kernels
    """
    if (onnx is None) == (aoti is None):
        raise UsageError("give either --onnx FILE or --aoti FILE")
    if with_kernels and aoti is None:
        raise UsageError("--with-kernels: an ONNX file holds no kernels; use --aoti")
    if aoti is not None and aoti.suffix != ".pt2":
        raise UsageError(f"--aoti: {aoti} must end in .pt2, as PyTorch's loader requires")
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"--dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    with printing(as_json) as out:
        with waiting("exporting", out):
            target = _subject(subject, dtype, case, _device(onnx, device))
            if onnx is not None:
                result = _onnx(target, onnx, opset, check)
            else:
                assert aoti is not None
                result = _aoti(target, aoti, with_kernels, check)
        if as_json:
            out.emit(result)
        else:
            for line in _lines(result):
                out.print(line, markup=False, soft_wrap=True)
    return GOOD if all(c["ok"] for c in result["checks"]) else WRONG


def _device(onnx: Path | None, asked: str | None) -> str:
    if onnx is not None:
        if asked not in (None, "cpu"):
            raise UsageError("--device: an ONNX file belongs to no device; omit it")
        return "cpu"
    import torch

    if asked not in (None, "cpu", "cuda"):
        raise UsageError(f"--device: {asked!r} is not cuda or cpu")
    if asked == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device: there is no GPU")
    return asked or ("cuda" if torch.cuda.is_available() else "cpu")


def _subject(name: str, dtype: str | None, case: str | None, device: str) -> Subject:
    import torch

    from kernelwright.integrations.export import subjects

    if name not in names.rungs():
        if case is not None:
            raise UsageError(f"--case: {name} is not an operator")
        return subjects.of_model(name, dtype=getattr(torch, dtype) if dtype else None,
                                 device=device)  # fmt: skip
    if dtype is not None:
        raise UsageError("--dtype: an operator has the dtype of its case; use --case")
    from kernelwright.workbench import listing

    (ladder, *_) = listing.named([name])
    return subjects.of_operator(ladder, listing.case_named(ladder, case) if case else None, device)


def _onnx(subject: Subject, path: Path, opset: int | None, check: bool) -> dict[str, Any]:
    from kernelwright.integrations import export as exports

    program = exports.trace(subject.module, subject.args, subject.sizes, results=subject.results)
    file = exports.write_onnx(program, path, opset=opset or exports.ONNX_OPSET)
    checks = exports.check_onnx(path, program) if check else []
    return {
        "subject": subject.what, "file": str(path), "bytes": file.bytes, "opset": file.opset,
        "inputs": file.inputs, "outputs": file.outputs, "operators": file.operators,
        "checks": [_check(c) for c in checks], "by": "ONNX Runtime",
    }  # fmt: skip


def _aoti(subject: Subject, path: Path, with_kernels: bool, check: bool) -> dict[str, Any]:
    from kernelwright.integrations import export as exports

    on_gpu = subject.args[0].is_cuda
    # on a CPU our models call PyTorch's functions directly, unless a rung is chosen
    with contextlib.nullcontext() if on_gpu or not with_kernels else exports.calling_operators():
        program = exports.trace(
            subject.module,
            subject.args,
            subject.sizes,
            results=subject.results,
            onnx=False,
            with_kernels=with_kernels,
        )
    kept = Counter((k.operator, k.rung, k.why) for k in program.kept)
    calls = [{"operator": o, "rung": r, "why": w, "calls": n} for (o, r, w), n in kept.items()]
    if with_kernels and not on_gpu:
        raise ToolchainError(
            "--with-kernels: a package with Triton kernels can only be compiled on a GPU. One for "
            f"an H200 would have these calls:\n{chr(10).join(map(_call, calls))}"
        )
    exports.write_aoti(program, path)
    checks = exports.check_aoti(path, program) if check else []
    return {
        "subject": subject.what, "file": str(path), "bytes": path.stat().st_size, "calls": calls,
        "checks": [_check(c) for c in checks], "by": "the package",
    }  # fmt: skip


def _call(call: dict[str, Any]) -> str:
    how = f"Triton rung {call['rung']}" if call["rung"] else f"decomposed: {call['why']}"
    return f"  {call['calls']} x {call['operator']}: {how}"


def _check(c: Any) -> dict[str, Any]:
    return {"sizes": c.sizes, "ok": c.ok, "error": c.error, "why": c.accuracy.why}


def _lines(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['subject']}: {result['file']}, {result['bytes'] / 1e6:.1f} MB"]
    if "opset" in result:
        shapes = (f"{n} {list(s)}".replace("'", "") for n, s in result["inputs"].items())
        counts = ", ".join(f"{n} {name}" for name, n in result["operators"].items())
        lines += [f"  inputs: {', '.join(shapes)}", f"  opset {result['opset']}: {counts}"]
    lines += map(_call, result.get("calls", ()))
    for c in result["checks"]:
        sizes = ", ".join(f"{n} {s}" for n, s in c["sizes"].items()) or "fixed sizes"
        said = "within the error budget" if c["ok"] else f"WRONG: {c['why']}"
        lines.append(f"  {sizes}: {result['by']} differs by {c['error']:.1e}: {said}")
    if not result["checks"]:
        lines.append("  not checked")
    return lines
