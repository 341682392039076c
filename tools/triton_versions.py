"""Which Triton rungs compile to the same machine code under two versions of Triton.

    PYTHONPATH=... python -m tools.triton_versions --write FILE     # under each version
    python -m tools.triton_versions FILE OTHER                      # records/triton.json

GPU records are made with one version of Triton, and users may have others. If a rung's kernels
compile to the same machine code under both versions, the records are valid for both; otherwise the
times may differ. Each rung is compiled for an H200 with each config, on a case of each dtype. The
ptxas that comes with Triton is part of the version.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import H200, Case, Ladder, Rung
from kernelwright.dispatch import ladders
from kernelwright.toolchain import modes
from kernelwright.workbench import inspection
from kernelwright.workbench.records import records
from kernelwright.workbench.verify.coverage import thorough_cases

FILE = "triton.json"


def compiled() -> dict[str, dict[str, str]]:
    """By rung, by config and case: a digest of the machine code of its launches."""
    modes.compile_only()
    digests: dict[str, dict[str, str]] = {}
    for lad in ladders():
        for rung in (r for r in lad.rungs if r.backend == "triton"):
            name = f"{lad.name}.{rung.name}"
            digests[name] = {
                f"{config} {case.id}": _digest(
                    inspection.inspect(lad, rung.name, case, H200.arch, config)
                )
                for config in rung.configs
                for case in _cases(lad, rung)
            }
            print(name, len(digests[name]), file=sys.stderr, flush=True)
    return digests


def _cases(lad: Ladder, rung: Rung) -> Iterator[Case]:
    """The first case of each dtype that the rung takes."""
    seen = set()
    for case in thorough_cases(lad):
        specs = inspection.specs_of(lad, case)
        if case.dtype not in seen and not (rung.supports and rung.supports(H200, **specs)):
            seen.add(case.dtype)
            yield case


def _digest(launches: list[inspection.Inspection]) -> str:
    text = "".join(x.sass for x in launches)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compare(one: dict, other: dict) -> dict[str, object]:
    """What `records/triton.json` keeps: the versions, and the rungs that are the same and not."""
    names = sorted(one["rungs"])
    same = [n for n in names if one["rungs"][n] == other["rungs"][n]]
    return {
        "arch": H200.arch,
        "versions": [one["triton"], other["triton"]],
        "same": same,
        "other": [n for n in names if n not in same],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.triton_versions")
    parser.add_argument("--write", type=Path, metavar="FILE", help="what this Triton compiles")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="two such files")
    words = parser.parse_args()
    if words.write:
        version = importlib.metadata.version("triton")
        words.write.write_text(json.dumps({"triton": version, "rungs": compiled()}))
        return
    one, other = (json.loads(path.read_text()) for path in words.files)
    comparison = compare(one, other)
    (records.ROOT / FILE).write_text(json.dumps(comparison, indent=1) + "\n")
    print(f"{len(comparison['same'])} of {len(one['rungs'])} rungs are the same machine code")


if __name__ == "__main__":
    main()
