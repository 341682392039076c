"""Carries records over from another commit if a rung's sources changed but its kernels did not.

    python -m tools.carry COMMIT
    python -m tools.carry HEAD~3 gelu.cuda_vec16

Source hashes cover definitions and headers as a whole, for example with a function that the rung's
kernels do not call. This tool plans and compiles both commits' versions of a rung for an H200, on
every case with every config; what is the same text is not compiled. If the launches and the machine
code are identical, the records and counters of the old version, which only a GPU can make again,
are kept under the new hash; their field `carried` has the old one. A rung without kernels of its
own, such as PyTorch's, is identical if the definitions that it uses are, whichever files they are
in.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.counters import Counted

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import H200, CudaKernel, Ladder, NumbaKernel, Rung, TritonKernel
from kernelwright.dispatch import ladders, proof, source_hash
from kernelwright.dispatch.selection import shipped_tables
from kernelwright.support import includes
from kernelwright.toolchain import binary
from kernelwright.workbench.compare import git_version
from kernelwright.workbench.records import records
from kernelwright.workbench.records.merge import Merged, merge
from kernelwright.workbench.records.records import Record
from tools import counters

MACHINE = "nvidia-h200"


@dataclass(frozen=True)
class Version:
    """A rung in one package: this one, or another commit's under its own import name."""

    package: str
    ladder: Ladder
    rung: Rung

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{name}")


def carry(sha: str, names: Iterable[str] = ()) -> Merged | None:
    """Bring over what may be; None where no record may.

    Args:
        sha: of the commit whose records are taken.
        names: these rungs only, "softmax.cuda_warp"; none: all that are not proven here.
    """
    wanted, same_records = set(names), list[Record]()
    counted = list[Counted]()
    tuned: list[tuple[Path, Version]] = []
    other = git_version.package(sha)
    for package in ("kernelwright", other):
        importlib.import_module(f"{package}.toolchain.modes").compile_only()
    for mine, theirs in _both(other):
        name = f"{mine.ladder.name}.{mine.rung.name}"
        if wanted and name not in wanted:
            continue
        old = _missing_here(mine, _records(theirs))
        shipped = theirs.module("workbench.records.records").ROOT
        counts = _uncounted_here(mine, counters.load(MACHINE, shipped))
        tables = _tables(mine, theirs)
        if not (old or counts or tables):
            continue
        why = differs(mine, theirs)
        many = f"{len(old)} records, {len(counts)} counters"
        print(f"{name}: {why or f'the same kernels, {many}'}", flush=True)
        if not why:
            same_records += old
            counted += counts
            tuned += ((path, mine) for path in tables)
    # all at the end: a run that is killed leaves everything as it was
    for path, mine in tuned:
        _retable(path, mine)
    if counted:
        counters.save(counted, MACHINE)
    if not same_records:
        return None
    known = theirs.module("workbench.records.records")
    runs = {
        id: known.runs(machine)[id] for machine, id in {(r.machine, r.run) for r in same_records}
    }
    with tempfile.TemporaryDirectory() as folder:
        for run, environment in runs.items():
            records.save([r for r in same_records if r.run == run], environment, Path(folder))
        return merge([Path(folder)])


def _both(package: str) -> Iterator[tuple[Version, Version]]:
    """Rungs that both have."""
    theirs = importlib.import_module(f"{package}.dispatch").ladders()
    others = {(x.name, r.name): Version(package, x, r) for x in theirs for r in x.rungs}
    for lad in ladders():
        for rung in lad.rungs:
            if (lad.name, rung.name) in others:
                yield Version("kernelwright", lad, rung), others[lad.name, rung.name]


def _missing_here(mine: Version, old: list[Record]) -> list[Record]:
    """Records as they would be of the present source, where it has none of its own."""
    present = source_hash(mine.ladder, mine.rung)
    here = {(r.machine, r.key) for r in records.load(None, mine.ladder.name) if r.hash == present}
    return [
        replace(r, hash=present, carried=r.carried or r.hash)
        for r in old
        if r.hash != present and (r.machine, r.key) not in here
    ]


