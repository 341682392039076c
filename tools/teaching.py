"""Determines the teaching rungs of every ladder, which `kernelwright list` marks.

python -m tools.teaching            # write src/kernelwright/data/teaching.json
python -m tools.teaching --check    # exit 1 if it differs
"""

from __future__ import annotations

import json
import sys

import kernelwright.ops.every  # noqa: F401
from kernelwright.dispatch import ladders
from kernelwright.workbench.listing import OPERATORS, TEACHING, teaching


def text() -> str:
    """The contents of the file: {operator: names of rungs}."""
    own = (lad for lad in ladders() if lad.package.startswith(OPERATORS))
    rungs = {lad.name: names for lad in own if (names := teaching(lad))}
    return json.dumps(rungs, indent=1, sort_keys=True) + "\n"


def main() -> None:
    present = text()
    if "--check" not in sys.argv[1:]:
        TEACHING.write_text(present, encoding="utf-8")
    elif TEACHING.read_text(encoding="utf-8") != present:
        sys.exit(f"{TEACHING.name} differs from what is dispatched: python -m tools.teaching")


if __name__ == "__main__":
    main()
