"""Mutation test of the checks: deletes each barrier of each shipped CUDA rung in turn.

    python -m tools.mutate [OP.RUNG ...]     all rungs take minutes
    python -m tools.mutate --write docs/mutations.md

A mutant is the rung's source, or a header that it includes, without one __syncthreads, __syncwarp,
fence, or step of a cluster's mailbox. It is written to the cache, not to the tree. It runs under
all checks, with several schedules, on calls that reach the barrier, and its results are compared
with those of the original rung. Findings that the original rung has too are ignored. If a deletion
is not detected, the barrier is redundant, for the reason in `REDUNDANT`, or the checks have a gap.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from kernelwright import emulator
from kernelwright.contract import CudaKernel, Launch, TensorSpec
from kernelwright.emulator.checks import CHECKS
from kernelwright.support import cache, includes
from kernelwright.workbench.sanitize.report import SEEDS, Call, call_of, emulated_runs
from kernelwright.workbench.verify.candidate import same_bits
from kernelwright.workbench.verify.verify import chosen, prepare

BARRIER = re.compile(
    r"\b__syncthreads(?:_or|_and|_count)?\(|\b__syncwarp\(|\b(?:kw::)?fence\(\);|\.sync\(\);"
    r"|\b(?:box\.|kw::Mailbox::)ready\(|\bbox\.(?:wait|expect)\("
    r"|\bemulator::(?:cluster_arrive_relaxed|fence_mbarrier_init)\("
)
CALLS = 6  # calls, of different kernels and sizes, that run without a barrier

HEAD = """\
# Does the emulator find every missing barrier?

Written by `python -m tools.mutate --write docs/mutations.md`. In a copy of each CUDA rung, every
barrier and fence that its kernels reach is deleted in turn, and the copy runs under all checks of
[the emulator](emulator.md). In rungs that use thread-block clusters, each step of a mailbox is
deleted too; in `cluster.cuh`, the CPU body of the PTX is deleted. Findings that the original rung
has too are ignored.
"""

#: Why a barrier is redundant: by `Barrier.key`, and by source.
ONCE = "the kernel reduces only once; this barrier separates a second reduction from the first"
ALIGNED = (
    "the next barrier is not in a branch: a GPU's compiler reconverges the warp there, as at "
    "__syncthreads"
)
OF_THE_ENGINE = (
    "makes the barriers visible to the copy engine, which is not emulated; __syncthreads follows "
    "for the threads"
)
SAME_THREAD = (
    "thread 0 executes both sides; racecheck attributes the first to all threads of its warp"
)
REDUNDANT: dict[tuple[str, str, int], dict[str, str]] = {
    ("reduce.cuh", "__syncthreads();", 1): {
        "sum/cuda_atomics.cu": ONCE,
        "sum/cuda_rows.cu": ONCE,
        "sum/cuda_shuffle.cu": ONCE,
        "sum/cuda_two_pass.cu": ONCE,
        "sum/cuda_vec16.cu": ONCE,
        "sum/cuda_last_block.cu": "the barrier in is_last_block separates its two reductions",
    },
    ("last_block.cuh", "return __syncthreads_or(last);", 1): {
        "sum/cuda_atomics.cu": "only thread 0 continues, and it does not need the other threads' "
        "votes",
    },
    (
        "cuda_columns.cu",
        "__syncthreads();  // a second call must not overtake readers of the first",
        1,
    ): {
        "sum/cuda_columns.cu": "two other barriers separate the two calls",
    },
    ("cluster.cuh", "__syncwarp();  // racecheck takes a lane's init for its whole warp's", 1): {
        "softmax/cuda_cluster.cu": SAME_THREAD,
        "layer_norm/cuda_cluster.cu": SAME_THREAD,
        "cross_entropy/cuda_cluster.cu": SAME_THREAD,
    },
    ("cluster.cuh", "__syncwarp();", 1): {
        "softmax/cuda_cluster.cu": ALIGNED,
        "layer_norm/cuda_cluster.cu": ALIGNED,
        "cross_entropy/cuda_cluster.cu": ALIGNED,
        "group_norm/cuda_channels_registers.cu": ALIGNED,
        "group_norm/cuda_channels_registers_backward.cu": ALIGNED,
    },
    ("cuda_channels_registers_backward.cu", "__syncthreads();", 3): {
        "group_norm/cuda_channels_registers_backward.cu": "with a weight or a bias, the barriers "
        "of the sums of channels come in between; only calls without both need this one",
    },
    ("cluster.cuh", "__syncwarp();  // racecheck attributes a lane's init to its whole warp", 1): {
        "group_norm/cuda_channels_registers.cu": SAME_THREAD,
        "group_norm/cuda_channels_registers_backward.cu": SAME_THREAD,
    },
    ("bulk.cuh", "emulator::fence_mbarrier_init();", 1): {
        "paged/cuda_split_bulk.cu": OF_THE_ENGINE,
        "decode/cuda_split_bulk.cu": OF_THE_ENGINE,
    },
    ("cuda_warp.cu", "if constexpr (VEC * VECS > 8) __syncwarp();", 1): {
        "layer_norm/cuda_warp.cu": "an optimization barrier: without it, the compiler would keep "
        "many columns in registers from one pass to the next; a lane reads only its own slots",
    },
}


@dataclass(frozen=True)
class Barrier:
    """One barrier in the text of a source or header."""

    path: Path
    file: str = field(repr=False)  # its text
    line: int  # from 1
    start: int  # in the text
    end: int

    @property
    def text(self) -> str:
        return self.file.splitlines()[self.line - 1].strip()

    @property
    def key(self) -> tuple[str, str, int]:
        """Its file, its line's text, and its number among the lines of the same text, from 1."""
        lines = [t.strip() for t in self.file.splitlines()[: self.line]]
        return self.path.name, self.text, lines.count(self.text)

    def deleted(self) -> str:
        """The file's text without it; the predicate of a voting barrier is kept."""
        call = self.file[self.start : self.end]
        votes = re.match(r"__syncthreads_(?:or|and|count)", call)
        rest = call[votes.end() :] if votes else ";" if call.endswith(";") else "(void)0"
        return self.file[: self.start] + rest + self.file[self.end :]