def _uncounted_here(mine: Version, old: Iterable[Any]) -> list[Counted]:
    """The same of counters, as another commit has them."""
    present = source_hash(mine.ladder, mine.rung)
    name = mine.ladder.name, mine.rung.name
    here = {(c.case, c.launch) for c in counters.load(MACHINE) if c.hash == present}
    return [
        replace(c, hash=present, carried=c.carried or c.hash)
        for c in old
        if (c.operator, c.rung) == name and c.hash != present and (c.case, c.launch) not in here
    ]


def _records(of: Version) -> list[Record]:
    """What a commit ships of a rung: `ledger --check` sees that all is of its sources there."""
    shipped = of.module("workbench.records.records").load(None, of.ladder.name)
    # without empty fields: an older commit has some that are gone
    mine = (asdict(r) for r in shipped if r.rung == of.rung.name)
    return [Record(**{name: value for name, value in r.items() if value}) for r in mine]


def _tables(mine: Version, theirs: Version) -> list[Path]:
    """Tuned tables that are of the rung as it was."""
    was = theirs.module("dispatch").source_hash(theirs.ladder, theirs.rung)
    present, name = source_hash(mine.ladder, mine.rung), mine.rung.name
    if was == present:
        return []
    paths = shipped_tables(mine.ladder).glob(f"{mine.ladder.name}.sm_*.json")
    return [p for p in paths if json.loads(p.read_text()).get("sources", {}).get(name) == was]


def _retable(path: Path, mine: Version) -> None:
    """Enter the rung as it is into a tuned table."""
    table = json.loads(path.read_text())
    table["sources"][mine.rung.name] = source_hash(mine.ladder, mine.rung)
    path.write_text(json.dumps(table, indent=1) + "\n")


def differs(mine: Version, theirs: Version, cases: Iterable[str] | None = None) -> str:
    """What is not the same, or "".

    Args:
        cases: ids of those to look at; by default all.
    """
    if mine.rung.backend not in ("cuda", "triton", "numba"):
        return "" if _definitions(mine) == _definitions(theirs) else "other sources"
    if mine.rung.configs != theirs.rung.configs:
        return "other configs"
    if mine.rung.deterministic != theirs.rung.deterministic:
        return "deterministic in one"
    if {c.id for c in mine.ladder.operator.cases} != {c.id for c in theirs.ladder.operator.cases}:
        return "other cases"
    known: dict[str, bool] = {}
    for case in cases or [c.id for c in mine.ladder.operator.cases]:
        for config in mine.rung.configs:
            (told, steps), (said, their_steps) = (_planned(v, case, config) for v in (mine, theirs))
            if told != said:
                return f"other launches on {case}"
            for (key, a), (_, b) in zip(steps, their_steps, strict=True):
                if key not in known:
                    known[key] = _same_kernel((mine, a), (theirs, b))
                if not known[key]:
                    return f"other machine code on {case}: {key[:100]}"
    return "" if known else "no case launches it"


def _definitions(of: Version) -> list[tuple[str, str]]:
    """Names and code of a rung's definitions, independent of the modules that contain them."""
    packages = proof._packages(of.package, of.ladder.package)
    reached = packages.reached([proof._entry(of.ladder, of.rung)])
    same_records = (
        (name, code) for (_, name), code in reached.items() if not code.startswith("Import")
    )
    return sorted((name, code.replace(of.package, "_")) for name, code in same_records)


