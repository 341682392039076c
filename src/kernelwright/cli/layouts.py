"""The layout calculator's command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.support.errors import GOOD, UsageError

from .options import Json, Wide, printing

SHOWN = 32  # rows and columns on a terminal


def layout(
    expression: Annotated[
        str | None,
        typer.Argument(
            help="A layout, or a tile of a rung (default: list these tiles).", show_default=False
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Write a picture.")
    ] = None,
    as_json: Json = False,
    wide: Wide = False,
) -> int:
    """Compute with layouts: shape:stride, composition, division, product, complement, swizzles.

    The first mode is the row. docs: "Layouts as algebra" explains the operations.

    \b
    Examples:
      kernelwright layout "(8,8):(8,1)"
      kernelwright layout "Sw<3,0,3> o (8,8):(8,1)" --picture swizzle.svg
      kernelwright layout "(16,16):(16,1) / [(4,8):(16,1)]"
      kernelwright layout matmul.cuda_mma
    """
    from kernelwright.workbench.layouts import algebra
    from kernelwright.workbench.layouts import expression as language
    from kernelwright.workbench.layouts.picture import picture as drawn
    from kernelwright.workbench.layouts.tiles import TILES

    with printing(as_json, wide) as out:
        if expression is None:
            if picture is not None:
                raise UsageError("--picture: name a layout")
            if as_json:
                out.emit({name: tile.text for name, tile in TILES.items()})
            else:
                for name, tile in TILES.items():
                    out.print(f"{name:28}{tile.text:34}{tile.what}", markup=False)
            return GOOD
        tile = TILES.get(expression)
        of = language.parse(tile.text if tile else expression)
        table = algebra.offsets(of)
        if picture is not None:
            try:
                picture.write_text(drawn(of), encoding="utf-8")
            except OSError as e:
                raise UsageError(f"--picture: {picture}: {e.strerror}") from None
        if as_json:
            out.emit({"layout": str(of), "size": algebra.size(of), "offsets": table})
            return GOOD
        out.print(f"{of}   size {algebra.size(of)}", markup=False)
        if tile:
            out.print(f"{tile.what}: {tile.source}", markup=False)
        cell = len(str(max(map(max, table)))) + 1
        for row in table[:SHOWN]:
            out.print("".join(f"{x:>{cell}}" for x in row[:SHOWN]), markup=False)
        if len(table) > SHOWN or len(table[0]) > SHOWN:
            out.print(f"of {len(table)} rows and {len(table[0])} columns", markup=False)
    return GOOD