@dataclass(frozen=True)
class Mutant:
    """One deletion in one source's kernels.

    Attributes:
        source: the rung's file.
        by: what detected it: checks, "value"; empty if nothing did.
        says: the first finding.
        why: the reason why the barrier is redundant, if known.
    """

    source: Path
    barrier: Barrier
    by: tuple[str, ...]
    says: str = ""
    why: str = ""


def barriers(path: Path) -> list[Barrier]:
    """The barriers of a file, except in comments, in definitions and in GPU-only code."""
    text = path.read_text()
    blank = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"\S", " ", m[0]), text, flags=re.S)
    blank = re.sub(
        r"#ifdef __CUDA_ARCH__.*?#(?:else|endif)",
        lambda m: re.sub(r"\S", " ", m[0]),
        blank,
        flags=re.S,
    )
    calls: list[Barrier] = []
    for m in BARRIER.finditer(blank):
        if re.search(r"void\s+$", blank[: m.start()]):
            continue
        end = _closing(blank, blank.index("(", m.start())) + 1
        end += blank[end : end + 1] == ";"
        calls.append(Barrier(path, text, blank.count("\n", 0, m.start()) + 1, m.start(), end))
    return calls


def _closing(text: str, at: int) -> int:
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise AssertionError(text[at : at + 40])


