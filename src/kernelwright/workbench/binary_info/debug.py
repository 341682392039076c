"""Runs a rung in a debugger: pdb for Python (Triton in its interpreter, Numba in its simulator,
PyTorch), gdb for CUDA C++ in the emulator. Each stops at the kernel's first line.
"""

from __future__ import annotations

import ast
import bdb
import inspect
import os
import pdb
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from kernelwright import emulator
from kernelwright.contract import Case, CudaKernel, Ladder, NumbaKernel, Plan, Rung, TritonKernel
from kernelwright.dispatch import device_of, entry_of, plan_of, specs_of, unsupported
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import availability
from kernelwright.workbench.listing import rung_named
from kernelwright.workbench.sanitize import tool_runner
from kernelwright.workbench.verify.coverage import handful, thorough_cases

GDB_COMMANDS = Path(emulator.__file__).with_name("gdb_commands.py")
INSIDE = "import kernelwright.workbench.binary_info.debug as d; d.inside({!r}, {!r})"
FIRST_THREAD = (0, 0, 0)


def small_case(ladder: Ladder, rung: Rung) -> Case:
    """The smallest ordinary case that a rung supports."""
    cases = handful(ladder, "numba") if rung.backend == "numba" else thorough_cases(ladder)
    taken = [c for c in cases if _reason(ladder, rung, c) is None]
    if not taken:
        raise ValueError(f"rung: {ladder.name}.{rung.name} supports no small case")
    return min(taken, key=lambda c: (c.numel <= 32, c.numel))


def session(ladder: Ladder, rung: Rung, case: Case, arguments: tuple[str, ...] = ()) -> None:
    """Debug a rung on a case. Does not return for CUDA C++: gdb replaces this process.

    Args:
        arguments: further arguments for gdb, placed first ("-batch").

    Raises:
        ToolchainError: gdb or a C++ compiler is missing. ValueError: the rung does not support the
            case here.
    """
    reason = _reason(ladder, rung, case)
    if reason:
        raise ValueError(f"case: {ladder.name}.{rung.name} on {case.id}: {reason}")
    if rung.backend == "cuda":
        command = gdb_command(ladder, rung, case, arguments)
        sys.stdout.flush()
        os.execvp(command[0], command)
    _python(ladder, rung, case)


def _reason(ladder: Ladder, rung: Rung, case: Case) -> str | None:
    missing = availability.missing(rung.backend, "cpu")
    if missing:
        return missing
    args = _args(ladder, case)
    specs, _ = ladder.operator.normalise(specs_of(args))
    return unsupported(rung, specs, device_of(args))


def _plan(ladder: Ladder, rung: Rung, specs: dict[str, Any]) -> Plan:
    return plan_of(ladder, rung, specs, device=torch.device("cpu"), config=rung.configs[0])


def _plan_on(ladder: Ladder, rung: Rung, case: Case) -> Plan:
    return _plan(ladder, rung, ladder.operator.normalise(specs_of(_args(ladder, case)))[0])


def _args(ladder: Ladder, case: Case) -> dict[str, Any]:
    inputs = ladder.operator.inputs(case, "cpu")
    return ladder.operator.with_defaults(inputs)


# ---- CUDA C++


def gdb_command(
    ladder: Ladder, rung: Rung, case: Case, arguments: tuple[str, ...] = ()
) -> list[str]:
    """gdb on a second process that runs the rung in the emulator's debug build."""
    if not shutil.which("gdb"):
        raise ToolchainError("debugging a CUDA C++ rung needs gdb, which is not installed")
    kernels = [s.kernel for s in _plan_on(ladder, rung, case).launches]
    names = {re.split("[<(]", k.name)[0] for k in kernels if isinstance(k, CudaKernel)}
    setup = [
        "set breakpoint pending on",
        "set confirm off",
        "set print thread-events off",
        "set print inferior-events off",
        "set debuginfod enabled off",
        f"source {GDB_COMMANDS}",
        *(f"kw-kernel {name}" for name in sorted(names)),
        "run",
    ]
    inner = [sys.executable, "-c", INSIDE.format(f"{ladder.name}.{rung.name}", case.id)]
    quiet = ("-q", "-iex", "set auto-load python-scripts off")
    return ["gdb", *quiet, *arguments, *(w for s in setup for w in ("-ex", s)), "--args", *inner]


