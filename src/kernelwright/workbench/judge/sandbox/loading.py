"""In the kernel's process: loads the user's file and function, and describes exceptions."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelwright.support.errors import ToolchainError

from .. import sizes
from ..formats import settled
from ..on_cpu import on_cpu

LANGUAGES = ("triton", "numba", "cupy")


class NoFunction(Exception):
    """The file does not have the requested function."""


def imported() -> set[str]:
    return {n for n in LANGUAGES if n in sys.modules}


def named_in(path: Path) -> set[str]:
    """The languages that a Python file imports itself."""
    text = path.read_text("utf-8", "replace") if path.suffix == ".py" else ""
    names = re.findall(r"^\s*(?:import|from)\s+(\w+)", text, re.M)
    return imported() & set(names)


def function_in(module: Any, path: str, name: str) -> Callable[..., Any]:
    value = module
    for part in name.split("."):
        if not hasattr(value, part):
            there = [k for k, v in vars(module).items() if callable(v) and k[:1] != "_"]
            raise NoFunction(f"{Path(path).name} has no {name!r}; it has {', '.join(there)}")
        value = getattr(value, part)
    if not callable(value):
        raise NoFunction(f"{name} in {Path(path).name} is a {type(value).__name__}, not a function")
    return value


def module_of(path: str, name: str) -> Any:
    """A file as a module; its folder is on sys.path, as for a script. A file of a package is
    imported as a part of the package, so that its relative imports work."""
    folder, parts = _in_package(path)
    sys.path.insert(0, str(folder))
    if len(parts) > 1:
        return importlib.import_module(".".join(parts))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _in_package(path: str) -> tuple[Path, list[str]]:
    """The folder from which a file is imported, and the names of its packages and its own."""
    folder, parts = Path(path).resolve().parent, [Path(path).stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, parts


class Imports:
    """The folders and modules of this process before it imports a user's file."""

    def __init__(self):
        self.folders = list(sys.path)
        self.names = {name.partition(".")[0] for name in sys.modules}
        self.aside: dict[Path, dict[str, Any]] = {}

    def change(self, path: str) -> None:
        """Put aside the modules of other folders, before a file is imported that may have others
        of the same names next to it. Those of its own folder return: a file that registers
        operators can be imported only once."""
        folders = Counter(sys.path) - Counter(self.folders)
        sys.path[:] = self.folders
        for folder in {Path(f).resolve() for f in folders}:
            tops = {name.partition(".")[0] for name in sys.modules} - self.names
            its = {name for name in tops if _folder_of(sys.modules.get(name)) == folder}
            names = [name for name in sys.modules if name.partition(".")[0] in its]
            self.aside.setdefault(folder, {}).update((n, sys.modules.pop(n)) for n in names)
        sys.modules.update(self.aside.pop(_in_package(path)[0], {}))
        importlib.invalidate_caches()


def _folder_of(module: Any) -> Path | None:
    """The folder from which a module, or the folder of a package, was imported."""
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return Path(places[0]).resolve().parent if places[0] else None