def calls_by_barrier(names: Iterable[str] = ()) -> dict[tuple[Path, Barrier], list[Call]]:
    """For each source and barrier that its kernels reach: calls that reach it, those with the most
    parallelism first."""
    calls_of: dict[tuple[Path, Barrier], list[Call]] = defaultdict(list)
    known: dict[Path, list[Barrier]] = {}
    pairs = [p for p in chosen(names) if p[1].backend == "cuda"]
    prepare(pairs)
    for ladder, rung in pairs:
        calls: dict[tuple[str, ...], Call] = {}
        numels: dict[tuple[str, ...], int] = {}
        for config, case in emulated_runs(ladder, rung)[0]:
            call = call_of(ladder, rung, config, case)
            if isinstance(call, Call):
                key = _family(call)
                if key not in calls or case.numel > numels[key]:
                    calls[key], numels[key] = call, case.numel
        some = [c for c in calls.values() if all(k.emulated for k in _kernels(c))]
        with emulator.mode("watched"):
            emulator.ensure(kernel for call in some for kernel in _kernels(call))
        for call in some:
            points = call.sync_points()
            for source in {kernel.source.resolve() for kernel in _kernels(call)}:
                here = [places for places in points if any(p == str(source) for p, _ in places)]
                for path in includes.files(source):
                    for barrier in known.setdefault(path, barriers(path)):
                        if any((str(path), barrier.line) in places for places in here):
                            calls_of[source, barrier].append(call)
    return {
        (source, barrier): sorted(calls, key=lambda c: _size(c, source), reverse=True)[:CALLS]
        for (source, barrier), calls in sorted(calls_of.items(), key=_order)
    }


def _order(item: tuple[tuple[Path, Barrier], Any]) -> tuple:
    (source, barrier), _ = item
    return source, barrier.path != source, barrier.path, barrier.start


def _kernels(call: Call) -> list[CudaKernel]:
    steps = (step.kernel for step in call.plan.launches)
    return [kernel for kernel in steps if isinstance(kernel, CudaKernel)]


def _family(call: Call) -> tuple[str, ...]:
    """Its kernels' names without types, since these do not affect synchronization, and whether
    there are several warps, and several blocks along each dimension."""
    types = r"\b(float|double|__half|__nv_bfloat16|int|long|unsigned|char|short)\b"
    names = (re.sub(types, "T", kernel.name) for kernel in _kernels(call))
    sizes = ((math.prod(step.block) / 32, *step.grid) for step in call.plan.launches)
    return (*names, *("".join("1+"[n > 1] for n in size) for size in sizes))


def _size(call: Call, source: Path) -> tuple[int, float]:
    """Rank of the launches of a source by parallelism: several warps and blocks first, then by the
    number of blocks; for clusters, by the rows that each processes."""
    shapes = [t.shape for t in call.specs.values() if isinstance(t, TensorSpec) and t.shape]
    rows = max((math.prod(shape[:-1]) for shape in shapes), default=0)
    return max(
        (
            (math.prod(s.block) > 32) + (math.prod(s.grid) > 1),
            math.prod(s.grid) if s.kernel.cluster == 1 else rows / math.prod(s.grid),
        )
        for s in call.plan.launches
        if isinstance(s.kernel, CudaKernel) and s.kernel.source.resolve() == source
    )


def mutate(
    source: Path, barrier: Barrier, calls: Sequence[Call], seeds: Sequence[int] = SEEDS
) -> Mutant:
    """Delete one barrier and determine what detects it."""
    by: list[str] = []
    says = ""
    copied = mutated(source, barrier)
    for call in calls:
        for seed in seeds:
            got, findings = swapped(call, source, copied).watched(tuple(CHECKS), seed)
            findings = [f for f in findings if (f.check, f.lines) not in _standing(call, seed)]
            noticed = list(dict.fromkeys(f.check for f in findings))
            if got is not None and not noticed and not _same(call, got, seed):
                noticed = ["value"]
            by += [n for n in noticed if n not in by]
            says = says or next((f.text.splitlines()[0] for f in findings), "")
        if by:
            break
    why = REDUNDANT.get(barrier.key, {}).get(_place(source), "")
    return Mutant(source, barrier, tuple(by), says, "" if by else why)


#: By a call's id, and a seed; the call is kept, so that its id stays its own.
_stood: dict[tuple[int, int], tuple[Call, set[tuple[str, tuple[str, ...]]]]] = {}


def _standing(call: Call, seed: int) -> set[tuple[str, tuple[str, ...]]]:
    """The findings of the checks in the original rung."""
    key = id(call), seed
    if key not in _stood:
        findings = call.watched(tuple(CHECKS), seed)[1]
        _stood[key] = call, {(f.check, f.lines) for f in findings}
    return _stood[key][1]


