"""Writes the table of constructs in docs/run.md from the programs that test them.

python -m tools.construct_table            # write it
python -m tools.construct_table --check    # fail if it is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "run.md"
PROGRAMS = ROOT / "tests" / "fixtures" / "programs"
PARTS = {
    "Host side": "host_side.cu",
    "Device side": "device_side.cu",
    "Inline PTX": "inline_ptx.cu",
    "Libraries": "libraries.cu",
    "cub": "cub_side.cu",
    "Older toolkits, driver API, thrust": "older.cu",
    "API of several toolkits, more of the libraries": "api.cu",
    "Modules of the driver API, NVRTC": "modules.cu",
    "Programs that measure": "measured.cu",
}
_MARKED = re.compile(r"(<!-- constructs -->\n).*?(<!-- /constructs -->)", re.S)


def table() -> str:
    """A row for each construct that a program tests."""
    rows = ["| construct | tested in |", "| --- | --- |"]
    for part, name in PARTS.items():
        rows.append(f"| **{part}** | |")
        text = (PROGRAMS / name).read_text()
        link = f"[{name}](../tests/fixtures/programs/{name})"
        rows += [f"| {_cell(c)} | {link} |" for c in re.findall(r'CHECK\(\s*"([^"]*)"', text)]
    return "\n".join(rows) + "\n"


def _cell(construct: str) -> str:
    return construct.replace("<", "&lt;").replace(">", "&gt;").replace("__", "\\_\\_")


def page(text: str) -> str:
    """The page with the present table."""
    return _MARKED.sub(lambda m: m[1] + table() + m[2], text)


def main() -> None:
    old = PAGE.read_text()
    new = page(old)
    if "--check" in sys.argv:
        sys.exit(0 if new == old else "docs/run.md: run python -m tools.construct_table")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
