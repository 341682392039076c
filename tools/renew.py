"""Brings a GPU's records up to date with the sources; only what is missing is run.

    python -m tools.renew DIR                      everything that is missing
    python -m tools.renew DIR softmax --steps prove,time
    python -m tools.renew DIR --list               print the jobs; works on any machine

Each job is a `kernelwright` command in a separate process that writes its output and records to
DIR. The jobs are distributed over the GPUs that CUDA sees: a timing job has a GPU to itself, other
jobs run in as many processes as there are cores. After each step the records are merged into those
of the checkout, so that rungs proven in one step can be dispatched in the next. Jobs that a time
limit leaves out are still missing and are done by the next run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelwright.contract import H200, Gpu, Ladder
from kernelwright.dispatch import (
    data,
    device_of,
    ladders,
    launcher,
    proven_on,
    source_hash,
    specs_of,
    unsupported,
)
from kernelwright.dispatch.selection import tables_of
from kernelwright.machine import gpu_of, here, slug
from kernelwright.workbench import inspection
from kernelwright.workbench.bench.tune import sources, table_of
from kernelwright.workbench.bench.workload import peers_of
from kernelwright.workbench.listing import named, served
from kernelwright.workbench.records import records
from kernelwright.workbench.records.merge import merge
from kernelwright.workbench.sanitize.compute_sanitizer import TOOLS
from kernelwright.workbench.verify.raised import one_line
from kernelwright.workbench.verify.verify import prepare

STEPS = ("prove", "tune", "time", "watch")
PARTS = 4  # processes that compile one operator's kernels


@dataclass(frozen=True)
class Job:
    """A command and the name of its output."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Budget:
    """`deadline` is on time.monotonic(); `jobs` how many processes share a GPU; `quick` times with
    a few samples."""

    deadline: float
    jobs: int
    quick: bool = False

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


def missing(step: str, chosen: Iterable[Ladder], machine: str, quick: bool = False) -> list[Job]:
    """The jobs of a step that the records of a machine call for; `quick` is bench's.

    prove: GPU rungs whose present source has no proof there. tune: operators whose table is of
    other sources or other bench cases. time: operators with a bench case that a rung written here
    takes and on which its present source was not timed there. watch: CUDA rungs whose present
    source compute-sanitizer has not seen, a tool a job: racecheck takes minutes for some.
    """
    chosen = list(chosen)
    if step == "prove":
        names = [
            f"{lad.name}.{rung.name}"
            for lad in chosen
            for rung in lad.rungs
            if rung.is_gpu and machine not in proven_on(lad, rung)
        ]
        return [Job(f"prove-{n}", ("verify", n, "--record")) for n in names]
    if step == "watch":
        return list(_unwatched(chosen, machine))
    if step == "tune":
        names = [lad.name for lad in chosen if not _is_tuned(lad)]
        return [Job(f"tune-{n}", ("tune", n, "--quick")) for n in names]
    return list(_benches(chosen, machine, ("--quick",) if quick else ()))


def _is_tuned(lad: Ladder) -> bool:
    """Whether the table for this GPU is of today's rungs and covers every bench case. A ladder
    without GPU rungs needs no table."""
    path = table_of(tables_of(lad), lad.name, (gpu_of(here()) or H200).capability)
    table = data.document(path, {"buckets": {}})
    calls = (inspection.specs_of(lad, c) for c in lad.operator.cases if c.use == "bench")
    known = all(lad.bucket(**call) in table["buckets"] for call in calls)
    return not sources(lad) or (table.get("sources") == sources(lad) and known)


def _benches(chosen: list[Ladder], machine: str, quick: tuple[str, ...]) -> Iterator[Job]:
    """A bench for each operator, which takes its backward along, and one for each backward of the
    cases that only it lacks."""
    cases: dict[str, list[str]] = {}
    for lad in chosen:  # an operator stands before its backward
        taken = cases.get(lad.name.removesuffix(".backward"), ())
        if ids := [case for case in _untimed(lad, machine) if case not in taken]:
            cases[lad.name] = ids
    for name, ids in cases.items():
        which = (word for i in ids for word in ("--case", i))
        yield Job(f"time-{name}", ("bench", name, *which, *quick, "--peers", "--record"))


