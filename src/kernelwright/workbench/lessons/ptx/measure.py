"""Compiles the same softmax by Triton, NVRTC and torch.compile for an H200, and finds its lines of
PTX and SASS."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import torch

import kernelwright.ops.reduce.softmax  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.dispatch import ladder
from kernelwright.toolchain import nvrtc
from kernelwright.workbench import inspection
from kernelwright.workbench.inspection import Inspection
from kernelwright.workbench.lessons import recorded
from kernelwright.workbench.lessons.tables import (
    COMPILED,
    HERE,
    Cell,
    Measured,
    Picture,
    Table,
)
from kernelwright.workbench.report import strips

from . import torch_compile

OPERATOR, CASE = "softmax", "4096x768-f32-dim=-1"
RUNGS = {"Triton": "triton_row", "CUDA C++": "cuda_warp"}
CELLS = 64
WIDE = 96  # characters of a line shown in a table
#: What to look for in PTX: name, pattern.
LINES = {
    "index of the block": r"%ctaid\.x",
    "vector load": r"ld\.global\.\S*v4",
    "exchange between lanes": r"shfl\.sync",
    "exchange between warps": r"st\.shared",
    "barrier of the block": r"bar(?:rier)?\.sync",
    "exponential": r"ex2\.approx",
    "vector store": r"st\.global\.\S*v4",
}
#: Instructions of the machine code by what they do.
SASS = {
    "loads": r"LDG",
    "shuffles": r"SHFL",
    "shared memory": r"STS|LDS",
    "barriers": r"BAR",
    "exponentials": r"MUFU\.EX2",
    "stores": r"STG",
}
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*[^;]*);")


def measure() -> Measured:
    inspections = {name: _compiled(rung) for name, rung in RUNGS.items()}
    inspections["torch.compile"] = torch_compile.compiled()
    code = {name: _INSTRUCTION.findall(inspected.sass) for name, inspected in inspections.items()}
    versions = f"Triton {version('triton')}, NVRTC {'.'.join(map(str, nvrtc.version()))}"
    tables = (
        Table(
            "launch",
            f"softmax on {CASE}, compiled by {versions}",
            ("kernel", "threads per block", "rows per block", "registers", "instructions"),
            tuple((n, *_launch(inspected, len(code[n]))) for n, inspected in inspections.items()),
            COMPILED,
        ),
        Table(
            "triton",
            "Lines of Triton's PTX by purpose: how many, and the first",
            ("purpose", "lines", "the first"),
            tuple((what, *_line(inspections["Triton"], p)) for what, p in LINES.items()),
            COMPILED,
        ),
        Table(
            "cuda",
            "Lines of the PTX of CUDA C++ by purpose: how many, and the first",
            ("purpose", "lines", "the first"),
            tuple((what, *_line(inspections["CUDA C++"], p)) for what, p in LINES.items()),
            COMPILED,
        ),
        Table(
            "torch_compile",
            "Lines of the PTX of torch.compile's kernel by purpose: how many, and the first",
            ("purpose", "lines", "the first"),
            tuple((what, *_line(inspections["torch.compile"], p)) for what, p in LINES.items()),
            COMPILED,
        ),
        Table(
            "sass",
            "Instructions of the machine code",
            ("kind", *inspections),
            tuple((kind, *(_count(code[n], p) for n in inspections)) for kind, p in SASS.items()),
            COMPILED,
        ),
        recorded.times(
            "records", "softmax of 4096 rows", OPERATOR,
            ("compiled", "triton_row", "cuda_warp"), CASE,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (
                ("wide", _widest(inspections["CUDA C++"])),
                ("barriers", _count(code["CUDA C++"], SASS["barriers"])),
            ),
            COMPILED,
        ),
    )  # fmt: skip
    return Measured(tables, _picture(code), versions)


def here(device: torch.device) -> tuple[Table, ...]:
    """The code that torch.compile generates for this GPU."""
    if device.type != "cuda":
        return ()
    from torch._inductor.utils import run_and_get_code

    def softmax(t: torch.Tensor) -> torch.Tensor:
        return torch.softmax(t, dim=-1)

    x = torch.randn(4096, 768, device=device)
    run: Callable[..., tuple[torch.Tensor, list[str]]] = partial(
        run_and_get_code, torch.compile(softmax)
    )
    _, sources = run(x)
    return (inductors(sources),)


def inductors(sources: list[str]) -> Table:
    """The constructs in Inductor's code."""
    text = "\n".join(sources)
    wanted = {"kernels": "@triton.jit", "loads": "tl.load(", "stores": "tl.store("}
    rows = tuple((name, text.count(part)) for name, part in wanted.items())
    return Table("inductor", "Triton code that torch.compile writes", ("what", "count"), rows, HERE)


def _compiled(rung: str) -> Inspection:
    lad = ladder(OPERATOR)
    (inspected,) = inspection.inspect(lad, rung, lad.operator.case(CASE))
    return inspected


def _launch(inspected: Inspection, instructions: int) -> tuple[Cell, ...]:
    rows = 4096 // inspected.grid[0]
    return inspected.threads, rows, inspected.resources["registers"], instructions


def _line(inspected: Inspection, pattern: str) -> tuple[Cell, ...]:
    lines = [x.split("//")[0] for x in inspected.ptx.splitlines()]
    hits = [" ".join(x.split()) for x in lines if re.search(pattern, x)]
    return len(hits), f"`{hits[0][:WIDE]}`" if hits else "none"


def _count(code: list[str], pattern: str) -> int:
    return sum(bool(re.match(pattern, x)) for x in code)


def _widest(inspected: Inspection) -> int:
    """The bytes of the widest load."""
    return max(inspected.instructions["global_loads"]) // 8


def _picture(code: dict[str, list[str]]) -> Picture:
    drawn: list[strips.Strip] = []
    for name, instructions in code.items():
        each = -(-len(instructions) // CELLS)
        for kind, pattern in SASS.items():
            hits = [bool(re.match(pattern, x)) for x in instructions]
            cells = [sum(hits[i : i + each]) / each for i in range(0, CELLS * each, each)]
            if not any(hits):
                cells = [0.0] * CELLS
            colour = "store" if kind == "stores" else "load"
            words = f"{sum(hits)} instruction{'s' * (sum(hits) != 1)}"
            drawn.append(strips.Strip(f"{name}: {kind}", cells, words, colour))
    return Picture(
        "Where the instructions of a softmax are, in its machine code for an H200",
        (
            "From left to right: the code from its first instruction to its last, in 64 parts. A "
            "cell is filled by the share of the part's",
            "instructions that are of this kind; the others compute. Loads come first, then two "
            "reductions by shuffles, the exponentials between them.",
        ),
        tuple(drawn),
    )