def mutated(source: Path, barrier: Barrier) -> Path:
    """A copy of the source without the barrier, together with our headers. Its path is derived from
    its content, so that a mutant is not built again."""
    texts: dict[str, str] = {}
    above = source.parent.parent.parent  # a family's headers lie beside its ladders' folders
    for path in includes.files(source):
        shared = path.is_relative_to(includes.INCLUDE)
        place = path.relative_to(includes.INCLUDE if shared else above)
        name = str(source.parent.relative_to(above) / place if shared else place)
        texts[name] = barrier.deleted() if path == barrier.path else path.read_text()
    folder = cache.path("mutant", cache.key(t for pair in sorted(texts.items()) for t in pair))
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / source.relative_to(above)


def swapped(call: Call, source: Path, copied: Path) -> Call:
    """A call of the mutated source's kernels."""

    def of_mutant(step: Launch) -> Launch:
        kernel = step.kernel
        if not isinstance(kernel, CudaKernel) or kernel.source != source:
            return step
        return replace(step, kernel=replace(kernel, source=copied))

    launches = tuple(map(of_mutant, call.plan.launches))
    return replace(call, plan=replace(call.plan, launches=launches))


def _same(call: Call, got: tuple[torch.Tensor, ...], seed: int) -> bool:
    want, _ = call.watched((), seed)
    assert want is not None
    return all(same_bits(a, b) for a, b in zip(got, want, strict=True))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate")
    parser.add_argument("rungs", nargs="*", metavar="OP.RUNG", help="default: all")
    parser.add_argument("--write", type=Path, help="a Markdown page of the outcome")
    asked = parser.parse_args(arguments)
    mutants: list[Mutant] = []
    for mutant in _all(asked.rungs):
        mutants.append(mutant)
        print(line_of(mutant), flush=True)
    text = summary(mutants)
    print(text)
    if asked.write:
        asked.write.write_text(page(mutants))
    return int(any(not m.by and not m.why for m in mutants))


def _all(names: Iterable[str]) -> Iterator[Mutant]:
    for (source, barrier), calls in calls_by_barrier(names).items():
        yield mutate(source, barrier, calls)


def line_of(m: Mutant) -> str:
    """One mutant on one line."""
    where = f"{_place(m.source)}, {m.barrier.path.name}:{m.barrier.line}"
    noticed = ", ".join(m.by) if m.by else f"REDUNDANT: {m.why}" if m.why else "NOT DETECTED"
    return f"{where}: {m.barrier.text}: {noticed}: {m.says}"


def summary(mutants: Sequence[Mutant]) -> str:
    caught = [m for m in mutants if m.by]
    kinds = {k: sum(k in m.by for m in caught) for k in (*CHECKS, "error", "value")}
    alone = sum(m.by == ("value",) for m in caught)
    said = ", ".join(f"{k} {n}" for k, n in kinds.items() if n)
    rest = [m for m in mutants if not m.by]
    return (
        f"{len(mutants)} deletions: {len(caught)} detected ({said}; {alone} only by values), "
        f"{sum(bool(m.why) for m in rest)} of redundant barriers, "
        f"{sum(not m.why for m in rest)} not detected"
    )


def page(mutants: Sequence[Mutant]) -> str:
    """The outcome as Markdown: the detected deletions by source, and the others with a reason."""
    lines = [
        HEAD,
        f"{summary(mutants)}.",
        "",
        "| source | barrier | detected by | first finding |",
        "| --- | --- | --- | --- |",
    ]
    for m in mutants:
        if m.by:
            lines.append(f"| {_cells(m)} | {', '.join(m.by)} | {_cell(m.says)} |")
    lines += ["", "## Redundant", "", "| source | barrier | why |", "| --- | --- | --- |"]
    for m in mutants:
        if not m.by:
            lines.append(f"| {_cells(m)} | {_cell(m.why) or '**a gap in the checks**'} |")
    return "\n".join(lines) + "\n"


def _cells(m: Mutant) -> str:
    place = f"{m.barrier.path.name}:{m.barrier.line}"
    code = m.barrier.text.partition("//")[0].strip()
    return f"{_place(m.source)} | {place} `{_cell(code)}`"


def _place(source: Path) -> str:
    return f"{source.parent.name}/{source.name}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
