"""How many kernels that synchronize get loops over the threads of a block, and why others do not.

    python -m benchmarks.loops_share FOLDER... --most 80

Each folder is a checkout of a repository, of which at most that many programs are drawn.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from pathlib import Path

from kernelwright.emulator.program import sources
from kernelwright.emulator.program.loops import ProgramIndex, with_loops

_NAMES = re.compile(
    r"\b(?!(?:it|a|an|the|operations)\b)\w+(?= (?:uses|has|returns|is called)\b)|(?<=it calls )\w+"
)


def reasons(program: Path) -> dict[tuple[str, str], str | None]:
    """Of the kernels of a program's files: why they get no loops, or None."""
    files = sources.own_files(program)
    facts = ProgramIndex(tuple(files.values()))
    reason_of: dict[tuple[str, str], str | None] = {}
    for path, text in files.items():
        why: dict[str, str | None] = {}
        with_loops(text, facts, why)
        reason_of |= {
            (f"{path.name} {len(text)}", kernel): reason for kernel, reason in why.items()
        }
    return reason_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--most", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    reason_of: dict[tuple[str, str], str | None] = {}
    count = 0
    for folder in given.folders:
        programs = [p.resolve() for p in sorted(folder.rglob("*.cu"))
                    if re.search(r"\bmain\s*\(", p.read_text(errors="replace"))]  # fmt: skip
        for p in rng.sample(programs, min(given.most, len(programs))):
            reason_of |= reasons(p)
            count += 1
    kinds = Counter(_NAMES.sub("F", reason) for reason in reason_of.values() if reason)
    share = sum(r is None for r in reason_of.values())
    print(f"{share} of {len(reason_of)} kernels that synchronize get loops, in {count} programs")
    for kind, n in kinds.most_common():
        print(f"{n:4d}  {kind}")


if __name__ == "__main__":
    main()