def parameters_of(fn: Callable) -> list[dict[str, Any]] | None:
    """The parameters of a function's signature; None if Python cannot determine it."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return None
    return [{"name": p.name, "kind": p.kind.name, "default": p.default is not p.empty}
            for p in parameters]  # fmt: skip


def differentiated(fn: Callable, arguments: list[str], gradients: int) -> Callable:
    """A function that computes the gradients of `fn` in the named arguments; its last `gradients`
    arguments are the gradients of the results."""

    def call(*listed, **named):
        given = list(listed)
        gys = given[len(given) - gradients :]
        given = given[: len(given) - gradients]
        leaves = []
        for i, v in enumerate(given):
            if arguments[i] and v is not None and v.is_floating_point():
                given[i] = v.detach().requires_grad_()
                leaves.append(given[i])
        with torch.enable_grad():
            out = as_tuple(fn(*given, **named))
        return torch.autograd.grad(out[: len(gys)], leaves, gys)

    return call


def host_function(path: Path, name: str, device: torch.device) -> Callable:
    """A host function of a .cu that launches its kernels itself, compiled by nvcc.

    Raises:
        ToolchainError: this machine has no GPU.
    """
    if device.type == "cpu":
        raise ToolchainError(f"{path.name}: {name} is host code, which needs nvcc and a GPU")
    from torch.utils import cpp_extension

    text = path.read_text("utf-8")
    if "PYBIND11_MODULE" in text:
        module = cpp_extension.load(name=f"judged_{path.stem}", sources=[str(path)])
    else:
        module = cpp_extension.load_inline(
            name=f"judged_{path.stem}",
            cpp_sources=declaration_of(text, name),
            cuda_sources=text,
            functions=[name],
        )
    return function_in(module, str(path), name)


def declaration_of(text: str, name: str) -> str:
    """The declaration of a host function that a source defines."""
    match = re.search(
        rf"^[ \t]*([\w:<>, &*]+[\s&*]{re.escape(name)}\s*\([^)]*\))\s*\{{", text, re.M
    )
    if match is None:
        raise NoFunction(f"no function {name!r} is defined in the file")
    return f"#include <torch/extension.h>\n{match[1]};\n"


def solution(solver: Callable, device: torch.device, how: dict[str, Any]) -> Callable:
    """The solution to a problem of another collection, as a function of the operator's arguments.

    Args:
        how: {"model": the problem's file}: `found` is a model class, which gets the weights of the
            problem's model; {"data": "tuple" or "single"}: `found` takes all arguments as one.
            "buffers" are the positions of the tensors that receive results.
    """
    buffers = how.get("buffers", ())
    if "model" in how:
        problem = module_of(how["model"], "judged_problem")
        for module in (problem, sys.modules.get(getattr(solver, "__module__", ""))):
            sizes.apply(module, how.get("constants", {}))
        init = getattr(problem, "get_init_inputs", list)
        with on_cpu(device.type):
            torch.manual_seed(0)
            call = solver(*init()).to(device)
    else:
        call = solver

    def solve(*args: Any) -> Any:
        with torch.no_grad(), on_cpu(device.type):
            given = args if "model" in how else (args if how["data"] == "tuple" else args[0],)
            out = call(*given)
            return settled(out, list(args), buffers)

    return solve


class OnGpu:
    """Calls a function without a GPU. If the function rejects tensors that are not on a GPU, it is
    called again, and further calls are made, with tensors that seem to be on one.

    Args:
        path: the function's file; None if there is a GPU.
    """

    def __init__(self, path: Path | None):
        text = path.read_text("utf-8", "replace") if path else ""
        self.asks = bool(re.search(r"is_cuda|get_device|\.device\b", text))
        self.pretend = False

    def __call__(self, call: Callable[[], Any], tensors: list[torch.Tensor]) -> Any:
        if self.pretend:
            with on_cpu("cpu", pretend=True):
                return call()
        versions = [t._version for t in tensors]
        try:
            return call()
        except Exception:
            if not self.asks or versions != [t._version for t in tensors]:
                raise
            with on_cpu("cpu", pretend=True) as mode:
                try:
                    out = call()
                except Exception:
                    if mode and mode.asked:
                        raise
                else:
                    self.pretend = True
                    return out
            raise


def exception_told(e: BaseException) -> dict[str, Any]:
    """An exception as data, with the lines of the user's files in its traceback."""
    here = str(Path(__file__).resolve().parent)
    frames = traceback.extract_tb(e.__traceback__)
    mine = [f for f in frames if "judged_" in f.name or _users(f.filename, here)]
    lines = [f"{f.filename}:{f.lineno}: {f.line}" for f in mine[-4:]]
    if isinstance(e, SyntaxError) and e.filename:
        lines.append(f"{e.filename}:{e.lineno}: {(e.text or '').strip()}")
    kind = "NoFunction" if isinstance(e, NoFunction) else type(e).__name__
    return {"type": kind, "message": str(e)[:4000], "lines": lines}


def _users(filename: str, here: str) -> bool:
    library = (here, os.path.dirname(os.__file__), "<frozen")
    return not filename.startswith(library) and "site-packages" not in filename


def as_tuple(out: Any) -> tuple[Any, ...]:
    if out is None:
        return ()
    return tuple(out) if isinstance(out, (list, tuple)) else (out,)
