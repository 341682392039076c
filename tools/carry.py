"""Carries records over from another commit if a rung's sources changed but its kernels did not.

    python -m tools.carry COMMIT
    python -m tools.carry HEAD~3 gelu.cuda_vec16

Adding a function to a header changes the source hash of every rung that includes it, so all of them
lose their proof. This tool plans and compiles both commits' versions of a rung for an H200, on
every case with every config. If the launches and the code are identical, the records and counters
of the old version are kept under the new hash; their field `carried` has the old one. The PTX is
compared first; if it differs, for example in register numbers, the machine code that ptxas
generates from it is compared. A rung without kernels of its own, such as PyTorch's, is identical if
the definitions that it uses are, whichever files they are in.
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
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.binary_info.dissect import Dissection
from kernelwright.workbench.compare import git_version
from kernelwright.workbench.records import records
from kernelwright.workbench.records.merge import Merged, merge
from kernelwright.workbench.records.records import Record
from tools import counters, renames

MACHINE = "nvidia-h200"


@dataclass(frozen=True)
class Version:
    """A rung in one package: this one, or another commit's under its own import name."""

    package: str
    ladder: Ladder
    rung: Rung

    def module(self, name: str) -> ModuleType:
        """A module by its present name."""
        package = importlib.import_module(self.package)
        if (Path(package.__path__[0]) / f"{name.replace('.', '/')}.py").is_file():
            return importlib.import_module(f"{self.package}.{name}")
        return importlib.import_module(f"{self.package}.{renames.MODULES.get(name, name)}")


def carry(sha: str, names: Iterable[str] = ()) -> Merged | None:
    """Bring over what may be; None where no record may.

    Args:
        sha: of the commit whose records are taken.
        names: these rungs only, "softmax.cuda_warp"; none: all that are not proven here.
    """
    wanted, found = set(names), list[Record]()
    counted, dissected = list[Counted](), list[Dissection]()
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
        costs = _undissected_here(mine)
        tables = _tables(mine, theirs)
        if not (old or counts or costs or tables):
            continue
        why = differs(mine, theirs)
        many = f"{len(old)} records, {len(counts)} counters"
        print(f"{name}: {why or f'the same kernels, {many}'}", flush=True)
        if not why:
            found += old
            counted += counts
            dissected += costs
            tuned += ((path, mine) for path in tables)
    # all at the end: a run that is killed leaves everything as it was
    for path, mine in tuned:
        _retable(path, mine)
    if counted:
        counters.save(counted, MACHINE)
    if dissected:
        dissect.save(dissected)
    if not found:
        return None
    known = theirs.module("workbench.records.records")
    runs = {id: known.runs(machine)[id] for machine, id in {(r.machine, r.run) for r in found}}
    with tempfile.TemporaryDirectory() as folder:
        for run, environment in runs.items():
            records.save([r for r in found if r.run == run], environment, Path(folder))
        return merge([Path(folder)])


def _both(package: str) -> Iterator[tuple[Version, Version]]:
    """Rungs that both have."""
    known = importlib.import_module(f"{package}.dispatch").ladders()
    others = {renames.present(x.name): x for x in known}
    for lad in ladders():
        other = others.get(lad.name)
        if other is None:
            continue
        old = {renames.present(f"{other.name}.{r.name}").rpartition(".")[2]: r for r in other.rungs}
        for rung in lad.rungs:
            if rung.name in old:
                yield Version("kernelwright", lad, rung), Version(package, other, old[rung.name])


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


def _undissected_here(mine: Version) -> list[Dissection]:
    """What the emulator found of the rung as it was: the same sources cost the same."""
    present = source_hash(mine.ladder, mine.rung)
    name = mine.ladder.name, mine.rung.name
    known = [d for d in dissect.load() if (d.operator, d.rung) == name]
    return [replace(d, hash=present) for d in known if d.hash != present]


def _records(of: Version) -> list[Record]:
    """What a commit ships of a rung: `ledger --check` sees that all is of its sources there."""
    shipped = of.module("workbench.records.records").load(None, of.ladder.name)
    return [_renamed(asdict(r)) for r in shipped if r.rung == of.rung.name]


def _renamed(record: dict[str, Any]) -> Record:
    operator, rung = record["operator"], record["rung"]
    now = renames.present(f"{operator}.{rung}").rpartition(".")[2]
    return Record(**{**record, "operator": renames.present(operator), "rung": now})


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
                    # one kernel of the rung shows that both versions call the compiler alike
                    alike = known and _text(mine, a) == _text(theirs, b)
                    known[key] = bool(alike) or _same_code(mine, a, theirs, b)
                if not known[key]:
                    return f"other machine code on {case}: {key[:100]}"
    return "" if known else "no case launches it"