def _planned(of: Version, case_id: str, config: Any) -> tuple[str, list[tuple[str, Any]]]:
    """What a case launches, as text without files; and of each launch what it compiles, as text,
    and what `_machine_code` takes."""
    operator = of.ladder.operator
    inspection = of.module("workbench.inspection")
    specs = inspection.specs_of(of.ladder, operator.case(case_id))
    if not all(t.numel() for t in _tensors(specs)):
        return "empty", []
    if of.rung.supports and of.rung.supports(of.module("contract").H200, **specs):
        return "not taken", []
    plan = of.module("dispatch").entry_of(of.ladder, of.rung)(
        of.module("contract").H200, config, **specs
    )
    tensors = of.module("toolchain.build").Tensors(plan, operator, specs)
    constants = {k: t.tolist() for k, t in getattr(plan, "constants", {}).items()}
    told, launches = [repr((plan.scratch, constants))], []
    for step in plan.launches:
        name, shape = _name(step.kernel), (step.grid, step.block, step.shared)
        told.append(repr((name, shape, getattr(step, "overlaps", False), step.args)))
        # Triton compiles for the types of tensors, and for some values of numbers; Numba for dtypes
        types = [a if hasattr(a, "value") else tensors[a] for a in step.args]
        if name.startswith("numba"):
            types = [getattr(t, "dtype", None) for t in types]
        key = f"{step.kernel.source.name}: {name}" if name.startswith("cuda") else f"{name} {types}"
        launches.append((key, (step, tensors)))
    return "\n".join(told), launches


def _tensors(specs: dict[str, Any]) -> Iterator[Any]:
    for v in specs.values():
        yield from (t for t in (v if isinstance(v, list) else [v]) if hasattr(t, "numel"))


def _name(kernel: Any) -> str:
    if type(kernel).__name__ == CudaKernel.__name__:
        return f"cuda {kernel.name} {kernel.cluster}"
    if type(kernel).__name__ == NumbaKernel.__name__:
        return f"numba {kernel.fn.__name__}"
    assert type(kernel).__name__ == TritonKernel.__name__, kernel
    # a function among them is compiled with the kernel, and stands for itself by its name
    constexprs = {k: getattr(v, "__name__", v) for k, v in kernel.constexprs.items()}
    options = sorted(constexprs.items()), kernel.num_warps, kernel.num_stages
    return f"triton {kernel.fn.__name__} {options}"


#: What a process leaves in the names of variables.
SERIAL = re.compile(r"_ZN\d+(_INTERNAL_\w+?_cu_)[0-9a-f]{8}_\d+")


def _same_kernel(mine: tuple[Version, Any], theirs: tuple[Version, Any]) -> bool:
    """Whether two launches have the same machine code. Nothing is compiled if both compilers read
    the same text, in whichever files."""
    texts = [_read_by_compiler(*side) for side in (mine, theirs)]
    if texts[0] and texts[0] == texts[1]:
        return True
    return _machine_code(*mine) == _machine_code(*theirs)


def _read_by_compiler(of: Version, launch: tuple[Any, Any]) -> list[str]:
    """The compiler's options and the text of a CUDA C++ kernel; nothing for other kernels."""
    source = getattr(launch[0].kernel, "source", None)
    shared = proof._folder(of.package) / "include"
    options = proof._shared(of.package, "cuda")
    return [*options, includes.inlined(source, shared)] if source else []


def _machine_code(of: Version, launch: tuple[Any, Any]) -> tuple[str, Any]:
    """Machine code without the kernel's name: Numba's has its module and a serial number."""
    compiled = of.module("toolchain.build").compile(*launch, H200.arch)
    code = binary.sass(compiled).replace(compiled.name, "kernel")
    return SERIAL.sub(r"\1", code), binary.resources(compiled)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.carry", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("commit", help="whose records are taken")
    parser.add_argument("rungs", nargs="*", metavar="OP.RUNG", help="none: all that changed")
    words = parser.parse_args(arguments)
    done = carry(git_version.resolve(words.commit), words.rungs)
    print(json.dumps(asdict(done)) if done else "no record may be carried over")
    return 0


if __name__ == "__main__":
    sys.exit(main())