def _unwatched(chosen: list[Ladder], machine: str) -> Iterator[Job]:
    seen = {
        (r.operator, r.rung, r.case, r.hash)
        for r in records.load(machine)
        if r.case.startswith("check:")
    }
    for lad in chosen:
        for rung in lad.rungs:
            for check in TOOLS if rung.backend == "cuda" else ():
                if (lad.name, rung.name, f"check:{check}", source_hash(lad, rung)) not in seen:
                    name = f"{lad.name}.{rung.name}"
                    words = ("verify", name, "--check", check, "--record")
                    yield Job(f"watch-{name}-{check}", words)


def _untimed(lad: Ladder, machine: str) -> Iterator[str]:
    """Bench cases that a rung written here takes and for which its current source has none, or
    none of what serves with the config with which it does."""
    timings = records.load(machine, lad.name)
    kept = {(r.rung, r.case, r.hash) for r in timings}
    configs = {(r.rung, r.case, json.dumps(r.config, sort_keys=True)) for r in timings}
    gpu = gpu_of(here()) or H200
    rungs = [(r, r.supports or _anything, source_hash(lad, r)) for r in lad.rungs if r.is_ours]
    for case in lad.operator.cases:
        if case.use == "bench":
            call = inspection.specs_of(lad, case)
            takes = ((r.name, case.id, h) for r, why_not, h in rungs if not why_not(gpu, **call))
            rung, config = served(lad, gpu, call)
            mine = rung.name, case.id, json.dumps(config, sort_keys=True)
            if not kept.issuperset(takes) or (rung.is_gpu and mine not in configs):
                yield case.id


def _anything(gpu: Gpu, **call: object) -> None:
    return None