def _definitions(of: Version) -> list[tuple[str, str]]:
    """Names and code of a rung's definitions, independent of the modules that contain them."""
    packages = proof._packages(of.package, of.ladder.package)
    reached = packages.reached([proof._entry(of.ladder, of.rung)])
    found = ((name, code) for (_, name), code in reached.items() if not code.startswith("Import"))
    return sorted((name, _as_before(code).replace(of.package, "_")) for name, code in found)


def _as_before(code: str) -> str:
    """Code, an `ast.dump`, with the modules that it uses under their former names."""
    for name, was in renames.IN_CODE.items():
        code = code.replace(f"id='{name}'", f"id='{was}'")
    return code


def _planned(of: Version, case_id: str, config: Any) -> tuple[str, list[tuple[str, Any]]]:
    """What a case launches, as text without paths; and of each launch what it compiles, as text,
    and what `_compiled` takes."""
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
        key = name if name.startswith("cuda") else f"{name} {types}"
        launches.append((key, (step, tensors)))
    return "\n".join(told), launches


def _tensors(specs: dict[str, Any]) -> Iterator[Any]:
    for v in specs.values():
        yield from (t for t in (v if isinstance(v, list) else [v]) if hasattr(t, "numel"))


def _name(kernel: Any) -> str:
    if type(kernel).__name__ == CudaKernel.__name__:
        name, _, parameters = kernel.name.partition("<")
        source = renames.present(kernel.source.name)
        return f"cuda {source} {renames.present(name)}<{parameters} {kernel.cluster}"
    if type(kernel).__name__ == NumbaKernel.__name__:
        return f"numba {kernel.fn.__name__}"
    assert type(kernel).__name__ == TritonKernel.__name__, kernel
    # a function among them is compiled with the kernel, and stands for itself by its name
    constexprs = {k: getattr(v, "__name__", v) for k, v in kernel.constexprs.items()}
    options = sorted(constexprs.items()), kernel.num_warps, kernel.num_stages
    return f"triton {kernel.fn.__name__} {options}"


#: What a path, a process or a line of the source leaves in PTX, and no machine code.
TRACES = re.compile(r"\s*(\.file|\.loc)\b|\s*\.global \.align 1 \.b8 \$str|\$L__tmp\d+:|\s*$")


def _text(of: Version, launch: tuple[Any, Any]) -> Any:
    """What a compiler reads for a launch, besides what `_planned` returns."""
    kernel = launch[0].kernel
    if type(kernel).__name__ == TritonKernel.__name__:
        return kernel.fn.cache_key  # of the function's text, and of those that it calls
    if type(kernel).__name__ == NumbaKernel.__name__:
        return object()  # equal to no other: it reads the values of names outside the function
    shared = Path(str(importlib.import_module(of.package).__file__)).parent / "include"
    files = includes.files(kernel.source, shared)
    flags = of.module("toolchain.nvrtc").FLAGS
    return flags, [(p.name, p.read_text(encoding="utf-8")) for p in files]


def _same_code(mine: Version, a: tuple[Any, Any], theirs: Version, b: tuple[Any, Any]) -> bool:
    """Whether both versions of a launch compile to the same PTX or machine code."""
    ours, others = _compiled(mine, a), _compiled(theirs, b)
    return _ptx(ours) == _ptx(others) or _sass(ours) == _sass(others)


def _compiled(of: Version, launch: tuple[Any, Any]) -> Any:
    return of.module("toolchain.build").compile(*launch, H200.arch)


def _sass(compiled: Any) -> tuple[str, Any]:
    """Machine code without the kernel's name: Numba's has its module and a serial number."""
    return binary.sass(compiled).replace(compiled.name, "kernel"), binary.resources(compiled)


def _ptx(compiled: Any) -> str:
    """PTX without debug sections, comments, TRACES, and numbers in names that only a file knows."""
    code = re.split(r"^\s*\.section\s+\.debug", compiled.ptx, maxsplit=1, flags=re.M)[0]
    code = re.sub(r"_ZN\d+(_INTERNAL_\w+?_cu_)[0-9a-f]{8}_\d+", r"\1", code)
    lines = re.sub(r"//[^\n]*", "", code).splitlines()
    return "\n".join(line for line in lines if not TRACES.match(line))


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
