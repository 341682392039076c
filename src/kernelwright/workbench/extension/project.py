"""`kernelwright extension`: writes a project around a rung's unmodified .cu file that needs only
PyTorch: binding, fake, gradient, test, and five ways to build it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import torch

from kernelwright.contract import H200, Case, CudaKernel, Ladder, Operator, Rung, TensorSpec
from kernelwright.dispatch import UnknownOperator, ladder, unsupported
from kernelwright.dispatch.launcher import entry_of
from kernelwright.dispatch.selection import config_of, specs_of
from kernelwright.machine import gpu_of, here
from kernelwright.support import durable, includes
from kernelwright.support.settings import PACKAGE

from . import host, standalone
from .host import CannotExtend, Served

STYLES = ("inline", "load", "setuptools", "cmake", "nvrtc")
TEMPLATES = Path(__file__).with_name("templates")
HOME = "https://github.com/kernelwright/kernelwright"
#: Elements of the largest case whose integer arguments are made to find their largest value.
DRAWN = 1 << 26


def write(
    owner: Ladder, rung: Rung, style: str, into: Path, cases: Sequence[Case] = ()
) -> list[Path]:
    """Write the project into a new folder; returns the paths that were written.

    Args:
        style: one of STYLES: how the project is built when it is imported.
        cases: the calls that it supports; by default the smallest bench case of each dtype.

    Raises:
        CannotExtend: a feature of the rung is not supported, or the folder cannot be used.
    """
    if rung.backend != "cuda":
        raise CannotExtend(f"{owner.name}.{rung.name}: is a {rung.backend} rung, not CUDA C++")
    if not into.name.isidentifier():
        raise CannotExtend(f"-o: {into.name!r} must be a Python name, because it is imported")
    if into.exists() and any(into.iterdir()):
        raise CannotExtend(f"-o: {into} exists already and is not empty")
    served = [_served(owner, rung, c) for c in cases or _usual(owner, rung)]
    op = owner.operator
    kernels = dict.fromkeys(_kernel(step) for s in served for step in s.plan.launches)
    if len(kernels) > 1:
        raise CannotExtend(
            f"{owner.name}.{rung.name}: its kernels are in {len(kernels)} files, "
            "of which only one can be exported"
        )
    (source,) = kernels
    native = standalone.source_of(entry_of(owner, owner.rung("native")), "native")
    sources = includes.files(source)
    folders = [_place(f, Path("kernels")) for f in includes.folders(source)]
    kernel = _place(source, Path("kernels"))
    known: dict[str, str] = {
        "op": op.torch_name,
        "rung": f"{rung.backend} rung {rung.name}",
        "title": f"{owner.name}.{rung.name}",
        "style": style,
        "home": HOME,
        "folder": into.name,
        "kernel": kernel.as_posix(),
        "includes": ", ".join(f'str(HERE / "{f}")' for f in folders),
        "relative": ", ".join(f'"{f}"' for f in folders),
        "cmake_includes": " ".join(["${CMAKE_CURRENT_SOURCE_DIR}", *map(str, folders)]),
        "cases": "\n".join(_case(owner, s) for s in served),
        "listed": "\n".join(f"- `{s.case.id}`" for s in served),
        "plan": rung.entry,
    }
    gradient = _differentiable(owner)
    known["autograd"] = _filled("autograd.py", known) if gradient else ""
    known["gradient"] = _filled("gradient.py", known) if gradient else ""
    by_nvcc = host.launches(op, served, host.by_nvcc)
    by_driver = host.launches(op, served, host.by_driver)
    texts = {
        "__init__.py": _filled("__init__.py", known),
        "builds.py": _filled("builds.py", known),
        "setup.py": _filled("setup.py", known),
        "CMakeLists.txt": _filled("CMakeLists.txt", known),
        "reference.py": f'"""PyTorch\'s own operator."""\n\n{native}',
        "cases.py": _filled("cases.py", known),
        "run_time.py": _filled("run_time.py", known),
        f"test_{op.torch_name}.py": _filled("test.py", known),
        "README.md": _filled("README.md", known),
        "launch.h": (TEMPLATES / "launch.h.tmpl").read_text("utf-8"),
        "operator.cpp": _filled("operator.cpp", host.operator_fields(op, served)),
        "launch.cu": _filled("launch.cu", {**known, "launches": by_nvcc}),
        "launch_nvrtc.cpp": _filled("launch_nvrtc.cpp", {"launches": by_driver}),
    }
    with durable.new_folder(into) as aside:
        for file in sources:
            _copied(file, aside / "kernels")
        for name, text in texts.items():
            (aside / name).write_text(text.rstrip() + "\n", encoding="utf-8")
    return [*(_place(f, into / "kernels") for f in sources), *(into / name for name in texts)]


