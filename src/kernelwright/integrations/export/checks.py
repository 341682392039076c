"""Is an exported file right? Its results against those of the model, within the error budget."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright.contract.compare import Accuracy, compare
from kernelwright.support.errors import ToolchainError
from kernelwright.support.extras import need

from .program import Program

Run = Callable[..., Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Check:
    """The results of a file for inputs of some sizes.

    Attributes:
        sizes: the dynamic dimensions, by name.
        error: the largest difference from the model's results.
        accuracy: of the first result outside the error budget, or of the last.
    """

    sizes: dict[str, int]
    error: float
    accuracy: Accuracy

    @property
    def ok(self) -> bool:
        return self.accuracy.ok


def check_onnx(path: Path, program: Program) -> list[Check]:
    """Compare a file, run by ONNX Runtime on the CPU, with the model at several sizes.

    The error budget is that of rungs: twice the error that the model itself makes against float64,
    plus 2 ulp. Where an element's terms cancel, the unit is the model's largest error.

    Raises:
        UsageError: onnxruntime is not installed.
        ToolchainError: ONNX Runtime cannot load or run the file.
    """
    runtime = need("onnxruntime", "export", "checking ONNX files")
    failed = _errors_of(runtime)
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except failed as e:
        raise ToolchainError(f"ONNX Runtime cannot load {path}: {e}") from e
    names = [i.name for i in session.get_inputs()]

    def run(*args: torch.Tensor) -> list[torch.Tensor]:
        given = {n: _numpy(t) for n, t in zip(names, args, strict=True)}
        try:
            return [torch.from_numpy(y) for y in session.run(None, given)]
        except failed as e:
            raise ToolchainError(f"ONNX Runtime cannot run {path}: {e}") from e

    return list(_checks(run, program))


def check_aoti(path: Path, program: Program) -> list[Check]:
    """Like `check_onnx`, of an AOTInductor package on the device that it was compiled for."""
    loaded: Any = torch._inductor.aoti_load_package(str(path))
    return list(_checks(lambda *args: _tuple(loaded(*args)), program))


def sizes_of(program: Program) -> list[dict[str, int]]:
    """The sizes of the checks: those of the trace, all 1, larger ones, and the largest batch of
    length 1 and length of batch 1 that this leaves."""
    traced, most = program.dimensions(), program.most()
    if not traced:
        return [{}]
    larger = {n: min(2 * s + 1, most[n] or 2 * s + 1) for n, s in traced.items()}
    sizes = [traced, dict.fromkeys(traced, 1), larger]
    sizes += [{n: larger[n] if n == one else 1 for n in traced} for one in traced]
    return [s for i, s in enumerate(sizes) if s not in sizes[:i]]


def _checks(run: Run, program: Program) -> Generator[Check]:
    wide = copy.deepcopy(program.module).double()
    for sizes in sizes_of(program):
        args = program.inputs_of(sizes)
        with torch.no_grad():
            try:
                native = _tuple(program.module(*args))
            except (IndexError, RuntimeError, ValueError):
                if sizes == program.dimensions():
                    raise
                continue  # the model itself rejects these sizes: an index is out of range
            reference = _tuple(wide(*(t.double() if t.is_floating_point() else t for t in args)))
        yield _check(sizes, run(*args), native, reference)


def _check(
    sizes: dict[str, int],
    out: Sequence[torch.Tensor],
    native: Sequence[torch.Tensor],
    reference: Sequence[torch.Tensor],
) -> Check:
    worst, accuracy = 0.0, Accuracy(False, f"{len(out)} results, should be {len(native)}")
    if len(out) != len(native):
        return Check(sizes, float("nan"), accuracy)
    for y, own, exact in zip(out, native, reference, strict=True):
        accuracy = compare(y, own, exact, noise=_noise(own, exact))
        if y.shape == own.shape and y.numel():
            worst = max(worst, (y.double() - own.double()).abs().max().item())
        if not accuracy.ok:
            break
    return Check(sizes, worst, accuracy)


def _noise(native: torch.Tensor, reference: torch.Tensor) -> torch.Tensor | None:
    """The largest error of the model's finite results, for every element."""
    if not native.is_floating_point() or not native.numel():
        return None
    error = (native.double() - reference).abs().nan_to_num(0.0, 0.0, 0.0)
    return torch.full_like(reference, error.max().item())


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def _numpy(t: torch.Tensor) -> Any:
    if t.dtype == torch.bfloat16:
        raise ToolchainError("ONNX Runtime takes no bfloat16 inputs from NumPy: not checked")
    return t.detach().cpu().numpy()


def _errors_of(runtime: Any) -> tuple[type[Exception], ...]:
    """The classes of ONNX Runtime's errors, which have no common base of their own."""
    state = runtime.capi.onnxruntime_pybind11_state
    kinds = (getattr(state, n, None) for n in ("Fail", "InvalidArgument", "InvalidGraph",
             "NotImplemented", "RuntimeException", "InvalidProtobuf", "NoSuchFile"))  # fmt: skip
    return tuple(k for k in kinds if k is not None)