def inside(name: str, case: str) -> None:
    """Runs in the process that gdb debugs."""
    ladder, rung = rung_named(name)
    with emulator.mode("debug", emulator.Schedule(workers=1, patience=0)):
        tool_runner.run(ladder, rung, rung.configs[0], ladder.operator.case(case), "cpu")


# ---- Python


def _python(ladder: Ladder, rung: Rung, case: Case) -> None:
    codes = _codes(ladder, rung, case)

    def run() -> None:
        if rung.is_gpu:
            tool_runner.run(ladder, rung, rung.configs[0], case, "cpu")
        else:
            # "compiled" is also debugged as written, not as compiled
            entry_of(ladder, rung)(*_args(ladder, case).values())

    try:
        _stepping(rung, codes, run)
    except Exception as e:
        if not _quit(e):
            raise


def _stepping(rung: Rung, codes: list[CodeType], run: Callable[[], None]) -> None:
    if rung.backend == "numba":
        _in_first_thread(codes, run)
        return
    debugger = pdb.Pdb(nosigint=True)
    for code in codes:
        wrong = debugger.set_break(code.co_filename, _first_line(code))
        assert not wrong, wrong
    debugger.rcLines = ["continue"]  # to the first breakpoint
    debugger.runcall(run)


def _quit(e: BaseException | None) -> bool:
    """Whether an error is pdb's "quit", or an interpreter's exception caused by it."""
    return e is not None and (isinstance(e, bdb.BdbQuit) or _quit(e.__cause__ or e.__context__))


def _codes(ladder: Ladder, rung: Rung, case: Case) -> list[CodeType]:
    """The functions to stop in: kernels, or the rung's function."""
    if rung.backend not in ("triton", "numba"):
        return [_unwrapped(entry_of(ladder, rung)).__code__]
    codes: dict[CodeType, None] = {}
    for step in _plan_on(ladder, rung, case).launches:
        assert isinstance(step.kernel, (TritonKernel, NumbaKernel))
        codes[_unwrapped(step.kernel.fn).__code__] = None
    return list(codes)


def _unwrapped(fn: Any) -> Callable[..., Any]:
    while hasattr(fn, "fn"):
        fn = fn.fn
    return inspect.unwrap(fn)


def _first_line(code: CodeType) -> int:
    """The line of the first statement: decorators, arguments and the docstring come before it."""
    lines, start = inspect.getsourcelines(code)
    function = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(function, ast.FunctionDef)
    body = function.body
    documented = ast.get_docstring(function) is not None and len(body) > 1
    return start + body[documented].lineno - 1


def _in_first_thread(codes: list[CodeType], run: Callable[[], None]) -> None:
    """Stop only in the first thread of the first block: the simulator runs a block's threads as OS
    threads, and pdb can use the terminal from only one of them."""
    done: set[CodeType] = set()

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        me = threading.current_thread()
        first = all(
            tuple(getattr(me, name, (1,))) == FIRST_THREAD for name in ("threadIdx", "blockIdx")
        )
        if event == "call" and first and frame.f_code in codes and frame.f_code not in done:
            done.add(frame.f_code)
            debugger = pdb.Pdb(nosigint=True)
            debugger.reset()
            debugger.set_step()
            return debugger.trace_dispatch(frame, event, argument)
        return None

    threading.settrace(look)
    try:
        run()
    finally:
        threading.settrace(None)  # pyright: ignore[reportArgumentType]