def renew(folder: Path, chosen: list[Ladder], steps: Iterable[str], budget: Budget) -> list[Job]:
    """Do what is missing, step by step; what was not done or went wrong."""
    machine, left = slug(here()), []
    for step in steps:
        jobs = missing(step, chosen, machine, budget.quick)
        print(f"{step}: {len(jobs)} jobs, {budget.left:.0f} s left", flush=True)
        if step in ("prove", "watch"):
            undone = _run_all(jobs, folder, budget)
            if undone and step == "prove":  # the largest cases do not fit beside each other
                undone = _run_all(undone, folder, replace(budget, jobs=max(1, budget.jobs // 4)))
        else:
            _compile_all([job.words[1] for job in jobs], budget)
            undone = _run_all(jobs, folder, replace(budget, jobs=1))
        left += undone
        if any(folder.rglob("runs.jsonl")):
            print(f"{step}: {merge([folder])}", flush=True)
    return left


class _Gpus:
    """The GPUs that CUDA sees, as environments of processes: `jobs` of them for each."""

    def __init__(self, jobs: int):
        said = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = said.split(",") if said else map(str, range(torch.cuda.device_count()))
        self.free: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in list(names) * jobs:
            self.free.put(name)
        self.count = self.free.qsize()

    @contextlib.contextmanager
    def one(self) -> Generator[dict[str, str]]:
        name = self.free.get()
        try:
            yield {**os.environ, "CUDA_VISIBLE_DEVICES": name}
        finally:
            self.free.put(name)


def _run_all(jobs: list[Job], folder: Path, budget: Budget) -> list[Job]:
    """Run jobs, the longest first, as many at once as the budget allows; those that failed or found
    no time."""
    gpus = _Gpus(budget.jobs)
    jobs = sorted(jobs, key=lambda job: len(job.words), reverse=True)

    def run(job: Job) -> int | None:
        with gpus.one() as environment:
            return _run(job, folder, budget, environment)

    with ThreadPoolExecutor(gpus.count) as pool:
        codes = list(pool.map(run, jobs))
    return [job for job, code in zip(jobs, codes, strict=True) if code != 0]


def _run(job: Job, folder: Path, budget: Budget, environment: dict[str, str]) -> int | None:
    """The command's exit code; None where there was no time for it, or not enough."""
    if budget.left < 5:
        return None
    start, log = time.monotonic(), folder / f"{job.name}.log"
    with open(log, "w") as out:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "kernelwright", *job.words],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**environment, "KW_RECORDS": str(folder / job.name)},
                timeout=budget.left,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    said = "no time" if code is None else f"exit {code}"
    print(f"  {job.name}: {said}, {time.monotonic() - start:.0f} s", flush=True)
    if code:
        print("".join(f"    {x}\n" for x in log.read_text().splitlines()[-6:]), end="", flush=True)
    return code


def _compile_all(operators: Iterable[str], budget: Budget) -> None:
    """Compile what will be timed, so that the GPU does not wait for compilers. torch.compile would
    start as many processes as there are cores in each of these."""
    parts = [
        (lad.name, str(k))
        for lad in named(operators)
        for k in range(min(PARTS, sum(c.use == "bench" for c in lad.operator.cases)))
    ]
    start = time.monotonic()
    words = [sys.executable, "-m", "tools.renew", "--compile"]
    gpus = _Gpus(budget.jobs)

    def compile_part(part: tuple[str, str]) -> None:
        with gpus.one() as environment:
            environment = {**environment, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            subprocess.run([*words, *part], stdout=sys.stderr, env=environment, check=False)

    with ThreadPoolExecutor(gpus.count) as pool:
        list(pool.map(compile_part, parts))
    print(f"  compiled in {time.monotonic() - start:.0f} s", flush=True)


def _compile(name: str, part: int) -> None:
    """Compile rungs and peers for each PARTS-th bench case of an operator. What cannot be made is
    said, and is an outcome when it is timed."""
    (lad,) = (x for x in ladders() if x.name == name)
    prepare((lad, rung) for rung in lad.rungs)
    for case in [c for c in lad.operator.cases if c.use == "bench"][part::PARTS]:
        inputs = lad.operator.inputs(case, "cuda")
        args = lad.operator.with_defaults(inputs)
        for make in _makers(lad, args):
            try:
                make()
            except Exception as e:  # noqa: BLE001 - whatever a rung or a library raises
                print(f"  {name} {case.id}: {one_line(e)}", flush=True)
        del inputs, args
        torch.cuda.empty_cache()


def _makers(lad: Ladder, args: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """What compiles a call's rungs and peers; torch.compile and other libraries do as they run."""
    for rung in lad.rungs:
        if unsupported(rung, specs_of(args), device_of(args)) is None:
            if rung.is_gpu:
                yield partial(launcher, lad, args, rung.name)
            elif rung.backend == "inductor":
                yield lambda: launcher(lad, args, "compiled")(*args.values())
    for peer in peers_of(lad):
        if importlib.util.find_spec(peer.requires):
            yield lambda peer=peer: peer.make(**args)()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.renew", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="for outputs and records")
    parser.add_argument("operators", nargs="*", metavar="OP", help="none: all of them")
    parser.add_argument("--steps", default=",".join(STEPS), help=f"of {','.join(STEPS)}")
    parser.add_argument("--seconds", type=float, default=3600, help="start nothing after these")
    parser.add_argument("--jobs", type=int, help="processes that share a GPU")
    parser.add_argument("--quick", action="store_true", help="a few samples of each")
    parser.add_argument("--list", action="store_true", help="say what is missing on an H200")
    words = parser.parse_args(arguments)
    steps = words.steps.split(",")
    if unknown := set(steps) - set(STEPS):
        parser.error(f"--steps {','.join(sorted(unknown))}: there are {', '.join(STEPS)}")
    chosen = named(words.operators) if words.operators else list(ladders())
    if words.list:
        for step in steps:
            for job in missing(step, chosen, slug(here()) if gpu_of(here()) else "nvidia-h200"):
                print(f"{step}: kernelwright {' '.join(job.words)}")
        return 0
    if gpu_of(here()) is None:
        parser.error("there is no GPU here; --list says what is missing on an H200")
    words.folder.mkdir(parents=True, exist_ok=True)
    jobs = words.jobs or (len(os.sched_getaffinity(0)) - 1) // _Gpus(1).count
    budget = Budget(time.monotonic() + words.seconds, max(1, jobs), words.quick)
    left = renew(words.folder, chosen, steps, budget)
    for job in left:
        print(f"not done: kernelwright {' '.join(job.words)}")
    return 1 if left else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        _compile(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