def _usual(owner: Ladder, rung: Rung) -> list[Case]:
    """The smallest bench case of each dtype that the rung supports."""
    smallest: dict[torch.dtype, Case] = {}
    for case in sorted(owner.operator.cases, key=lambda c: c.numel):
        if case.use == "bench" and case.dtype not in smallest and takes(owner, rung, case):
            smallest[case.dtype] = case
    if not smallest:
        raise CannotExtend(
            f"{owner.name}.{rung.name}: supports no bench case; choose another case with --case"
        )
    return list(smallest.values())


def takes(owner: Ladder, rung: Rung, case: Case) -> bool:
    """Whether a rung supports a case's arguments without copying them."""
    specs, copies = owner.operator.normalise(_specs(owner.operator, case))
    return not copies and unsupported(rung, specs, here()) is None


def _specs(op: Operator, case: Case) -> dict[str, Any]:
    return specs_of(op.with_defaults(op.inputs(case, "meta")))


def _served(owner: Ladder, rung: Rung, case: Case) -> Served:
    op, title = owner.operator, f"{owner.name}.{rung.name}"
    args = _specs(op, case)
    specs, copies = op.normalise(args)
    if copies:
        raise CannotExtend(f"--case {case.id}: {', '.join(copies)} would be copied before the call")
    why = unsupported(rung, specs, here())
    if why:
        raise CannotExtend(f"--case {case.id}: {title} does not support it: {why}")
    gpu = gpu_of(here()) or H200
    plan = entry_of(owner, rung)(gpu, config_of(owner, rung, gpu, specs), **specs)
    if why := host.refusal(op, plan):
        raise CannotExtend(f"{title}: {why}, for which no host code can be written")
    return Served(case, args, op.outputs(**args), plan)


def _kernel(step) -> Path:
    assert isinstance(step.kernel, CudaKernel), step.kernel
    return step.kernel.source


def _copied(source: Path, into: Path) -> None:
    path = _place(source, into)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source.read_bytes())


def _place(of: Path, into: Path) -> Path:
    """The path in the project of a file or folder of the package: the same relative path."""
    return into / of.resolve().relative_to(PACKAGE)


def _differentiable(owner: Ladder) -> bool:
    """Whether a ladder is a forward that has a ladder for its backward."""
    try:
        return bool(ladder(f"{owner.name}.backward"))
    except UnknownOperator:
        return False


def _case(owner: Ladder, served: Served) -> str:
    """A line of cases.py."""
    drawn: dict[str, Any] = {}
    if any(isinstance(v, TensorSpec) and not v.dtype.is_floating_point
           for v in served.args.values()):  # fmt: skip
        if served.case.numel > DRAWN:
            raise CannotExtend(f"--case {served.case.id}: it has too many integers to examine")
        drawn = owner.operator.inputs(served.case, "cpu")
    given = ", ".join(_given(n, v, drawn) for n, v in served.args.items())
    return f'    Case("{served.case.id}", [{given}]),'


def _given(name: str, value: Any, drawn: dict[str, Any]) -> str:
    if not isinstance(value, TensorSpec):
        return repr(value)
    high = ""
    if not value.dtype.is_floating_point:
        high = f", {int(drawn[name].max()) + 1}"
    return f"Random({value.shape!r}, {value.strides!r}, {value.dtype}{high})"


def _filled(name: str, known: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{name}.tmpl").read_text("utf-8")).substitute(known)
