"""Runs kernels of one, two and three dimensions and reads the positions of their threads."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import TensorSpec, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.emulator.dissect import Access
from kernelwright.emulator.trace import Traced
from kernelwright.workbench.lessons import launching
from kernelwright.workbench.lessons.launching import Call
from kernelwright.workbench.lessons.tables import EMULATOR, Measured, Picture, Table
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("where.cu")
ROWS, COLUMNS = 64, 64
LARGE = 8192
BLOCKS = ((32, 4), (16, 8), (8, 16), (4, 32))
N, BLOCK = 1000, 256
VOLUME, CUBE = (4, 4, 8), (8, 4, 2)  # depth, rows, columns; a block's x, y, z
THREADS = ((0, 0, 0), (7, 0, 0), (0, 1, 0), (7, 3, 0), (0, 0, 1), (7, 3, 1))
ASKED_THREAD = (5, 2, 1)


def measure() -> Measured:
    rows = {n: _row(n) for n in (N, 1025)}
    shapes = {b: _matrix("matrix", b, ROWS, COLUMNS) for b in BLOCKS}
    swapped = _matrix("swapped", (32, 4), ROWS, COLUMNS)
    strided = _grid_stride(2)
    launches = launching.counted([*rows.values(), *shapes.values(), swapped, strided])
    seen = launching.traced([*shapes.values(), swapped])

    def store(call: Call) -> Access:
        (access,) = launches[call.name].accesses
        return access

    def covered(n: int) -> tuple[int, int, int, int]:
        launch = launches[rows[n].name]
        threads = launch.grid[0] * BLOCK
        return launch.grid[0], threads, store(rows[n]).lanes, threads - store(rows[n]).lanes

    def shape(name: str, call: Call) -> tuple[str, int, float]:
        first = seen[call.name].requests[0]
        rows = {offset // (4 * COLUMNS) for offset in first.offsets.values()}
        return name, len(rows), store(call).sectors / store(call).requests

    matrices = [*((f"matrix, {x} x {y}", shapes[x, y]) for x, y in BLOCKS)]
    tables = (
        Table(
            "row",
            f"{N:,} elements in blocks of {BLOCK} threads",
            ("elements", "blocks", "threads", "threads that store", "threads without an element"),
            ((f"{N}", *covered(N)),),
            EMULATOR,
        ),
        Table(
            "volume",
            f"Threads of the first block of {' x '.join(map(str, CUBE))} threads (x, y, z)",
            ("thread", "number in the block", "warp", "lane"),
            tuple(_where(THREADS)),
            EMULATOR,
        ),
        Table(
            "shapes",
            f"A store to each element of {ROWS} x {COLUMNS} floats, in blocks of x x y threads",
            ("kernel and block", "rows of the matrix under a warp", "sectors per request"),
            tuple(shape(name, call) for name, call in (*matrices, ("swapped, 32 x 4", swapped))),
            EMULATOR,
        ),
        Table(
            "stride",
            f"The grid-stride loop with 2 blocks of {BLOCK} threads on {N:,} elements",
            ("threads", "elements", "store requests"),
            (("512", store(strided).lanes, store(strided).requests),),
            EMULATOR,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (("idle", covered(1025)[3]), ("lane", next(_where((ASKED_THREAD,)))[3])),
            EMULATOR,
        ),
    )
    return Measured(
        tables, _picture([seen[c.name] for c in (shapes[32, 4], shapes[8, 16], swapped)])
    )


def here(device: torch.device) -> tuple[Table, ...]:
    if device.type != "cuda":
        return ()
    calls = [_matrix("matrix", b, LARGE, LARGE) for b in BLOCKS]
    calls.append(_matrix("swapped", (32, 4), LARGE, LARGE))
    return (launching.times("times", f"A store to {LARGE} x {LARGE} floats", calls, device),)


def _row(n: int) -> Call:
    return _one(f"row of {n}", "row", n, cdiv(n, BLOCK))


def _grid_stride(blocks: int) -> Call:
    return _one("grid_stride", "grid_stride", N, blocks)


def _one(name: str, kernel: str, n: int, blocks: int) -> Call:
    return Call(
        name, SOURCE, kernel, (blocks, 1, 1), (BLOCK, 1, 1), ("element", i32(n)),
        _nothing(), {"element": TensorSpec.contiguous((n,), torch.int32)},
        {"element": torch.arange(n, dtype=torch.int32)}, bytes=4 * n,
    )  # fmt: skip


def _matrix(kernel: str, block: tuple[int, int], rows: int, columns: int) -> Call:
    along, down = (columns, rows) if kernel == "matrix" else (rows, columns)
    right = torch.arange(rows)[:, None] + torch.arange(columns)[None, :]
    return Call(
        f"{kernel}, {block[0]} x {block[1]}", SOURCE, kernel,
        (cdiv(along, block[0]), cdiv(down, block[1]), 1), (*block, 1),
        ("y", i32(rows), i32(columns)), _nothing(),
        {"y": TensorSpec.contiguous((rows, columns), torch.float32)}, {"y": right.float()},
        bytes=4 * rows * columns,
    )  # fmt: skip


def _nothing() -> dict[str, torch.Tensor]:
    """A dummy input: a call needs at least one tensor, which determines its device."""
    return {"unused": torch.zeros(1)}


def _where(threads: tuple[tuple[int, int, int], ...]):
    """(thread, number, warp, lane) as the kernel computes them, for threads of the first block."""
    depth, rows, columns = VOLUME
    x, y, z = CUBE
    spec = TensorSpec.contiguous(VOLUME, torch.int32)
    call = Call(
        "volume", SOURCE, "volume", (columns // x, rows // y, depth // z), CUBE,
        ("number", "warp", "lane", i32(rows), i32(columns)), _nothing(),
        {"number": spec, "warp": spec, "lane": spec},
    )  # fmt: skip
    out = launching.results(call)
    for tx, ty, tz in threads:
        figures = (int(out[n][tz, ty, tx]) for n in ("number", "warp", "lane"))
        yield (f"({tx}, {ty}, {tz})", *figures)


def _picture(launches: list[Traced]) -> Picture:
    drawn: list[strips.Strip] = []
    for launch in launches:
        first = launch.requests[0]
        elements = {o // 4 for o in first.offsets.values()}
        touched = sorted({e // COLUMNS for e in elements})
        for r in touched[:4]:
            cells = [float(r * COLUMNS + c in elements) for c in range(COLUMNS)]
            more = f", and {len(touched) - 4} more rows" if r == 3 and len(touched) > 4 else ""
            x, y, _ = launch.block
            drawn.append(strips.Strip(f"{launch.kernel}, {x} x {y}", cells, f"row {r}{more}"))
    return Picture(
        "The elements that the first warp of the first block stores",
        (
            f"A line is a row of the matrix of {ROWS} x {COLUMNS} elements, a cell one element. "
            "x x y is the shape of the block.",
        ),
        tuple(drawn),
    )
